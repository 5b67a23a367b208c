//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/netring/netring/bench/internal/bed"
	"github.com/netring/netring/bench/internal/peer"
	"github.com/netring/netring/bench/internal/procfs"
	"github.com/netring/netring/bench/internal/result"
	"github.com/netring/netring/bench/internal/stats"
)

const (
	mRTT50   = "rtt_median_us"
	mRTT99   = "rtt_p99_us"
	mIdleCPU = "idle_cpu_percent"
	mRSS     = "rss_mib"
)

// ping sends n echo requests from gen to the sink and returns the round-trip
// times in microseconds.
func (e *Env) ping(ctx context.Context, b *bed.Bed, n int, interval time.Duration) ([]float64, error) {
	p, err := peer.Start(b.Gen, e.Source, "ping", "-n", "-c", strconv.Itoa(n), "-i", strconv.FormatFloat(interval.Seconds(), 'f', -1, 64),
		"-W", "1", bed.SinkIP)
	if err != nil {
		return nil, err
	}
	if err := p.Wait(ctx, time.Duration(n)*interval+10*time.Second); err != nil {
		return nil, err
	}
	rtts, err := parsePing(p.Stdout())
	if err == nil && len(rtts) < n*9/10 {
		err = fmt.Errorf("ping: %d answers to %d requests", len(rtts), n)
	}
	return rtts, err
}

// parsePing reads the times of ping's answers, in microseconds.
func parsePing(out string) ([]float64, error) {
	var us []float64
	for line := range strings.Lines(out) {
		_, rest, ok := strings.Cut(line, "time=")
		if !ok {
			continue
		}
		ms, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
		if err != nil {
			return nil, fmt.Errorf("ping: %q: %w", line, err)
		}
		us = append(us, 1e3*ms)
	}
	if us == nil {
		return nil, errors.New("ping: no answer")
	}
	return us, nil
}

const (
	pings        = 200
	pingInterval = 10 * time.Millisecond
)

func latencyCase(d peer.DUT) Case {
	return Case{Name: d.Name, Command: d.Command, Skip: d.Skip, Run: func(ctx context.Context, e *Env) (*result.Sample, error) {
		b, err := bed.New(bed.Options{})
		if err != nil {
			return nil, err
		}
		defer b.Close()
		dut, err := d.Start(ctx, b, e.DUT)
		if err != nil {
			return nil, err
		}
		s := &result.Sample{Metrics: map[string]float64{}}
		m := s.Metrics
		if err := bed.Sleep(ctx, e.Warm); err != nil {
			return nil, err
		}
		if s.Window, err = b.Measure(ctx, e.Seconds, dut.PID()); err != nil {
			return nil, err
		}
		if a := s.Window.App; a != nil {
			m[mIdleCPU] = a.Total
		}
		rtts, err := e.ping(ctx, b, pings, pingInterval)
		if err != nil {
			return nil, err
		}
		m[mRTT50], m[mRTT99] = stats.Percentile(rtts, 50), stats.Percentile(rtts, 99)
		if dut == nil {
			return s, nil
		}
		// Memory counts once the rings have been gone through.
		src, err := e.blast(b, load{Len: 1514})
		if err != nil {
			return nil, err
		}
		if err := bed.Sleep(ctx, e.Warm); err != nil {
			return nil, err
		}
		kib, err := procfs.StatusKiB(dut.PID(), "VmHWM")
		if err != nil {
			return nil, err
		}
		m[mRSS] = float64(kib) / 1024
		return s, errors.Join(src.Stop(), dut.Stop())
	}}
}

func latency() Scenario {
	const kernel, unpinned, profile = "kernel bridge", "netring bridge, not pinned", "netring bridge, --profile latency"
	return Scenario{
		Name:  "latency",
		Title: "Light load: latency, idle CPU and memory",
		About: fmt.Sprintf("%d pings, one every %v, through an otherwise idle forwarder; its CPU time while nothing is sent; its peak "+
			"resident memory after a burst of full load. Both ends of the ping are on the source's core, where the kernel bridge works too; a "+
			"forwarder pinned to the other core has to be woken there, and on a virtual machine waking an idle core is dear.", pings, pingInterval),
		Warm: shortWarm, Window: shortWindow, NoWarmup: true, Each: pings*pingInterval + 1200*time.Millisecond,
		Columns: []Column{
			{Metric: mRTT50, Head: "median RTT us", Range: true},
			{Metric: mRTT99, Head: "p99 RTT us", Range: true},
			{Metric: mIdleCPU, Head: "idle CPU %", Digits: 2},
			{Metric: mRSS, Head: "peak RSS MiB", Digits: 1},
		},
		Goals: []Goal{
			{Case: cNetring, Metric: mRTT50, Against: kernel, Max: 1.5, Text: "median RTT at most 1.5 times the kernel bridge's"},
			{Case: unpinned, Metric: mRTT50, Against: kernel, Max: 1.5, Text: "the same, not pinned"},
			{Case: profile, Metric: mRTT50, Against: kernel, Max: 1.5, Text: "the same, --profile latency"},
			{Case: profile, Metric: mIdleCPU, Max: 1, Text: "idle CPU at most 1 %, --profile latency"},
			{Case: cNetring, Metric: mIdleCPU, Max: 1, Text: "idle CPU at most 1 %"},
			{Case: cNetring, Metric: mRSS, Max: 96, Text: "resident memory at most 96 MiB"},
		},
		Cases: func(e *Env) []Case {
			var cases []Case
			for _, d := range []peer.DUT{
				peer.KernelBridge(kernel, false), e.Tools.Loose(cNetring, true), e.Tools.Loose(unpinned, false),
				e.Tools.Loose(profile, true, "--profile=latency"),
				e.Tools.Loose("netring bridge, V3 blocks", true, "--rx-version=v3"),
				e.Tools.VnetFwd(cVnetFwd), Testpmd(e), e.Tools.Gopacket(cGopacket, true),
			} {
				cases = append(cases, latencyCase(d))
			}
			return cases
		},
	}
}
