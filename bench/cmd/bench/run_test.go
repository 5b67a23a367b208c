//go:build linux

package main

import (
	"bytes"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/netring/netring/bench/internal/scenario"
)

func TestParseRunRefusesBadValues(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("needs two cores: a run does too")
	}
	for _, args := range [][]string{
		{"--rounds", "4"}, {"--rounds", "0", "--out", "x"}, {"--case", "a"}, {"--window", "1ms"}, {"--source-cpu", "1"},
		{"--dut-cpu", "100000"}, {"--warm", "-1s"}, {"forward60"}, {"--nonsense"},
	} {
		if _, err := parseRun(args, "results"); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
	if o, err := parseRun([]string{"--rounds", "1", "--out", "x", "--case", "a"}, "results"); err != nil || o.out != "x" {
		t.Errorf("trial run: %+v, %v", o, err)
	}
}

func TestChoose(t *testing.T) {
	got, err := choose(scenario.All(), &options{scenario: "^forward"})
	if err != nil || len(got) != 2 {
		t.Errorf("%d scenarios, %v", len(got), err)
	}
	for _, o := range []options{{scenario: "nothing"}, {scenario: "("}, {cases: "("}} {
		if _, err := choose(scenario.All(), &o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

// Fewer rounds than are kept are a trial: no warm-up, and no more rounds where a
// scenario has its own number.
func TestChooseTrial(t *testing.T) {
	got, err := choose([]scenario.Scenario{{Name: "a"}, {Name: "b", Rounds: 10}}, &options{rounds: 1})
	if err != nil || !got[0].NoWarmup || got[0].Rounds != 0 || got[1].Rounds != 1 {
		t.Errorf("trial: %+v, %v", got, err)
	}
	got, err = choose([]scenario.Scenario{{Name: "b", Rounds: 10}}, &options{rounds: minRounds})
	if err != nil || got[0].NoWarmup || got[0].Rounds != 10 {
		t.Errorf("kept: %+v, %v", got, err)
	}
}

// All scenarios together are to take about 45 minutes.
func TestListAddsUp(t *testing.T) {
	var out bytes.Buffer
	list(&out, scenario.All())
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != len(scenario.All())+1 {
		t.Fatalf("%d lines:\n%s", len(lines), &out)
	}
	f := strings.Fields(lines[len(lines)-1])
	total, err := time.ParseDuration(f[1])
	if err != nil || total < 10*time.Minute || total > 50*time.Minute {
		t.Errorf("all take %v, %v; want about 45 minutes", total, err)
	}
}

func TestProgress(t *testing.T) {
	clock := time.Unix(1000, 0)
	cases := func(*scenario.Env) []scenario.Case {
		return []scenario.Case{{Name: "x"}, {Name: "y", Skip: "not here"}}
	}
	second := scenario.Scenario{Name: "b", NoWarmup: true, Warm: time.Second, Window: 2 * time.Second, Each: time.Second, Cases: cases}
	first := second
	first.Name, first.Once = "a", time.Minute
	p := newProgress(nil, []scenario.Scenario{first, second}, &options{rounds: 5}, func() time.Time { return clock })
	p.begin(0)
	if got := p.left(); got != time.Minute+40*time.Second {
		t.Errorf("at the start %v left", got)
	}
	clock = clock.Add(70 * time.Second)
	if got := p.left(); got != 30*time.Second || p.took() != 70*time.Second {
		t.Errorf("later %v left after %v", got, p.took())
	}
	clock = clock.Add(time.Hour) // slower than expected
	if got := p.left(); got != 20*time.Second {
		t.Errorf("late: %v left, want the second scenario's", got)
	}
	p.begin(1)
	if got := p.left(); got != 20*time.Second {
		t.Errorf("in the second scenario %v left", got)
	}
}
