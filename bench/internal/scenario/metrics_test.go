//go:build linux

package scenario

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/netring/netring/bench/internal/result"
)

func TestParseBench(t *testing.T) {
	out := "goos: linux\nBenchmarkForward/swap/1to1 \t 36 \t 34.7 ns/op\t 28.81 Mpps\t 0 B/op\n" +
		"BenchmarkForward/swap/1to1/resident \t 36 \t 86 ns/op\t 11.55 Mpps\t 0 B/op\nPASS\n"
	if v, err := parseBench(out, "BenchmarkForward/swap/1to1"); err != nil || v != 28.81 {
		t.Errorf("%v, %v", v, err)
	}
	for _, out := range []string{"", "BenchmarkX 1 2 ns/op\n", "BenchmarkX 1 0 Mpps\n", "BenchmarkX 1 fast Mpps\n"} {
		if _, err := parseBench(out, "BenchmarkX"); err == nil {
			t.Errorf("%q: no error", out)
		}
	}
}

func TestFlowMetrics(t *testing.T) {
	m := map[string]float64{}
	flowMetrics([][]float64{{500, 0}, {500, 500}, {500, 1000}, {700, 1300}, {1200, 1300}}, m)
	if m[mFlows0] != 2 || m[mFlows1] != 2 || m[mSplit] != 1 {
		t.Errorf("%v", m)
	}
	flowMetrics([][]float64{{250, 250}}, m)
	if m[mFlows0] != 0 || m[mFlows1] != 0 || m[mSplit] != 1 {
		t.Errorf("the first flow on both workers: %v", m)
	}
}

func TestWorkerMetrics(t *testing.T) {
	final := `{"received_packets":1000,"copied_packets":0,"forwarded_packets":900,"dropped_packets":100,"drops":{"kernel":80,"full":20},
		"workers":[{"packets":520},{"packets":400}]}`
	m := map[string]float64{}
	if err := workerMetrics(json.RawMessage(final), m); err != nil || m[mBooks] != 0 || m[mWorker0] != 520 || m[mWorker1] != 400 {
		t.Errorf("%v, %v", m, err)
	}
	for what, final := range map[string]string{
		"a frame counted by no worker": `{"received_packets":10,"forwarded_packets":10,"workers":[{"packets":5},{"packets":4}]}`,
		"a frame counted twice":        `{"received_packets":10,"forwarded_packets":11,"workers":[{"packets":5},{"packets":5}]}`,
	} {
		if err := workerMetrics(json.RawMessage(final), m); err != nil || m[mBooks] != 1 {
			t.Errorf("%s: off by %v, %v", what, m[mBooks], err)
		}
	}
	if err := workerMetrics(nil, m); err == nil {
		t.Error("no error without a report")
	}
}

func TestLastBooks(t *testing.T) {
	b := lastBooks("{\"received_packets\":1}\n{\"received_packets\":2}\n{\"received_pack")
	if b.Received != 2 {
		t.Errorf("%+v, want the last whole line", b)
	}
	for _, s := range []string{"", "{", "noise\n"} {
		if b := lastBooks(s); b.Received != 0 {
			t.Errorf("%q: %+v", s, b)
		}
	}
}

func TestRecvMetrics(t *testing.T) {
	s := &result.Sample{Metrics: map[string]float64{}, Window: &result.Window{
		Links: map[string]result.Link{"g0": {TX: 2e6}}, App: &result.App{Total: 50},
	}}
	if err := recvMetrics(s, 750, 1000); err != nil {
		t.Fatal(err)
	}
	if m := s.Metrics; m[mReceived] != 1.5e6 || m[mLoss] != 25 || m[mNanos] != 0.5e9/1.5e6 {
		t.Errorf("%v", m)
	}
	if err := recvMetrics(s, 0, 0); err == nil {
		t.Error("no error for a source that sent nothing")
	}
}

func TestExpected(t *testing.T) {
	const each = time.Second
	s := Scenario{Warm: 500 * time.Millisecond, Window: time.Second, Each: each, Once: time.Minute}
	for _, c := range []struct {
		what string
		set  func(*Scenario)
		want time.Duration
	}{
		{"with a warm-up round", func(*Scenario) {}, time.Minute + 2*6*2500*time.Millisecond},
		{"without", func(s *Scenario) { s.NoWarmup = true }, time.Minute + 2*5*2500*time.Millisecond},
		{"with a quick one", func(s *Scenario) { s.QuickWarmup = true }, time.Minute + 2*5*2500*time.Millisecond + 2*(each+quickWarm+quickWindow)},
		{"its own rounds", func(s *Scenario) { s.NoWarmup, s.Rounds = true, 3 }, time.Minute + 2*3*2500*time.Millisecond},
	} {
		s := s
		c.set(&s)
		if got := s.Expected(2, 5, 0, 0); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	if got := (&Scenario{NoWarmup: true, Each: each}).Expected(1, 1, 0, 3*time.Second); got != DefaultWarm+3*time.Second+each {
		t.Errorf("a given window: %v", got)
	}
}
