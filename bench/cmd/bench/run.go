//go:build linux

package main

import (
	"cmp"
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
	"github.com/netring/netring/bench/internal/result"
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
	f.IntVar(&o.rounds, "rounds", minRounds, "rounds, besides the warm-up round; fewer than 5 (only with --out) for a trial without one")
	f.DurationVar(&o.window, "window", 0, "length of a measurement; 0 for each scenario's own")
	f.DurationVar(&o.warm, "warm", 0, "how long the load runs before a measurement; 0 for each scenario's own")
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
	case o.window != 0 && (o.window < 100*time.Millisecond || o.window > time.Minute):
		return nil, fmt.Errorf("--window %v: between 100ms and 1m, or 0", o.window)
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
	env := &scenario.Env{Tools: tools, Source: o.source, DUT: o.dut}
	return measure(ctx, env, chosen, o, host.Describe(), host.Versions(ctx, filepath.Dir(dir)))
}

// measure runs the scenarios one after the other and writes down what each gave.
func measure(ctx context.Context, env *scenario.Env, chosen []scenario.Scenario, o *options, h result.Host, versions map[string]string) error {
	var failed []string
	p := newProgress(env, chosen, o, time.Now)
	for i := range chosen {
		s := &chosen[i]
		e := *env
		e.Warm, e.Seconds = cmp.Or(o.warm, s.Warm, scenario.DefaultWarm), cmp.Or(o.window, s.Window, scenario.DefaultWindow)
		e.Found, e.Log = map[string]float64{}, logf
		e.Step = func(round, rounds, nth, cases int) { p.step(i, round, rounds, nth, cases) }
		p.begin(i)
		r, err := scenario.Run(ctx, &e, s, o.rounds)
		if err != nil {
			return err
		}
		r.Host, r.Versions, r.Took = h, versions, p.took().Seconds()
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

func logf(format string, a ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", a...)
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
		if o.rounds < minRounds { // a trial
			s.Rounds, s.NoWarmup = min(s.Rounds, o.rounds), true
		}
		chosen = append(chosen, s)
	}
	if chosen == nil {
		return nil, fmt.Errorf("--scenario %q: matches none; bench list shows them", o.scenario)
	}
	return chosen, nil
}
