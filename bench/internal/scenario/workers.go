//go:build linux

package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/netring/netring/bench/internal/bed"
	"github.com/netring/netring/bench/internal/peer"
	"github.com/netring/netring/bench/internal/result"
)

const (
	mWorker0 = "worker0_packets"
	mWorker1 = "worker1_packets"
	mFlows0  = "worker0_flows"
	mFlows1  = "worker1_flows"
	mSplit   = "split_flows"
	mBooks   = "book_difference"
)

// books is what of the bridge's report tells whether its counters add up.
type books struct {
	Received  float64            `json:"received_packets"`
	Copied    float64            `json:"copied_packets"`
	Forwarded float64            `json:"forwarded_packets"`
	Dropped   float64            `json:"dropped_packets"`
	Drops     map[string]float64 `json:"drops"`
	Workers   []struct {
		Packets float64 `json:"packets"`
	} `json:"workers"`
}

// workerMetrics checks a final report: what was received is what was forwarded
// and dropped, and what the workers took is what was received, but for what
// the kernel dropped before them.
func workerMetrics(final json.RawMessage, m map[string]float64) error {
	var f books
	if err := json.Unmarshal(final, &f); err != nil {
		return fmt.Errorf("final report of the bridge: %w", err)
	}
	var taken float64
	for i, w := range f.Workers {
		taken += w.Packets
		if name := []string{mWorker0, mWorker1}; i < len(name) {
			m[name[i]] = w.Packets
		}
	}
	m[mBooks] = math.Abs(f.Received+f.Copied-f.Forwarded-f.Dropped) +
		math.Abs(f.Received-f.Drops["kernel"]-f.Drops["closed"]-taken)
	return nil
}

// workerFlows is how many flows the source has: enough for the kernel's hash to
// spread them.
const workerFlows = 64

func workersCase(d peer.DUT, l load) Case {
	return Case{Name: d.Name, Command: d.Command, Skip: d.Skip, Run: func(ctx context.Context, e *Env) (*result.Sample, error) {
		s, err := e.forward(ctx, &d, bed.Options{}, l)
		if err != nil {
			return nil, err
		}
		return s, workerMetrics(s.Final, s.Metrics)
	}}
}

// Of the case that sends one flow after the other.
const (
	singleFlows = 32
	flowPackets = 500
)

// flowsCase sends flows one after the other and looks which worker has taken
// each.
func flowsCase(d peer.DUT) Case {
	return Case{Name: d.Name, Command: d.Command, Skip: d.Skip, Run: func(ctx context.Context, e *Env) (*result.Sample, error) {
		b, err := bed.New(bed.Options{Drop: true})
		if err != nil {
			return nil, err
		}
		defer b.Close()
		p, err := d.Start(ctx, b, e.DUT)
		if err != nil {
			return nil, err
		}
		var after [][]float64 // each worker's packets after each flow
		for i := range singleFlows {
			_, err := b.Gen.Exec(e.Tools.Path(peer.PktgenName), "-i", "g0", "-f", "tx", "-n", strconv.Itoa(flowPackets), "-R", "50k",
				"-s", fmt.Sprintf("%s:%d", bed.GenIP, 1024+i), "-d", bed.SinkIP+":9")
			if err != nil {
				return nil, err
			}
			now, err := takenBy(ctx, p, float64((i+1)*flowPackets))
			if err != nil {
				return nil, err
			}
			after = append(after, now)
		}
		total, err := e.settle(ctx, b)
		if err != nil {
			return nil, err
		}
		if err := p.Stop(); err != nil {
			return nil, err
		}
		s := &result.Sample{Metrics: map[string]float64{}}
		e.totals(s, b, total)
		flowMetrics(after, s.Metrics)
		if err := bridgeTotals(s, b, total, p.Stdout()); err != nil {
			return nil, err
		}
		return s, workerMetrics(s.Final, s.Metrics)
	}}
}

// takenBy waits until the bridge reports that its workers have taken n packets,
// and returns how many each has.
func takenBy(ctx context.Context, p *peer.Proc, n float64) (each []float64, err error) {
	return each, p.Until(ctx, fmt.Sprintf("report of %.0f packets", n), func() (bool, error) {
		each = nil
		var sum float64
		for _, w := range lastBooks(p.Stdout()).Workers {
			each = append(each, w.Packets)
			sum += w.Packets
		}
		if sum > n {
			return false, fmt.Errorf("the workers took %.0f packets of %.0f that were sent", sum, n)
		}
		return sum == n, nil
	})
}

// lastBooks reads the last whole line.
func lastBooks(stdout string) (b books) {
	lines := strings.Split(stdout, "\n")
	if len(lines) > 1 && json.Unmarshal([]byte(lines[len(lines)-2]), &b) != nil {
		return books{}
	}
	return b
}

// flowMetrics counts the flows of each worker, and those that both had part in.
func flowMetrics(after [][]float64, m map[string]float64) {
	m[mFlows0], m[mFlows1], m[mSplit] = 0, 0, 0
	var last []float64
	for _, now := range after {
		var by []int
		for i, n := range now {
			if len(last) != len(now) && n > 0 || len(last) == len(now) && n > last[i] {
				by = append(by, i)
			}
		}
		switch {
		case len(by) > 1:
			m[mSplit]++
		case slices.Equal(by, []int{0}):
			m[mFlows0]++
		case slices.Equal(by, []int{1}):
			m[mFlows1]++
		}
		last = now
	}
}

func workers() Scenario {
	const one, two = "1 worker", "2 workers"
	const calm = 200e3
	name := func(what, load string) string { return what + ", " + load }
	full, paced := fmt.Sprintf("%d flows, full load", workerFlows), fmt.Sprintf("%d flows, %.0f kpps", workerFlows, calm/1e3)
	single := fmt.Sprintf("2 workers, %d flows one after the other", singleFlows)
	s := Scenario{
		Name:  "workers",
		Title: "Two workers on two cores",
		About: "`--workers 2` gives each worker rings of its own on both interfaces, and the kernel's fan-out by hash spreads the flows. There " +
			"are two cores, and the source, its sending and the kernel's receiving at d0, keeps one of them busy at full load: the second worker shares it. So this cannot " +
			"show twice the packets, only what the second worker takes over and that nothing is lost or counted twice on the way.",
		Warm: shortWarm, Window: shortWindow, QuickWarmup: true, Once: 10 * time.Second,
		Columns: []Column{
			{Metric: mOffered, Head: "offered kpps", Scale: 1e3},
			{Metric: mPPS, Head: "forwarded kpps", Scale: 1e3, Range: true},
			{Metric: mLoss, Head: "loss %", Digits: 1},
			{Metric: mCPU, Head: "CPU %"},
			{Metric: mNanos, Head: "CPU ns/packet"},
			{Metric: mWorker0, Head: "packets of worker 0"},
			{Metric: mWorker1, Head: "of worker 1"},
			{Metric: mFlows0, Head: "flows of worker 0"},
			{Metric: mFlows1, Head: "of worker 1"},
			{Metric: mSplit, Head: "of both"},
			{Metric: mMissing, Head: "unaccounted"},
			{Metric: mBooks, Head: "books off by"},
		},
		Goals: []Goal{
			{Case: single, Metric: mSplit, ZeroMax: true, Text: "every flow is on one worker"},
			{Case: single, Metric: mFlows0, Min: 1, Text: "the first worker has flows"},
			{Case: single, Metric: mFlows1, Min: 1, Text: "the second worker has flows"},
		},
	}
	for _, l := range []string{full, paced} {
		s.Goals = append(s.Goals,
			Goal{Case: name(two, l), Metric: mMissing, ZeroMax: true, Text: name(two, l) + ": every frame is delivered or counted"},
			Goal{Case: name(two, l), Metric: mBooks, ZeroMax: true, Text: name(two, l) + ": the counters add up"})
	}
	s.Cases = func(e *Env) (cases []Case) {
		cores := []int{e.DUT, e.Source}
		for _, l := range []struct {
			name string
			load load
		}{{full, load{Len: 60, Flows: workerFlows}}, {paced, load{Len: 60, Flows: workerFlows, Rate: calm}}} {
			cases = append(cases, workersCase(e.Tools.Workers(name(one, l.name), cores[:1]), l.load),
				workersCase(e.Tools.Workers(name(two, l.name), cores), l.load))
		}
		return append(cases, flowsCase(e.Tools.Workers(single, cores, "--interval", "100ms")))
	}
	return s
}
