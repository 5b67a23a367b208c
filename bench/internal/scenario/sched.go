//go:build linux

package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/netring/netring/bench/internal/bed"
	"github.com/netring/netring/bench/internal/peer"
	"github.com/netring/netring/bench/internal/result"
	"github.com/netring/netring/bench/internal/stats"
)

// pacedStage is a load below every case's capacity, where CPU per packet can be
// compared.
const pacedStage = 200e3

func stageName(packets int, load string) string { return fmt.Sprintf("stage %d, %s", packets, load) }

func stage() Scenario {
	columns := append([]Column{}, forwardColumns...)
	columns = append(columns, Column{Metric: mDoorbells, Head: "doorbells/packet", Digits: 3})
	return Scenario{
		Name:  "stage",
		Title: "Staging: packets per doorbell",
		About: fmt.Sprintf("`--stage-packets` 1, 4, 8, 16 and 64, at full load and at %.0f kpps, where CPU time per packet can be compared. "+
			"A round of the worker ends with a doorbell in any case.", pacedStage/1e3),
		Warm: shortWarm, Window: shortWindow, QuickWarmup: true,
		Columns: columns,
		Cases: func(e *Env) (cases []Case) {
			for _, l := range []struct {
				name string
				rate int
			}{{"full load", 0}, {fmt.Sprintf("%.0f kpps", pacedStage/1e3), pacedStage}} {
				for _, n := range []int{1, 4, 8, 16, 64} {
					d := e.Tools.Bridge(stageName(n, l.name), fmt.Sprintf("--stage-packets=%d", n))
					cases = append(cases, forwardCase(d, bed.Options{}, load{Len: 60, Rate: l.rate}))
				}
			}
			return cases
		},
	}
}

func everything() Scenario {
	const on, off = "everything on", "everything off"
	return Scenario{
		Name:   "everything",
		Title:  "What the mechanisms cost when nothing waits",
		About:  "60-byte frames at full load with staging, dynamic limit, priority and gate on, and with all of them off.",
		Rounds: 10, QuickWarmup: true, // a few percent are to be told apart
		Columns: forwardColumns,
		Goals:   []Goal{{Case: on, Metric: mPPS, Against: off, Min: 0.97, Text: "on at least 0.97 of off"}},
		Cases: func(e *Env) []Case {
			return []Case{
				forwardCase(e.Tools.Bridge(on, "--stage-packets=64", "--dql=true", "--prio-synack=true", "--gate=auto"), bed.Options{}, load{Len: 60}),
				forwardCase(e.Tools.Bridge(off, "--stage-packets=0", "--dql=false", "--prio-synack=false", "--queue-packets=0", "--gate=off"),
					bed.Options{}, load{Len: 60}),
			}
		},
	}
}

const (
	mConns   = "connections_per_second"
	mConn50  = "connect_median_ms"
	connPort = 7777
	// deepQueue keeps the bottleneck's queueing discipline from dropping: what
	// waits there, waits because nothing above it keeps the queue short.
	deepQueue = "64mb"
	// bulkFlows fill the queue together: a single flow keeps no more than a
	// super-frame or two waiting in the first seconds.
	bulkFlows = 16
)

// prioCase has bulk TCP fill the limited egress d1 while the far end opens
// short connections the other way: their SYN|ACK and ACK share the queue with
// the bulk.
func prioCase(d peer.DUT, rate string) Case {
	return Case{
		Name: rate + ": " + d.Name, Command: d.Command, Skip: firstOf(d.Skip, peer.Installed("tc", "iproute2"), peer.Installed("iperf3", "iperf3")),
		Run: func(ctx context.Context, e *Env) (*result.Sample, error) { return e.prioRound(ctx, d, rate) },
	}
}

func (e *Env) prioRound(ctx context.Context, d peer.DUT, rate string) (*result.Sample, error) {
	if err := e.Tools.Missing[peer.Conns]; err != nil {
		return nil, err
	}
	b, err := bed.New(bed.Options{})
	if err != nil {
		return nil, err
	}
	defer b.Close()
	if _, err := b.DUT.Exec("tc", "qdisc", "add", "dev", "d1", "root", "tbf", "rate", rate, "burst", "128kb", "limit", deepQueue); err != nil {
		return nil, err
	}
	dut, err := d.Start(ctx, b, e.DUT)
	if err != nil {
		return nil, err
	}
	srv, err := peer.Start(b.Gen, e.Source, e.Tools.Path(peer.Conns), "--serve", fmt.Sprintf("%s:%d", bed.GenIP, connPort))
	if err != nil {
		return nil, err
	}
	if err := srv.Listens(ctx, b.Gen, connPort); err != nil {
		return nil, err
	}
	const fill = 2 * time.Second // for the bulk flow to fill the queue
	bulk, err := e.startIperf(ctx, b, b.Sink, flow{Parallel: bulkFlows}, e.Source, fill+e.Seconds+time.Second)
	if err != nil {
		return nil, err
	}
	if err := bed.Sleep(ctx, fill); err != nil {
		return nil, err
	}
	cl, err := peer.Start(b.Sink, e.Source, e.Tools.Path(peer.Conns), "--dial", fmt.Sprintf("%s:%d", bed.GenIP, connPort),
		"--seconds", fmt.Sprint(e.Seconds.Seconds()))
	if err != nil {
		return nil, err
	}
	s := &result.Sample{Metrics: map[string]float64{}}
	interval := 50 * time.Millisecond
	rtts, pingErr := e.ping(ctx, b, int(e.Seconds/interval), interval)
	if err := cl.Wait(ctx, e.Seconds+10*time.Second); err != nil {
		return nil, err
	}
	if err := bulk.Wait(ctx, 30*time.Second); err != nil {
		return nil, err
	}
	if err := errors.Join(pingErr, dut.Stop()); err != nil {
		return nil, err
	}
	s.Metrics[mRTT50], s.Metrics[mRTT99] = stats.Percentile(rtts, 50), stats.Percentile(rtts, 99)
	if d.Netring {
		if s.Final, err = lastReport(dut.Stdout()); err != nil {
			return nil, err
		}
	}
	return s, errors.Join(connMetrics(cl.Stdout(), s.Metrics), iperfMetrics(bulk.Stdout(), false, s.Metrics))
}

func connMetrics(out string, m map[string]float64) error {
	var r struct {
		PerSecond float64 `json:"per_second"`
		P50       float64
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return fmt.Errorf("report of conns: %w", err)
	}
	m[mConns], m[mConn50] = r.PerSecond, r.P50
	return nil
}

func prioName(rate, synack, dql string) string {
	return fmt.Sprintf("%s: prio-synack %s, dql %s", rate, synack, dql)
}

func prio() Scenario {
	rates := []string{"100mbit", "1gbit"}
	s := Scenario{
		Name:  "prio",
		Title: "Short connections against bulk TCP on a limited egress",
		About: "d1 is limited by tbf. Sixteen bulk TCP flows from the generator fill it, while the far end opens short connections to the generator, " +
			"eight at a time: their SYN|ACK and ACK wait with the bulk unless they are let past. Ping takes the same way.",
		Warm: time.Millisecond, Window: 1500 * time.Millisecond, NoWarmup: true, Each: 4 * time.Second,
		Columns: []Column{
			{Metric: mConns, Head: "connections/s", Range: true},
			{Metric: mConn50, Head: "median handshake ms", Digits: 2},
			{Metric: mRTT50, Head: "ping median ms", Scale: 1e3, Digits: 2, Range: true},
			{Metric: mBits, Head: "bulk Mbit/s", Scale: 1e6, Range: true},
		},
		Cases: func(e *Env) (cases []Case) {
			for _, rate := range rates {
				cases = append(cases, prioCase(peer.KernelBridge("kernel bridge", false), rate))
				for _, synack := range []string{"off", "on"} {
					for _, dql := range []string{"off", "on"} {
						flag := map[string]string{"off": "false", "on": "true"}
						d := e.Tools.Bridge(fmt.Sprintf("prio-synack %s, dql %s", synack, dql), "--prio-synack="+flag[synack], "--dql="+flag[dql])
						cases = append(cases, prioCase(d, rate))
					}
				}
				rule := fmt.Sprintf("--prio=tcp=%d", connPort)
				cases = append(cases, prioCase(e.Tools.Bridge("both on, and "+rule, rule), rate))
			}
			return cases
		},
	}
	for _, rate := range rates {
		s.Goals = append(s.Goals, Goal{Case: prioName(rate, "on", "on"), Metric: mConns, Against: prioName(rate, "off", "off"), Min: 1.6,
			Text: rate + ": both on, at least 1.6 times the connections of both off"})
	}
	return s
}
