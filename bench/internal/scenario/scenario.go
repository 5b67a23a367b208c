//go:build linux

// Package scenario holds what is measured: each scenario compares a few cases
// on the same network, round by round.
//
// A new scenario is a function that returns a Scenario, and a line in [All].
// Its cases do all the work themselves, mostly by [Env.forward]; what they
// return is a set of named numbers, and columns and goals refer to the names.
package scenario

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/netring/netring/bench/internal/peer"
	"github.com/netring/netring/bench/internal/result"
)

// Scenario is a comparison of cases.
type Scenario struct {
	Name  string // of the file and the section, "forward60"
	Title string
	About string // what is compared and why, Markdown
	// Rounds of a scenario that needs long ones; 0 for what the user asked.
	Rounds int
	// NoWarmup leaves the round out that is measured and dropped; QuickWarmup
	// makes it short.
	NoWarmup, QuickWarmup bool
	// Warm and Window are how long a load runs before a measurement, and how
	// long that is; 0 for DefaultWarm and DefaultWindow.
	Warm, Window time.Duration
	// Each is what a case takes besides, and Once what the scenario does once:
	// only for [Scenario.Expected].
	Each, Once time.Duration
	Columns    []Column
	Goals      []Goal
	Published  []Published
	Plot       *Plot
	Cases      func(*Env) []Case
}

// How long measurements take unless a scenario says otherwise.
const (
	DefaultWarm   = 700 * time.Millisecond
	DefaultWindow = 2 * time.Second
	usualEach     = 450 * time.Millisecond
	// Of a quick warm-up round.
	quickWarm, quickWindow = 200 * time.Millisecond, 200 * time.Millisecond
	// Where a short window is enough, since rounds differ by more than windows
	// of a round do.
	shortWarm, shortWindow = 500 * time.Millisecond, time.Second
)

// Expected is about how long a run takes; warm and window are 0 for the
// scenario's own.
func (s *Scenario) Expected(cases, rounds int, warm, window time.Duration) time.Duration {
	warm, window = cmp.Or(warm, s.Warm, DefaultWarm), cmp.Or(window, s.Window, DefaultWindow)
	each := cmp.Or(s.Each, usualEach)
	n := time.Duration(cases * cmp.Or(s.Rounds, rounds))
	d := s.Once + n*(warm+window+each)
	switch {
	case s.NoWarmup:
	case s.QuickWarmup:
		d += time.Duration(cases) * (quickWarm + quickWindow + each)
	default:
		d += time.Duration(cases) * (warm + window + each)
	}
	return d
}

// Published is a figure from elsewhere, to be shown beside ours.
type Published struct {
	What   string // was measured
	Figure string // as published
	Source string
	// Ours is the median of Case's Metric, or of its ratio to that of Against
	// in the same round; no Case if there is nothing to compare.
	Case, Metric, Against string
	Scale                 float64 // ours is divided by it; 0 for 1
	Digits                int
	Unit                  string
	Why                   string // where they differ and why, whatever the figures are
}

// Case is a row of the table.
type Case struct {
	Name    string
	Command string // of the device under test
	Skip    string // why it cannot be measured here, "" if it can
	Run     func(context.Context, *Env) (*result.Sample, error)
}

// Column shows a metric.
type Column struct {
	Metric string
	Head   string
	Scale  float64 // the value is divided by it; 0 for 1
	Digits int
	Range  bool // with minimum and maximum
}

// Goal is what a scenario has to show: a metric, or its ratio to another case's
// in the same round, within bounds.
type Goal struct {
	Case, Metric string
	Against      string  // the other case; "" for the metric itself
	Min, Max     float64 // 0 for no bound
	// ZeroMax bounds the metric from above by 0.
	ZeroMax bool
	Text    string // in words
}

// Plot draws a metric over a number that the cases' names end in.
type Plot struct {
	X, Y   string   // the axes' names
	XKey   string   // the metric on the x axis
	YKey   string   // the metric on the y axis
	Lines  []string // the cases' names begin with these
	XScale float64
	YScale float64
}

// Env is what cases need to run.
type Env struct {
	Tools   *peer.Tools
	Source  int           // core of the source, and of all that is neither it nor the DUT
	DUT     int           // core of the device under test
	Warm    time.Duration // before a window
	Seconds time.Duration // a window
	Log     func(format string, args ...any)
	// Step is told of each measurement, as it begins; it may be nil.
	Step func(round, rounds, nth, cases int)
	// Found is what earlier rounds found out, such as a capacity.
	Found map[string]float64
}

// All returns every scenario, in the order of BENCHMARKS.md.
func All() []Scenario {
	all := []Scenario{
		forwardSize(60), forwardSize(1514), halfRate(), tcp(), latency(), workers(),
		send(60), send(1514), xdpTX(60), xdpTX(1514), xdpForward(60), xdpForward(1514), live(), xdpRX(), memory(),
		livelock(), userFrac(), modes(), stage(), everything(), prio(), laggTCP(), laggFailover(),
	}
	for i := range all {
		all[i].Published = published(all[i].Name)
	}
	return all
}

// Run measures all cases round by round: A B C, A B C, and so on. The first
// round is a warm-up and dropped. A case that fails in a round has no sample
// there; the reason is kept in its row. The error is that of a run broken off.
func Run(ctx context.Context, e *Env, s *Scenario, rounds int) (*result.Run, error) {
	if s.Rounds != 0 {
		rounds = s.Rounds
	}
	cases := s.Cases(e)
	r := &result.Run{
		Scenario: s.Name, Started: time.Now().UTC().Truncate(time.Second), Rounds: rounds,
		Seconds: e.Seconds.Seconds(), Source: e.Source, DUT: e.DUT, Rows: make([]result.Row, len(cases)),
	}
	for i, c := range cases {
		r.Rows[i] = result.Row{Case: c.Name, Command: c.Command, Skipped: c.Skip}
		if c.Skip != "" {
			e.Log("%s: %s: skipped: %s", s.Name, c.Name, c.Skip)
		}
	}
	first := 0
	if s.NoWarmup {
		first = 1
	}
	quick := *e
	quick.Warm, quick.Seconds = min(e.Warm, quickWarm), min(e.Seconds, quickWindow)
	for round := first; round <= rounds; round++ {
		with := e
		if round == 0 && s.QuickWarmup {
			with = &quick
		}
		for i, c := range cases {
			if c.Skip != "" {
				continue
			}
			if e.Step != nil {
				e.Step(round, rounds, i+1, len(cases))
			}
			sample, err := c.Run(ctx, with)
			if ctx.Err() != nil {
				return r, context.Cause(ctx)
			}
			record(e, s, &r.Rows[i], round, sample, err)
		}
	}
	return r, nil
}

func record(e *Env, s *Scenario, row *result.Row, round int, sample *result.Sample, err error) {
	what := fmt.Sprintf("round %d", round)
	if round == 0 {
		what = "warm-up"
	}
	if err != nil {
		row.Failed = append(row.Failed, fmt.Sprintf("%s: %v", what, err))
		e.Log("%s: %s: %s: %v", s.Name, row.Case, what, err)
		return
	}
	e.Log("%s: %s: %s: %s", s.Name, row.Case, what, s.brief(sample))
	if round > 0 {
		sample.Round = round
		row.Samples = append(row.Samples, *sample)
	}
}

// brief is a sample on one line.
func (s *Scenario) brief(sample *result.Sample) (line string) {
	for _, c := range s.Columns {
		if v, ok := sample.Metrics[c.Metric]; ok {
			line += fmt.Sprintf("%s %.*f, ", c.Head, c.Digits, v/c.scale())
		}
	}
	if w := sample.Window; w != nil && w.Tries > 1 {
		line += fmt.Sprintf("%d tries, others used %.0f %% of a core", w.Tries, w.Foreign)
	}
	return line
}

func (c Column) scale() float64 {
	if c.Scale == 0 {
		return 1
	}
	return c.Scale
}

// Value is a metric in the column's unit.
func (c Column) Value(v float64) float64 { return v / c.scale() }
