package main

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netring/netring/internal/forward"
	"github.com/netring/netring/internal/gate"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/sched"
)

// sample is a wire p1-p2 that received 100 frames at p1, of which 90 got out.
func sample() *forward.Stats {
	in := forward.LinkStats{Name: "p1"}
	in.Rx = forward.Counts{Packets: 96, Bytes: 5760, KernelDrops: 2}
	in.Rx.Drops[ring.DropTruncated] = 1
	out := forward.LinkStats{Name: "p2", Down: true}
	out.Tx = forward.Counts{Packets: 90, Bytes: 5400}
	out.Tx.Drops[ring.DropFull] = 4
	return &forward.Stats{Ports: []forward.PortStats{
		{Name: "p1", Links: []forward.LinkStats{in}, Untaken: 1, Abandoned: 2},
		{Name: "p2", Links: []forward.LinkStats{out}},
	}}
}

func TestReportAddsUp(t *testing.T) {
	r := newReport(sample(), "final", time.Unix(0, 0), 2*time.Second)
	if r.Received != 100 || r.Forwarded != 90 || r.Dropped != 10 || r.Pending != 0 {
		t.Errorf("received %d, forwarded %d, dropped %d, pending %d", r.Received, r.Forwarded, r.Dropped, r.Pending)
	}
	want := map[string]uint64{"kernel": 2, "truncated": 1, "full": 4, "closed": 3}
	for c, n := range want {
		if r.Drops[c] != n {
			t.Errorf("drops %v, want %v", r.Drops, want)
		}
	}
	r.rates(&report{}, 2*time.Second)
	if r.ForwardedPPS != 45 || r.Bits != 5400*8/2 {
		t.Errorf("%v pps, %v bit/s", r.ForwardedPPS, r.Bits)
	}
	var b bytes.Buffer
	zero := newReport(&forward.Stats{Ports: make([]forward.PortStats, 2)}, "interval", time.Unix(0, 0), 0)
	if err := r.text(&b, zero, 2*time.Second); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "p1 > p2") || !strings.Contains(lines[0], "kernel 2, full 4, truncated 1, closed 3") {
		t.Errorf("text:\n%s", b.String())
	}
}

// What a gate drops is received and dropped, and nothing is left over.
func TestReportGate(t *testing.T) {
	s := sample()
	s.Ports[0].Links[0].Gate = &gate.GuardCounts{On: true, Mode: "native", Counts: gate.Counts{Passed: 100, Dropped: 700}}
	r := newReport(s, "final", time.Unix(0, 0), time.Second)
	if r.Received != 800 || r.Forwarded != 90 || r.Dropped != 710 || r.Drops["gate"] != 700 || r.Pending != 0 {
		t.Errorf("received %d, forwarded %d, dropped %d %v, pending %d", r.Received, r.Forwarded, r.Dropped, r.Drops, r.Pending)
	}
	var b bytes.Buffer
	zero := newReport(&forward.Stats{Ports: make([]forward.PortStats, 2)}, "interval", time.Unix(0, 0), 0)
	if err := r.text(&b, zero, time.Second); err != nil || !strings.Contains(b.String(), "kernel 2, gate 700, full 4") {
		t.Errorf("%v, text:\n%s", err, b.String())
	}
}

// The keys of the JSON object are those that docs/bridge.md lists.
func TestReportKeysDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/bridge.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`[a-z_`, ]+) \\|").FindAllStringSubmatch(string(doc), -1) {
		for _, k := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[1], -1) {
			documented = append(documented, k[1])
		}
	}
	b, err := json.Marshal(newReport(sample(), "final", time.Unix(0, 0), time.Second))
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(b, &keys); err != nil {
		t.Fatal(err)
	}
	for k := range keys {
		if !slices.Contains(documented, k) {
			t.Errorf("key %q is not in docs/bridge.md", k)
		}
	}
	for what, v := range map[string]any{"queue": sched.Counts{}, "gate": gateReport{}} {
		b, err = json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var inner map[string]any
		if err := json.Unmarshal(b, &inner); err != nil {
			t.Fatal(err)
		}
		for k := range inner {
			if !bytes.Contains(doc, []byte("`"+k+"`")) {
				t.Errorf("key %q of a %s is not in docs/bridge.md", k, what)
			}
		}
	}
	causes := append(causeNames(), "kernel", "gate")
	for _, k := range documented {
		if _, ok := keys[k]; !ok && !slices.Contains(causes, k) {
			t.Errorf("docs/bridge.md lists %q, which is neither a key nor a cause", k)
		}
	}
	for _, c := range causes {
		if !slices.Contains(documented, c) {
			t.Errorf("cause %q is not in docs/bridge.md", c)
		}
	}
}
