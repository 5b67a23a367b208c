//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/netring/netring/bench/internal/peer"
	"github.com/netring/netring/bench/internal/result"
)

// Names of the cases that stay in memory.
const (
	cPipe     = "pipe, by descriptor"
	cPipeData = "pipe, payload written and read"
	cVALE     = "VALE switch, zero copy between ports of one region"
	cVALECopy = "VALE switch, copy between two regions"
)

const (
	benchTime = 500 * time.Millisecond
	benchUnit = "Mpps" // that the benchmarks report
)

// goBench runs one of the project's Go benchmarks on the DUT's core.
func goBench(t *peer.Tools, name, program, benchmark string) Case {
	var pattern []string
	for _, part := range strings.Split(benchmark, "/") {
		pattern = append(pattern, "^"+part+"$")
	}
	args := []string{"-test.run=^$", "-test.bench=" + strings.Join(pattern, "/"), "-test.benchtime=" + benchTime.String(), "-test.cpu=1"}
	c := Case{Name: name, Command: program + " " + strings.Join(args, " ")}
	if err := t.Missing[program]; err != nil {
		c.Skip = err.Error()
	}
	c.Run = func(ctx context.Context, e *Env) (*result.Sample, error) {
		argv := append([]string{"-c", strconv.Itoa(e.DUT), t.Path(program)}, args...)
		out, err := exec.CommandContext(ctx, "taskset", argv...).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %s", benchmark, err, strings.TrimSpace(string(out)))
		}
		mpps, err := parseBench(string(out), benchmark)
		if err != nil {
			return nil, err
		}
		return &result.Sample{Metrics: map[string]float64{mPPS: mpps * 1e6, mNanos: 1e3 / mpps}}, nil
	}
	return c
}

// parseBench finds what a Go benchmark of this very name reports in Mpps.
func parseBench(out, benchmark string) (float64, error) {
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != benchmark {
			continue
		}
		for i := 2; i+1 < len(f); i += 2 {
			if f[i+1] == benchUnit {
				v, err := strconv.ParseFloat(f[i], 64)
				if err == nil && v <= 0 {
					err = errors.New("must be positive")
				}
				if err != nil {
					return 0, fmt.Errorf("%s: %q: %w", benchmark, line, err)
				}
				return v, nil
			}
		}
	}
	return 0, fmt.Errorf("%s reported no %s", benchmark, benchUnit)
}

func memory() Scenario {
	goal := func(name string, mpps float64) Goal {
		return Goal{Case: name, Metric: mPPS, Min: mpps * 1e6, Text: fmt.Sprintf("%s: at least %g Mpps", name, mpps)}
	}
	return Scenario{
		Name:  "memory",
		Title: "Pipes and switches in memory, 60-byte frames",
		About: "The project's own Go benchmarks, on one core: sender, switch and receiver take turns. No kernel and no network is involved.",
		Warm:  time.Millisecond, Window: benchTime, Each: 400 * time.Millisecond, // a benchmark also looks for its number of rounds
		Columns: []Column{
			{Metric: mPPS, Head: "Mpps", Scale: 1e6, Digits: 1, Range: true},
			{Metric: mNanos, Head: "ns/packet", Digits: 1},
		},
		Goals: []Goal{goal(cPipe, 200), goal(cPipeData, 30), goal(cVALE, 30), goal(cVALECopy, 15)},
		Cases: func(e *Env) []Case {
			return []Case{
				goBench(e.Tools, cPipe, peer.MemBench, "BenchmarkPair/touch=false/slots=256/batch=64"),
				goBench(e.Tools, cPipeData, peer.MemBench, "BenchmarkPair/touch=true/slots=256/batch=64"),
				goBench(e.Tools, cVALE, peer.ValeBench, "BenchmarkForward/swap/1to1"),
				goBench(e.Tools, cVALECopy, peer.ValeBench, "BenchmarkForward/copy/1to1"),
			}
		},
	}
}

func publishedMemory() []Published {
	const vale = "There the switch is in the kernel and its ports belong to processes, which it protects from each other by a copy. Here all are one program, and its " +
		"parts take turns on one core; with ports of one region no payload is copied."
	ours := func(p Published, name string) Published {
		p.Case, p.Metric, p.Scale, p.Digits, p.Unit = name, mPPS, 1e6, 1, " Mpps"
		return p
	}
	return []Published{
		ours(Published{What: "netmap pipes", Figure: "more than 100 Mpps", Source: netmapMan,
			Why: "Between processes and through a system call a batch there, within one program here; no set-up is given there."}, cPipe),
		ours(Published{What: "VALE, short frames, one core", Figure: "about 20 Mpps", Source: valeMan, Why: vale}, cVALECopy),
		ours(Published{What: "the same", Figure: "about 20 Mpps", Source: valeMan, Why: vale}, cVALE),
	}
}
