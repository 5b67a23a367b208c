//go:build linux

package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/netring/netring/bench/internal/bed"
	"github.com/netring/netring/bench/internal/peer"
	"github.com/netring/netring/bench/internal/result"
)

// The forwarders of the overload scenario; cases are these with ", N times
// capacity" after them.
const (
	cGate     = "netring bridge, gate auto"
	cNoGate   = "netring bridge, gate off"
	cNice     = "netring bridge, gate off, nice -20"
	cElsewhre = "netring bridge, gate off, softirq on the source's core"
)

var overloads = []int{1, 2, 4}

// overloadWarm is long enough for a bridge to find out that it is overloaded,
// and then how much it can take.
const overloadWarm = 1500 * time.Millisecond

// overload is the source's load at a rate: frames without skbs, as four times
// the capacity is more than a sender of packets offers to an interface with an
// XDP program.
func overload(rate float64) load { return load{Len: 60, Rate: int(rate), Live: true} }

func overloadName(forwarder string, times int) string {
	return fmt.Sprintf("%s, %d times capacity", forwarder, times)
}

// capacity finds the load that a forwarder just carries with less than 5 %
// loss: the offered rate grows by a seventh at a time until two in a row are too
// much. A rate has three tries, since disturbances only ever take away. It is
// found once per run and bed.
func (e *Env) capacity(ctx context.Context, key string, d *peer.DUT, o bed.Options) (float64, error) {
	if c := e.Found[key]; c != 0 {
		return c, nil
	}
	const tries = 3
	short := *e
	short.Warm, short.Seconds = e.Warm/2, e.Seconds/2
	best, failed := 0.0, 0
	for rate := 150e3; rate < 2e6 && failed < 2*tries; {
		s, err := short.forward(ctx, d, o, overload(rate))
		if err != nil {
			return 0, fmt.Errorf("find the capacity: %w", err)
		}
		if failed++; s.Metrics[mPPS] >= 0.95*rate {
			best, failed = s.Metrics[mPPS], 0
		}
		if failed%tries == 0 {
			rate *= 8.0 / 7
		}
	}
	if best == 0 {
		return 0, fmt.Errorf("find the capacity: %s loses more than 5 %% of the least load", d.Name)
	}
	e.Found[key] = best
	e.Log("capacity, %s: %.0f kpps", key, best/1e3)
	return best, nil
}

// overloadCases are the loads for one forwarder. The capacity is that of ours
// on the same bed, so that all get the same loads.
func overloadCases(e *Env, d peer.DUT, key string, o bed.Options) (cases []Case) {
	reference := e.Tools.Bridge(cNetring)
	for _, times := range overloads {
		cases = append(cases, Case{
			Name: overloadName(d.Name, times), Command: d.Command, Skip: firstOf(d.Skip, reference.Skip),
			Run: func(ctx context.Context, e *Env) (*result.Sample, error) {
				c, err := e.capacity(ctx, key, &reference, o)
				if err != nil {
					return nil, err
				}
				return e.forward(ctx, &d, o, overload(c*float64(times)))
			},
		})
	}
	return cases
}

func firstOf(reasons ...string) string {
	for _, r := range reasons {
		if r != "" {
			return r
		}
	}
	return ""
}

func livelock() Scenario {
	s := Scenario{
		Name:  "livelock",
		Title: "Overload with the receive softirq on the forwarder's own core",
		About: "RPS moves d0's receive softirq to the core of the forwarder, which is what an interface with one interrupt on that core " +
			"does. The capacity is what our bridge carries there with less than 5 % loss; the source offers 1, 2 and 4 times that, as far " +
			"as it can. A forwarder that lets the kernel receive packets which it has no time left to take ends in receive livelock. The " +
			"source is the one inside of the kernel (`live`), so d0 receives in NAPI (GRO on), with or without a program. With a gate, what " +
			"it drops is dropped on the source's core, before RPS; the rest crosses to the DUT's core as without.",
		Warm: overloadWarm, QuickWarmup: true,
		Columns: forwardColumns,
		Plot: &Plot{X: "offered, kpps", Y: "forwarded, kpps", XKey: mOffered, YKey: mPPS, XScale: 1e3, YScale: 1e3,
			Lines: []string{cGate, cNoGate, cNice, cElsewhre, cTestpmd, cGopacket}},
		Cases: func(e *Env) []Case {
			here := bed.Options{RPS: 1 << e.DUT}
			var cases []Case
			for _, d := range []peer.DUT{
				e.Tools.Bridge(cGate, "--gate=auto"), e.Tools.Bridge(cNoGate, "--gate=off"),
				e.Tools.Bridge(cNice, "--gate=off", "--nice=-20"),
				Testpmd(e), e.Tools.Gopacket(cGopacket, false),
			} {
				cases = append(cases, overloadCases(e, d, "softirq on the DUT's core", here)...)
			}
			return append(cases, overloadCases(e, e.Tools.Bridge(cElsewhre, "--gate=off"), "softirq on the source's core", bed.Options{})...)
		},
	}
	for _, times := range overloads[1:] {
		for _, c := range []string{cGate, cElsewhre} {
			s.Goals = append(s.Goals, Goal{Case: overloadName(c, times), Metric: mPPS, Against: overloadName(c, 1), Min: 0.95,
				Text: fmt.Sprintf("%s: at %d times capacity at least 0.95 of what it forwards at capacity", c, times)})
		}
	}
	s.Goals = append(s.Goals,
		Goal{Case: overloadName(cNoGate, 4), Metric: mPPS, Against: overloadName(cTestpmd, 4), Min: 3,
			Text: "without a gate, at 4 times capacity at least 3 times testpmd"},
		Goal{Case: overloadName(cGate, 4), Metric: mMissing, ZeroMax: true, Text: "with the gate, at 4 times capacity every frame is delivered or counted"})
	return s
}
