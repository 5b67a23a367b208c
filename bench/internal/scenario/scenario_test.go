//go:build linux

package scenario

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netring/netring/bench/internal/bed"
	"github.com/netring/netring/bench/internal/peer"
	"github.com/netring/netring/bench/internal/result"
)

func newEnv() *Env {
	return &Env{
		Tools: &peer.Tools{Missing: map[string]error{}, BridgeHelp: "  --cpu string"}, Source: 0, DUT: 1,
		Seconds: time.Second, Log: func(string, ...any) {}, Found: map[string]float64{},
	}
}

// A goal or a line that names a case which is not there would never be judged.
func TestGoalsNameCases(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range All() {
		if seen[s.Name] {
			t.Errorf("two scenarios %q", s.Name)
		}
		seen[s.Name] = true
		var names []string
		for _, c := range s.Cases(newEnv()) {
			if slices.Contains(names, c.Name) {
				t.Errorf("%s: two cases %q", s.Name, c.Name)
			}
			names = append(names, c.Name)
		}
		columns := map[string]bool{}
		for _, c := range s.Columns {
			columns[c.Metric] = true
		}
		for _, g := range s.Goals {
			if !slices.Contains(names, g.Case) || g.Against != "" && !slices.Contains(names, g.Against) {
				t.Errorf("%s: goal %q: no case %q or %q in %q", s.Name, g.Text, g.Case, g.Against, names)
			}
			if !columns[g.Metric] {
				t.Errorf("%s: goal %q: metric %q is in no column", s.Name, g.Text, g.Metric)
			}
			if g.Text == "" || g.Min == 0 && g.Max == 0 && !g.ZeroMax {
				t.Errorf("%s: goal %+v has no text or no bound", s.Name, g)
			}
		}
		for _, p := range s.Published {
			if p.What == "" || p.Figure == "" || p.Source == "" || p.Why == "" {
				t.Errorf("%s: published figure without its text: %+v", s.Name, p)
			}
			if p.Case != "" && (!slices.Contains(names, p.Case) || !columns[p.Metric]) || p.Against != "" && !slices.Contains(names, p.Against) {
				t.Errorf("%s: published %q: no case %q or %q, or no column of %q", s.Name, p.What, p.Case, p.Against, p.Metric)
			}
		}
		if s.Plot == nil {
			continue
		}
		for _, l := range s.Plot.Lines {
			if !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, l+",") }) {
				t.Errorf("%s: no case on the line %q", s.Name, l)
			}
		}
	}
}

func TestRunInterleavesAndDropsTheWarmup(t *testing.T) {
	var order []string
	fails := 0
	c := func(name string) Case {
		return Case{Name: name, Run: func(context.Context, *Env) (*result.Sample, error) {
			order = append(order, name)
			if name == "b" && len(order) == 4 {
				fails++
				return nil, errors.New("broken")
			}
			return &result.Sample{Metrics: map[string]float64{"n": float64(len(order))}}, nil
		}}
	}
	s := &Scenario{Name: "s", Cases: func(*Env) []Case { return []Case{c("a"), c("b"), {Name: "c", Skip: "not here"}} }}
	r, err := Run(t.Context(), newEnv(), s, 2)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "b", "a", "b", "a", "b"}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
	if a := r.Row("a").Metric("n"); len(a) != 2 || a[1] != 3 || a[2] != 5 {
		t.Errorf("a: %v, want rounds 1 and 2 without the warm-up", a)
	}
	if b := r.Row("b"); len(b.Samples) != 1 || b.Samples[0].Round != 2 || len(b.Failed) != 1 || fails != 1 {
		t.Errorf("b: %+v, want one failure and the sample of round 2", b)
	}
	if r.Row("c").Skipped == "" || len(r.Failures()) != 0 {
		t.Errorf("c: %+v, failures %v", r.Row("c"), r.Failures())
	}
}

// The warm-up round is measured shortly where a scenario says so, and the
// others as asked; each measurement is announced.
func TestQuickWarmup(t *testing.T) {
	var windows []time.Duration
	var steps [][4]int
	e := newEnv()
	e.Warm, e.Step = time.Second, func(round, rounds, nth, cases int) { steps = append(steps, [4]int{round, rounds, nth, cases}) }
	s := &Scenario{Name: "s", QuickWarmup: true, Cases: func(*Env) []Case {
		return []Case{{Name: "a", Run: func(_ context.Context, e *Env) (*result.Sample, error) {
			windows = append(windows, e.Seconds)
			return &result.Sample{}, nil
		}}}
	}}
	if _, err := Run(t.Context(), e, s, 2); err != nil {
		t.Fatal(err)
	}
	if want := []time.Duration{quickWindow, time.Second, time.Second}; !slices.Equal(windows, want) {
		t.Errorf("windows %v, want %v", windows, want)
	}
	if want := [][4]int{{0, 2, 1, 1}, {1, 2, 1, 1}, {2, 2, 1, 1}}; !slices.Equal(steps, want) {
		t.Errorf("steps %v, want %v", steps, want)
	}
}

func TestRunEndsWhenInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("told to")
	s := &Scenario{Name: "s", Cases: func(*Env) []Case {
		return []Case{{Name: "a", Run: func(ctx context.Context, _ *Env) (*result.Sample, error) {
			cancel(why)
			return nil, context.Cause(ctx)
		}}}
	}}
	if _, err := Run(ctx, newEnv(), s, 5); !errors.Is(err, why) {
		t.Errorf("error %v, want %v", err, why)
	}
}

func TestParsePing(t *testing.T) {
	out := "PING 10.99.0.2\n64 bytes from 10.99.0.2: icmp_seq=1 ttl=64 time=0.062 ms\n64 bytes from 10.99.0.2: icmp_seq=2 ttl=64 time=1.5 ms\nrtt min/avg/max/mdev = 0.1/0.2/0.3/0.4 ms\n"
	got, err := parsePing(out)
	if err != nil || len(got) != 2 || got[0] != 62 || got[1] != 1500 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := parsePing("2 packets transmitted, 0 received\n"); err == nil {
		t.Error("no error without an answer")
	}
	if _, err := parsePing("time=fast ms\n"); err == nil {
		t.Error("no error for a time that is none")
	}
}

func TestIperfMetrics(t *testing.T) {
	m := map[string]float64{}
	tcp := `{"end":{"sum_sent":{"bits_per_second":2e9,"retransmits":7},"sum_received":{"bits_per_second":1.9e9}}}`
	if err := iperfMetrics(tcp, false, m); err != nil || m[mBits] != 1.9e9 || m[mRetransmits] != 7 {
		t.Errorf("TCP: %v, %v", m, err)
	}
	m = map[string]float64{}
	udp := `{"end":{"sum":{"bits_per_second":1e9,"lost_percent":25}}}`
	if err := iperfMetrics(udp, true, m); err != nil || m[mBits] != 0.75e9 || m[mLoss] != 25 {
		t.Errorf("UDP of an older version: %v, %v", m, err)
	}
	for name, out := range map[string]string{
		"no JSON": "iperf3: error", "error": `{"error":"unable to connect"}`, "nothing": `{"end":{}}`,
	} {
		if err := iperfMetrics(out, false, map[string]float64{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestBridgeTotals(t *testing.T) {
	out := `{"type":"interval","dropped_packets":1}
{"type":"final","dropped_packets":40,"ports":[{"tx_packets":0,"tx_doorbells":0},{"tx_packets":600,"tx_doorbells":15}]}
trailing noise
`
	s := &result.Sample{Metrics: map[string]float64{mLost: 40}}
	b := &bed.Bed{}
	if err := bridgeTotals(s, b, nil, out); err != nil {
		t.Fatal(err)
	}
	if s.Metrics[mMissing] != 0 || s.Metrics[mDoorbells] != 0.025 || !strings.Contains(string(s.Final), `"dropped_packets":40`) {
		t.Errorf("%+v, final %s", s.Metrics, s.Final)
	}
	// The interface's own drops cannot be set in an empty bed, so what is left
	// here is what the bridge's count of them adds.
	out = `{"type":"final","dropped_packets":40,"ports":[{"driver":"xdp","rx_drops":{"kernel":30}},{"driver":"tpacket","rx_drops":{"kernel":10}}]}`
	if err := bridgeTotals(s, b, nil, out); err != nil || s.Metrics[mMissing] != 30 {
		t.Errorf("AF_XDP: %+v, %v", s.Metrics, err)
	}
	if err := bridgeTotals(s, b, nil, `{"type":"interval"}`); err == nil {
		t.Error("no error without a final report")
	}
}
