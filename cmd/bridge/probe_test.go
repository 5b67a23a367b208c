package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/netring/netring/internal/netlab"
	"golang.org/x/sys/unix"
)

// probed runs "bridge probe --json -i p1" in the rig.
func probed(t *testing.T, r *rig, how func(*netlab.Cmd)) *probeReport {
	t.Helper()
	c := r.NS("dut").Command(os.Args[0], "probe", "--json", "-i", "p1")
	how(c)
	c.Env = append(os.Environ(), asBridge+"=1")
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	r.ok(c.Start())
	if err := c.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	var p probeReport
	if err := json.Unmarshal(out.Bytes(), &p); err != nil || p.Type != "probe" || p.Interface == nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	return &p
}

func (r *probeReport) find(t *testing.T, feature string) probeFeature {
	t.Helper()
	for _, f := range append(r.Features, r.Interface.Features...) {
		if f.Feature == feature {
			return f
		}
	}
	t.Fatalf("no %q in %+v", feature, r)
	return probeFeature{}
}

// All that the tests use is there, and asking changes nothing about the
// interface.
func TestProbe(t *testing.T) {
	netlab.NeedRoot(t)
	r := newRig(t, 2, netlab.VethOpts{})
	show := func() string {
		out, err := r.NS("dut").Exec("ip", "-d", "link", "show", "p1")
		r.ok(err)
		return out
	}
	before := show()
	p := probed(t, r, func(*netlab.Cmd) {})
	if after := show(); after != before {
		t.Errorf("the interface was\n%s and is\n%s", before, after)
	}
	if len(p.Missing) != 0 {
		t.Errorf("missing capabilities of root: %v", p.Missing)
	}
	for _, f := range p.Features {
		if f.Answer != probeYes {
			t.Errorf("%+v", f)
		}
	}
	if f := p.find(t, "zero-copy"); f.Answer != probeNo {
		t.Errorf("zero-copy on a veth: %+v", f)
	}
	if f := p.find(t, "native mode"); f.Answer != probeYes {
		t.Errorf("native mode on a veth: %+v", f)
	}
	bridge := r.startArgs("--json", "-i", "xdp:p1", "-i", "xdp:p2")
	p = probed(t, r, func(*netlab.Cmd) {})
	if f := p.find(t, "attach"); f.Answer != probeNo || p.Interface.Program == 0 || !strings.Contains(f.Why, "program id") {
		t.Errorf("while a program is attached: %+v %+v", p.Interface, f)
	}
	bridge.stop()
}

// Without privilege it still runs, and names what is missing.
func TestProbeUnprivileged(t *testing.T) {
	netlab.NeedRoot(t)
	r := newRig(t, 2, netlab.VethOpts{})
	p := probed(t, r, func(c *netlab.Cmd) { asUser(c, unix.CAP_NET_RAW) })
	if got := strings.Join(p.Missing, " "); got != "CAP_NET_ADMIN CAP_BPF" {
		t.Errorf("missing %q", got)
	}
	if f := p.find(t, "virtio-net header of 12 bytes"); f.Answer != probeYes {
		t.Errorf("with CAP_NET_RAW: %+v", f)
	}
	for _, name := range []string{"program", "run"} {
		if f := p.find(t, name); f.Answer != probeNo || !strings.Contains(f.Why, "CAP_BPF") || strings.Contains(f.Why, "CAP_NET_RAW is") {
			t.Errorf("without CAP_BPF: %+v", f)
		}
	}
	if f := p.find(t, "native mode, tried on a veth"); f.Answer != probeUntried {
		t.Errorf("without namespaces: %+v", f)
	}
}
