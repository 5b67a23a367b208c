//go:build linux

package main

import (
	"fmt"
	"io"
	"time"

	"github.com/netring/netring/bench/internal/peer"
	"github.com/netring/netring/bench/internal/scenario"
)

// progress tells how far a run is.
type progress struct {
	names    []string
	expected []time.Duration // of each scenario
	at       int             // the scenario that runs
	started  time.Time       // when it began
	now      func() time.Time
}

func newProgress(e *scenario.Env, chosen []scenario.Scenario, o *options, now func() time.Time) *progress {
	p := &progress{now: now}
	for i := range chosen {
		s := &chosen[i]
		p.names = append(p.names, s.Name)
		p.expected = append(p.expected, s.Expected(measured(s.Cases(e)), o.rounds, o.warm, o.window))
	}
	return p
}

// measured counts the cases that are not skipped.
func measured(cases []scenario.Case) (n int) {
	for _, c := range cases {
		if c.Skip == "" {
			n++
		}
	}
	return n
}

// begin says which scenario begins.
func (p *progress) begin(i int) {
	p.at, p.started = i, p.now()
	logf("%s: scenario %d of %d, about %v; all that is left: about %v", p.names[i], i+1, len(p.names), round(p.expected[i]), round(p.left()))
}

// step says which measurement begins.
func (p *progress) step(i, nth, rounds, c, cases int) {
	logf("%s: scenario %d of %d, round %d of %d, case %d of %d; about %v left", p.names[i], i+1, len(p.names), nth, rounds, c, cases, round(p.left()))
}

// took is how long the scenario has run.
func (p *progress) took() time.Duration { return p.now().Sub(p.started) }

// left is how long the rest should take. A scenario that takes longer than
// expected is taken to be about done.
func (p *progress) left() time.Duration {
	d := max(p.expected[p.at]-p.took(), 0)
	for _, e := range p.expected[p.at+1:] {
		d += e
	}
	return d
}

func round(d time.Duration) time.Duration {
	if d > 2*time.Minute {
		return d.Round(time.Minute)
	}
	return d.Round(time.Second)
}

// list prints the scenarios and how long each takes at the least number of
// rounds that is kept. Cases that cannot run here are counted too.
func list(w io.Writer, all []scenario.Scenario) {
	e := &scenario.Env{Tools: &peer.Tools{Missing: map[string]error{}}, Source: 0, DUT: 1}
	var total time.Duration
	for i := range all {
		s := &all[i]
		d := s.Expected(len(s.Cases(e)), minRounds, 0, 0)
		total += d
		fmt.Fprintf(w, "%-14s %6v  %s\n", s.Name, d.Round(time.Second), s.Title)
	}
	fmt.Fprintf(w, "%-14s %6v  at %d rounds\n", "all", total.Round(time.Minute), minRounds)
}
