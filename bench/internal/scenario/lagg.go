//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/netring/netring/bench/internal/bed"
	"github.com/netring/netring/bench/internal/peer"
	"github.com/netring/netring/bench/internal/result"
	"github.com/netring/netring/internal/netlab"
)

// laggPort is a port name of the bridge: a group of these interfaces.
func laggPort(options string, members ...string) string {
	return "lagg:" + strings.Join(members, "+") + "@lagg:" + options
}

// laggSkip tells why groups cannot be measured.
func laggSkip(t *peer.Tools) string {
	if s := t.Lacks(); s != "" {
		return s
	}
	if !strings.Contains(t.BridgeHelp, "lagg:") {
		return "this build of the bridge has no lagg: ports"
	}
	return ""
}

// laggEnds puts a second bridge behind the lanes, in the sink's namespace, and
// the far end behind that, so that what took two ways is one flow again:
//
//	gen -- d0 [bridge] d1,d2 == s0,s1 [bridge] e0 -- t0 end
func (e *Env) laggEnds(ctx context.Context, b *bed.Bed, group string) (end *netlab.NS, err error) {
	if end, err = b.Add("end"); err != nil {
		return nil, err
	}
	if err := b.Join(b.Sink, "e0", end, "t0"); err != nil {
		return nil, err
	}
	far, err := peer.Start(b.Sink, e.DUT, e.Tools.Path(peer.BridgeName), "--cpu", fmt.Sprint(e.DUT), "-i", group, "-i", "e0")
	if err != nil {
		return nil, err
	}
	return end, far.Sockets(ctx, b.Sink, append(b.Lanes(), "e0")...)
}

// laggTCPCase sends one TCP flow over two lanes. group is the options of the
// group, "" for a single lane without one.
func laggTCPCase(t *peer.Tools, name, group string, segmentation bool) Case {
	lanes, near, far := 2, laggPort(group, "d1", "d2"), laggPort(group, "s0", "s1")
	if group == "" {
		lanes, near, far = 1, "d1", "s0"
	}
	d := t.BridgeOf(name, []string{"d0", near})
	return Case{Name: name, Command: d.Command, Skip: firstOf(d.Skip, laggSkip(t), peer.Installed("iperf3", "iperf3")),
		Run: func(ctx context.Context, e *Env) (*result.Sample, error) {
			b, err := bed.New(bed.Options{Lanes: lanes, Bare: true, NoSegmentation: !segmentation})
			if err != nil {
				return nil, err
			}
			defer b.Close()
			dut, err := d.Start(ctx, b, e.DUT)
			if err != nil {
				return nil, err
			}
			end, err := e.laggEnds(ctx, b, far)
			if err != nil {
				return nil, err
			}
			if err := b.Address(end, "t0"); err != nil {
				return nil, err
			}
			s := &result.Sample{Metrics: map[string]float64{}}
			if s.Offloads, err = b.Offloads(); err != nil {
				return nil, err
			}
			if err := e.iperf(ctx, b, end, flows[0], e.Source, dut, s); err != nil {
				return nil, err
			}
			if err := dut.Stop(); err != nil {
				return nil, err
			}
			s.Final, err = lastReport(dut.Stdout())
			return s, err
		}}
}

func laggTCPName(what, seg string) string { return fmt.Sprintf("segmentation %s, %s", seg, what) }

func laggTCP() Scenario {
	strides := []int{1, 8, 32, 128}
	s := Scenario{
		Name:  "lagg-tcp",
		Title: "One TCP flow over two ports: the stride",
		About: "Round robin over two links into a second bridge that joins them again; both bridges on the DUT's core, both ends of the " +
			"flow on the source's. The links have no rate of their own, so two cannot be faster than one here: what shows is what " +
			"reordering takes away.",
		Warm: 600 * time.Millisecond, Window: 1200 * time.Millisecond, NoWarmup: true, Each: 900 * time.Millisecond,
		Columns: []Column{
			{Metric: mBits, Head: "Gbit/s", Scale: 1e9, Digits: 2, Range: true},
			{Metric: mRetransmits, Head: "retransmits", Range: true},
		},
		Cases: func(e *Env) (cases []Case) {
			for _, seg := range []string{"off", "on"} {
				cases = append(cases, laggTCPCase(e.Tools, laggTCPName("one link", seg), "", seg == "on"))
				for _, n := range strides {
					what := fmt.Sprintf("stride %d", n)
					cases = append(cases, laggTCPCase(e.Tools, laggTCPName(what, seg), fmt.Sprintf("proto=roundrobin,stride=%d", n), seg == "on"))
				}
			}
			return cases
		},
	}
	for _, seg := range []string{"off", "on"} {
		s.Goals = append(s.Goals, Goal{Case: laggTCPName("stride 32", seg), Metric: mBits, Against: laggTCPName("stride 1", seg), Min: 1,
			Text: "segmentation " + seg + ": stride 32 at least as fast as stride 1"})
	}
	return s
}

const (
	failoverRate = 100e3
	mOutage      = "outage_ms"
)

// failoverCase takes the far end of a link down under load and counts what is
// lost until the group has moved to the other.
func failoverCase(t *peer.Tools, name, group string, flowCount int) Case {
	d := t.BridgeOf(name, []string{"d0", laggPort(group, "d1", "d2")})
	return Case{Name: name, Command: d.Command, Skip: firstOf(d.Skip, laggSkip(t)),
		Run: func(ctx context.Context, e *Env) (*result.Sample, error) {
			b, err := bed.New(bed.Options{Lanes: 2, Drop: true})
			if err != nil {
				return nil, err
			}
			defer b.Close()
			dut, err := d.Start(ctx, b, e.DUT)
			if err != nil {
				return nil, err
			}
			src, err := e.blast(b, load{Len: 60, Rate: failoverRate, Flows: flowCount})
			if err != nil {
				return nil, err
			}
			if err := bed.Sleep(ctx, e.Warm); err != nil {
				return nil, err
			}
			if err := b.Sink.Down("s0"); err != nil {
				return nil, err
			}
			if err := bed.Sleep(ctx, time.Second); err != nil {
				return nil, err
			}
			if err := src.Stop(); err != nil {
				return nil, err
			}
			total, err := e.settle(ctx, b)
			if err != nil {
				return nil, err
			}
			s := &result.Sample{Metrics: map[string]float64{}}
			e.totals(s, b, total)
			s.Metrics[mOutage] = s.Metrics[mLost] / failoverRate * 1e3
			return s, errors.Join(dut.Stop(), bridgeTotals(s, b, total, dut.Stdout()))
		}}
}

func laggFailover() Scenario {
	const failover, balance = "failover, one flow", "loadbalance, 1000 flows"
	return Scenario{
		Name:  "lagg-failover",
		Title: "Outage when a link of a group goes down",
		About: fmt.Sprintf("%.0f kpps over a group of two links; the far end of the first is set down. Outage is the lost packets at that "+
			"rate; with load balancing only the flows of the lost link suffer, so half as many are lost in the same time.", failoverRate/1e3),
		Warm: shortWarm, Window: time.Second, NoWarmup: true,
		Columns: []Column{
			{Metric: mSent, Head: "packets sent"},
			{Metric: mLost, Head: "packets lost", Range: true},
			{Metric: mOutage, Head: "outage ms", Digits: 1, Range: true},
		},
		Goals: []Goal{
			{Case: failover, Metric: mOutage, Max: 100, Text: "outage at most 100 ms"},
			{Case: balance, Metric: mOutage, Max: 100, Text: "load balancing: at most 100 ms"},
		},
		Cases: func(e *Env) []Case {
			return []Case{
				failoverCase(e.Tools, failover, "proto=failover", 1),
				failoverCase(e.Tools, balance, "proto=loadbalance,hash=l3+l4", 1000),
			}
		},
	}
}
