package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/netring/netring/internal/netlab"
)

// demo runs the demonstration as a user would.
func demo(t *testing.T, args ...string) []byte {
	t.Helper()
	netlab.NeedNet(t)
	c := exec.Command(os.Args[0], append([]string{"demo"}, args...)...)
	c.Env = append(os.Environ(), asBridge+"=1")
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		t.Fatalf("demo %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out.Bytes()
}

// Four counts that are made independently agree, at a rate that any machine
// manages.
func TestDemo(t *testing.T) {
	var r demoResult
	out := demo(t, "--json", "--seconds", "0.5", "--rate", "20000", "--size", "1000")
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	if r.Sent == 0 || r.Sent != r.Forwarded || r.Sent != r.Received || r.Sent != r.GenTX || r.Sent != r.SinkRX {
		t.Errorf("sent %d (kernel: %d), forwarded %d, received %d (kernel: %d)", r.Sent, r.GenTX, r.Forwarded, r.Received, r.SinkRX)
	}
	if r.Lost != 0 || r.Duplicate != 0 || r.Reordered != 0 || len(r.Drops) != 0 {
		t.Errorf("lost %d, duplicate %d, reordered %d, drops %v", r.Lost, r.Duplicate, r.Reordered, r.Drops)
	}
	for _, key := range []string{"sent_packets", "forwarded_packets", "received_packets", "lost_packets", "forwarded_pps", "bits_per_second"} {
		if !bytes.Contains(out, []byte(`"`+key+`"`)) {
			t.Errorf("no key %s in %s", key, out)
		}
	}
}

// Overloaded, what is missing is what was counted as dropped.
func TestDemoOverload(t *testing.T) {
	var r demoResult
	if err := json.Unmarshal(demo(t, "--json", "--seconds", "0.5", "--rate", "0"), &r); err != nil {
		t.Fatal(err)
	}
	var dropped uint64
	for _, n := range r.Drops {
		dropped += n
	}
	if r.Sent != r.Forwarded+dropped || r.Forwarded != r.SinkRX {
		t.Errorf("sent %d, forwarded %d, dropped %v, arrived %d", r.Sent, r.Forwarded, r.Drops, r.SinkRX)
	}
}

func TestDemoTable(t *testing.T) {
	out := string(demo(t, "--seconds", "0.2", "--rate", "5000"))
	for _, want := range []string{"sent", "forwarded", "received", "lost"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}
