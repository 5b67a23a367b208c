//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/netring/netring/bench/internal/host"
	"github.com/netring/netring/bench/internal/peer"
	"github.com/netring/netring/bench/internal/scenario"
)

// options of "bench run".
type options struct {
	scenario, cases string
	rounds          int
	window, warm    time.Duration
	source, dut     int
	out, lock       string
}

const minRounds = 5 // fewer are refused unless the results go elsewhere

func parseRun(args []string, results string) (*options, error) {
	o := &options{}
	f := pflag.NewFlagSet("bench run", pflag.ContinueOnError)
	f.SortFlags = false
	f.StringVar(&o.scenario, "scenario", "", "regular expression of the scenarios to run; all if empty")
	f.StringVar(&o.cases, "case", "", "regular expression of the cases to run; all if empty (only with --out)")
	f.IntVar(&o.rounds, "rounds", minRounds, "rounds, besides the warm-up round")
	f.DurationVar(&o.window, "window", 2*time.Second, "length of a measurement")
	f.DurationVar(&o.warm, "warm", 700*time.Millisecond, "how long the load runs before a measurement")
	f.IntVar(&o.source, "source-cpu", 0, "core of the source and the sink's programs")
	f.IntVar(&o.dut, "dut-cpu", 1, "core of the device under test")
	f.StringVar(&o.out, "out", results, "folder for the results")
	f.StringVar(&o.lock, "lock", filepath.Join(os.TempDir(), "netring-bench.lock"), "file that keeps two runs on a machine apart")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil, errUsage
		}
		return nil, fmt.Errorf("%w; see bench run --help", err)
	}
	elsewhere := f.Changed("out")
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("bench run takes no argument %q: choose scenarios with --scenario", f.Arg(0))
	case o.rounds < 1 || o.rounds < minRounds && !elsewhere:
		return nil, fmt.Errorf("--rounds %d: at least %d for results that are kept; with --out DIR at least 1", o.rounds, minRounds)
	case o.cases != "" && !elsewhere:
		return nil, errors.New("--case: results that are kept have all cases; give --out DIR too")
	case o.window < 100*time.Millisecond || o.window > time.Minute:
		return nil, fmt.Errorf("--window %v: between 100ms and 1m", o.window)
	case o.warm < 0 || o.warm > time.Minute:
		return nil, fmt.Errorf("--warm %v: between 0 and 1m", o.warm)
	case o.source < 0 || o.dut < 0 || o.source == o.dut || o.source >= runtime.NumCPU() || o.dut >= runtime.NumCPU():
		return nil, fmt.Errorf("--source-cpu %d, --dut-cpu %d: two different cores of the %d there are", o.source, o.dut, runtime.NumCPU())
	}
	return o, nil
}

func run(ctx context.Context, args []string) error {
	dir, err := benchDir()
	if err != nil {
		return err
	}
	o, err := parseRun(args, filepath.Join(dir, "results"))
	if err != nil {
		return err
	}
	chosen, err := choose(scenario.All(), o)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("bench run needs root: it makes network namespaces, loads an XDP program and pins programs to cores")
	}
	logf := func(format string, a ...any) {
		fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", a...)
	}
	logf("building")
	tools, err := peer.Build(ctx, dir)
	if err != nil {
		return err
	}
	if err := tools.Missing[peer.BridgeName]; err != nil && o.out == filepath.Join(dir, "results") {
		return fmt.Errorf("results without netring are not kept (--out DIR measures the others alone): %w", err)
	}
	unlock, err := host.Lock(ctx, o.lock, func() { logf("another run holds %s: waiting", o.lock) })
	if err != nil {
		return err
	}
	defer unlock()
	restore, err := peer.HugePages()
	if err != nil {
		return err
	}
	defer restore()
	var failed []string
	h, versions := host.Describe(), host.Versions(ctx, filepath.Dir(dir))
	for i := range chosen {
		s := &chosen[i]
		env := &scenario.Env{
			Tools: tools, Source: o.source, DUT: o.dut, Warm: o.warm, Seconds: o.window, Log: logf,
			Found: map[string]float64{},
		}
		r, err := scenario.Run(ctx, env, s, o.rounds)
		if err != nil {
			return err
		}
		r.Host, r.Versions = h, versions
		name, err := r.Save(o.out)
		if err != nil {
			return fmt.Errorf("save results: %w", err)
		}
		logf("%s written", name)
		failed = append(failed, r.Failures()...)
	}
	if failed != nil {
		return fmt.Errorf("no round succeeded of %s", strings.Join(failed, "; "))
	}
	return nil
}

// choose keeps the scenarios and cases that the user asked for.
func choose(all []scenario.Scenario, o *options) ([]scenario.Scenario, error) {
	want, err := regexp.Compile(o.scenario)
	if err != nil {
		return nil, fmt.Errorf("--scenario: %w", err)
	}
	wantCase, err := regexp.Compile(o.cases)
	if err != nil {
		return nil, fmt.Errorf("--case: %w", err)
	}
	var chosen []scenario.Scenario
	for _, s := range all {
		if !want.MatchString(s.Name) {
			continue
		}
		cases := s.Cases
		s.Cases = func(e *scenario.Env) (kept []scenario.Case) {
			for _, c := range cases(e) {
				if wantCase.MatchString(c.Name) {
					kept = append(kept, c)
				}
			}
			return kept
		}
		if o.rounds < s.Rounds && o.out != "" && o.rounds < minRounds {
			s.Rounds = o.rounds // a trial
		}
		chosen = append(chosen, s)
	}
	if chosen == nil {
		return nil, fmt.Errorf("--scenario %q: matches none; bench list shows them", o.scenario)
	}
	return chosen, nil
}
