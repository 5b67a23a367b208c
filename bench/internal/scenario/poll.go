//go:build linux

package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/netring/netring/bench/internal/bed"
	"github.com/netring/netring/bench/internal/peer"
	"github.com/netring/netring/bench/internal/procfs"
	"github.com/netring/netring/bench/internal/result"
)

const mSpinner = "competitor_cpu_percent"

// burstFloor is burst_min × HZ at their defaults: what forwarding gets whatever
// the competition.
const burstFloor = 16 * 1000

// userFracCase runs a program that never sleeps on the worker's core while the
// source sends at full speed.
func userFracCase(e *Env, percent int) Case {
	d := e.Tools.Bridge(fmt.Sprintf("netring bridge, user_frac %d %%", percent), fmt.Sprintf("--user-frac=%d", percent))
	return Case{Name: d.Name, Command: d.Command, Skip: d.Skip, Run: func(ctx context.Context, e *Env) (*result.Sample, error) {
		b, err := bed.New(bed.Options{Drop: true})
		if err != nil {
			return nil, err
		}
		defer b.Close()
		dut, err := d.Start(ctx, b, e.DUT)
		if err != nil {
			return nil, err
		}
		spin, err := peer.Start(b.DUT, e.DUT, "sh", "-c", "while :; do :; done")
		if err != nil {
			return nil, err
		}
		if _, err := e.blast(b, load{Len: 60}); err != nil {
			return nil, err
		}
		if err := bed.Sleep(ctx, e.Warm); err != nil {
			return nil, err
		}
		s := &result.Sample{Metrics: map[string]float64{}}
		start := time.Now()
		before, _ := procfs.RunTime(spin.PID())
		if s.Window, err = b.Measure(ctx, e.Seconds, dut.PID()); err != nil {
			return nil, err
		}
		after, ok := procfs.RunTime(spin.PID())
		if !ok {
			return nil, fmt.Errorf("the kernel does not tell how long a process ran (CONFIG_SCHED_INFO)")
		}
		s.Metrics[mSpinner] = 100 * float64(after-before) / float64(time.Since(start))
		e.windowMetrics(s, b, &d)
		return s, nil
	}}
}

func userFrac() Scenario {
	fracs := []int{0, 10, 25, 50, 75}
	s := Scenario{
		Name:  "userfrac",
		Title: "CPU left to others under saturation",
		About: "A program that never sleeps runs on the worker's core while the source sends at full speed. " +
			"`--user-frac` promises it a share of the core; forwarding keeps at least burst_min × HZ packets a second.",
		Warm: shortWarm, Window: 1500 * time.Millisecond, QuickWarmup: true,
		Columns: []Column{
			{Metric: mSpinner, Head: "competitor CPU %", Digits: 1, Range: true},
			{Metric: mPPS, Head: "forwarded kpps", Scale: 1e3, Range: true},
			{Metric: mCPU, Head: "bridge CPU %"},
			{Metric: mNanos, Head: "CPU ns/packet"},
		},
		Cases: func(e *Env) (cases []Case) {
			for _, f := range fracs {
				cases = append(cases, userFracCase(e, f))
			}
			return cases
		},
	}
	for _, f := range fracs[1:] {
		name := fmt.Sprintf("netring bridge, user_frac %d %%", f)
		s.Goals = append(s.Goals,
			Goal{Case: name, Metric: mSpinner, Min: float64(f - 5), Text: fmt.Sprintf("user_frac %d: the competitor gets at least %d %%", f, f-5)},
			Goal{Case: name, Metric: mPPS, Min: burstFloor, Text: fmt.Sprintf("user_frac %d: at least %d packets a second are forwarded", f, burstFloor)})
	}
	return s
}

// modes compares when the worker sleeps.
func modes() Scenario {
	return Scenario{
		Name: "modes",
		Warm: shortWarm, Window: shortWindow, QuickWarmup: true,
		Title:   "When to sleep: poll modes under full, medium and light load",
		About:   "Each mode of `--mode` under full load, 100 kpps and 1 kpps of 60-byte frames.",
		Columns: forwardColumns,
		Cases: func(e *Env) (cases []Case) {
			for _, l := range []struct {
				name string
				rate int
			}{{"full load", 0}, {"100 kpps", 100e3}, {"1 kpps", 1e3}} {
				for _, mode := range []string{"interrupt", "tick", "busy", "adaptive"} {
					d := e.Tools.Bridge(fmt.Sprintf("%s, %s", mode, l.name), "--mode="+mode)
					cases = append(cases, forwardCase(d, bed.Options{}, load{Len: 60, Rate: l.rate}))
				}
			}
			return cases
		},
	}
}
