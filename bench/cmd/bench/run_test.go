//go:build linux

package main

import (
	"runtime"
	"testing"

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
