package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/netring/netring/internal/gen"
	"github.com/netring/netring/internal/netlab"
)

// TestSearch: the search finds what a device can do, whatever it is.
func TestSearch(t *testing.T) {
	for _, limit := range []float64{0, 1, 10, 1234, 500e3, 999e3, 2e6} {
		const most = 1e6
		s := newSearch(1)
		done := s.note(most, most <= limit)
		n := 1
		for ; !done; n++ {
			if n > 60 {
				t.Fatalf("limit %v: the search does not end", limit)
			}
			ask := float64(s.next())
			done = s.note(ask, ask <= limit)
		}
		want := min(limit, most)
		if s.best > want || want-s.best > 0.01*most || s.lossless != (most <= limit) {
			t.Errorf("limit %v: found %v after %d trials", limit, s.best, n)
		}
	}
}

func TestMatcher(t *testing.T) {
	for _, c := range []config{{}, {v6: true}, {vlans: []string{"5"}}, {proto: "tcp"}, {proto: "icmp"}, {dst: "10.0.0.9:1000-10.0.0.10:1005"}} {
		c.port, c.function, c.engine, c.threads, c.burst, c.ttl, c.report = "x", "tx", "ring", 1, 1, 64, 1e9
		c.length, c.pattern, c.dstMAC, c.vnet, c.replay, c.bench = "100", "00", "02:00:00:00:00:01", -1, defaultReplay(), defaultBench()
		if c.proto == "" {
			c.proto = "udp"
		}
		p, err := c.plan()
		if err != nil {
			t.Fatal(err)
		}
		b, err := gen.New(p.frames, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		m, buf := newMatcher(&p.frames, 100), make([]byte, 100)
		for range 20 {
			if b.Next(buf, nil); !m.ours(buf) {
				t.Fatalf("%+v: does not know its own frame", c)
			}
		}
		other := bytes.Clone(buf)
		other[m.l3+map[bool]int{true: 9, false: 6}[m.v4]] ^= 0x40
		if m.ours(other) || m.ours(buf[:99]) || m.ours(nil) || m.ours(make([]byte, 100)) || (&matcher{}).ours(nil) {
			t.Errorf("%+v: takes others' frames", c)
		}
	}
}

// bench runs --throughput or --loss-curve over a veth pair.
func bench(t *testing.T, args ...string) (trials []trial, final verdict) {
	t.Helper()
	lab := netlab.Setup(t, "a")
	lab.Pair(t, "a", "a0", "a", "a1", netlab.VethOpts{})
	var out, errs bytes.Buffer
	if err := lab.NS("a").Do(func() error {
		root := newRoot(&out, &errs)
		root.SetArgs(append(args, "-i", "a0", "--rx-port", "a1", "--json"))
		return root.ExecuteContext(context.Background())
	}); err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	for d := json.NewDecoder(&out); d.More(); {
		var raw json.RawMessage
		var x trial
		if err := d.Decode(&raw); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &x); err != nil {
			t.Fatal(err)
		}
		if x.Type == "trial" {
			trials = append(trials, x)
		} else if err := json.Unmarshal(raw, &final); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range trials {
		if x.Sent == 0 || x.Received > x.Sent || x.Lost != x.Sent-x.Received || x.Lost != 0 && x.Tester == 0 {
			t.Errorf("a veth pair loses nothing by itself: %+v", x)
		}
	}
	return trials, final
}

func TestThroughput(t *testing.T) {
	trials, final := bench(t, "--throughput", "--sizes", "64,1518", "--trial", "100ms", "-R", "2k", "--resolution", "10")
	if final.Type != "final" || final.Function != "throughput" || len(final.Results) != 2 || len(trials) < 2 {
		t.Fatalf("%d trials, %+v", len(trials), final)
	}
	for i, r := range final.Results {
		if r.Size != []int{64, 1518}[i] || r.PPS < 1000 || r.PPS > 2100 || r.Bound != boundRate && !r.Tester {
			t.Errorf("%+v", r)
		}
	}
	// As fast as can be: whatever bounds it, the best rate is one that was
	// sent without loss.
	trials, final = bench(t, "--throughput", "--sizes", "64", "--trial", "100ms", "--resolution", "20")
	best := 0.0
	for _, x := range trials {
		if x.Lost == 0 {
			best = max(best, x.PPS)
		}
	}
	if r := final.Results[0]; r.PPS != best || r.Trials != len(trials) || r.Bound != boundSender && r.Bound != boundLoss {
		t.Errorf("%+v, best of %d trials %v", r, len(trials), best)
	}
}

func TestLossCurve(t *testing.T) {
	trials, final := bench(t, "--loss-curve", "--sizes", "128", "--trial", "100ms", "-R", "2k")
	if n := len(final.Curve); n < 2 || n != len(trials) || final.Curve[0].Percent != 100 || final.Curve[1].Percent != 90 {
		t.Fatalf("%+v", final.Curve)
	}
	if c := final.Curve; c[0].Loss == 0 && c[1].Loss == 0 && len(c) != 2 {
		t.Errorf("went on after two trials without loss: %+v", c)
	}
	var out bytes.Buffer
	tt := &tester{job: &job{plan: &plan{config: config{out: &out}}}}
	if err := tt.show(&final); err != nil || strings.Contains(out.String(), "{") {
		t.Errorf("%v, JSON without --json: %q", err, out.String())
	}
}
