package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/cli"
	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/ring/xdp"
)

// plainEnds switches off at all ends what an AF_XDP port cannot carry.
func plainEnds(mtu int) netlab.VethOpts {
	return netlab.VethOpts{MTU: mtu, Offloads: map[string]bool{"tx-checksum-ip-generic": false, "tx-vlan-hw-insert": false, "tx-vlan-stag-hw-insert": false}}
}

// Whatever drivers the two ports have, what goes in at one end comes out at the
// other: every byte, in order, once.
func TestXDPDeliveryIdentical(t *testing.T) {
	netlab.NeedRoot(t)
	for _, tc := range []struct {
		a, b, mode string
		mtu        int
	}{
		{"xdp:p1", "xdp:p2", "native, copy", 1500},
		{"xdp:p1@xdp:mode=generic", "xdp:p2@xdp:mode=generic", "generic, copy", 1500},
		{"xdp:p1@conf:slots=64@xdp:frames=256", "xdp:p2", "native, copy", 1500},
		{"xdp:p1", "p2", "native, copy", 1500},
		{"xdp:p1", "netmap:p2@tpacket:version=3", "native, copy", 3000},
		{"xdp:p1@xdp:multibuf=on", "xdp:p2", "native, copy, multi-buffer", 9000},
		{"xdp:p1@xdp:multibuf=on", "p2", "native, copy, multi-buffer", 9000},
	} {
		t.Run(fmt.Sprintf("%s %s %d", tc.a, tc.b, tc.mtu), func(t *testing.T) {
			r := newRig(t, 2, plainEnds(tc.mtu))
			p := r.startArgs("--json", "-v", "-i", tc.a, "-i", tc.b)
			taps := r.taps()
			there, names := trial(macB, macA, tc.mtu)
			back, _ := trial(macA, macB, tc.mtu)
			exchange(t, taps[0], taps[1], there, names)
			exchange(t, taps[1], taps[0], back, names)
			final := p.stop()
			if n := uint64(len(there) + len(back)); final.Forwarded != n || final.Received != n || final.Dropped != 0 {
				t.Errorf("%d sent, totals %+v", n, final)
			}
			if got := final.Ports[0]; got.Driver != "xdp" || got.Mode != tc.mode {
				t.Errorf("driver %q mode %q, want xdp and %q", got.Driver, got.Mode, tc.mode)
			}
			if !strings.Contains(p.stderr(), tc.mode) {
				t.Errorf("-v does not say %q:\n%s", tc.mode, p.stderr())
			}
		})
	}
}

// Under full load, and stopped in the middle of it, totals add up.
func TestXDPConservation(t *testing.T) {
	netlab.NeedRoot(t)
	r := newRig(t, 2, plainEnds(1500))
	p := r.startArgs("--json", often, "-i", "xdp:p1", "-i", "xdp:p2")
	f := startFlood(t, r.taps()[0])
	p.received(20000)
	final := p.stop()
	f.end()
	if final.Received != final.Forwarded+final.Dropped || final.Forwarded == 0 {
		t.Errorf("totals do not add up: %+v", final)
	}
	sink, err := r.NS("h2").Counters("e2")
	r.ok(err)
	if sink.RxPackets+sink.RxDropped < final.Forwarded {
		t.Errorf("forwarded %d, the other end received %d and dropped %d", final.Forwarded, sink.RxPackets, sink.RxDropped)
	}
}

// A bridge on an interface that has a program ends with 1 and names it; after
// kill -9 nothing is attached, and the next one starts.
func TestXDPTakenAndKilled(t *testing.T) {
	netlab.NeedRoot(t)
	r := newRig(t, 2, plainEnds(1500))
	args := []string{"--json", "-i", "xdp:p1", "-i", "xdp:p2"}
	r.ok(r.NS("dut").Do(func() error {
		other, err := xdp.Open("p1", nil, xdp.Options{Slots: 64})
		if err != nil {
			return err
		}
		if said := r.refused(cli.ExitFail, args...); !strings.Contains(said, "XDP program id ") || !strings.Contains(said, "p1") {
			t.Errorf("with another program there it says %s", said)
		}
		return other.Close()
	}))
	p := r.startArgs(args...)
	attached := func() bool {
		out, err := r.NS("dut").Exec("ip", "link", "show")
		r.ok(err)
		return strings.Contains(out, "xdp")
	}
	if !attached() {
		t.Error("no program is shown while the bridge runs")
	}
	r.ok(p.Process.Kill())
	p.exit()
	if attached() {
		t.Error("a program is attached after kill -9")
	}
	p = r.startArgs(args...)
	taps := r.taps()
	exchange(t, taps[0], taps[1], [][]byte{frame(macB, macA, untagged, 60, 9)}, []string{"after the kill"})
	p.stop()
}

// TCP and UDP from a sender with all offloads on, through a TPACKET port to an
// AF_XDP port: unfinished checksums and super-frames are finished on the way.
// Only what the AF_XDP port receives must be complete.
func TestXDPIperf(t *testing.T) {
	netlab.NeedRoot(t)
	if _, err := exec.LookPath("iperf3"); err != nil {
		t.Skip("iperf3 is not installed: apt-get install iperf3")
	}
	r := newRig(t, 2, netlab.VethOpts{})
	r.ok(r.NS("h2").Offload("e2", map[string]bool{"tx-checksum-ip-generic": false, "tx-vlan-hw-insert": false}))
	iperfRun(t, r, r.startArgs("--json", "-i", "p1", "-i", "xdp:p2"))
}

// What is not possible is refused with what to do instead.
func TestXDPRefused(t *testing.T) {
	netlab.NeedRoot(t)
	r := newRig(t, 2, netlab.VethOpts{Queues: 2})
	for _, tc := range []struct {
		name, args string
		code       int
		want       []string
	}{
		{"queues", "-i xdp:p1 -i xdp:p2", cli.ExitFail, []string{"2 receive queues", "--workers 2", "ethtool -L p1"}},
		{"frames", "-i xdp:p1@xdp:frames=100 -i xdp:p2 --workers 2", cli.ExitFail, []string{"100 frames", "8192"}},
		{"zero-copy", "-i xdp:p1-0@xdp:zerocopy=force -i xdp:p2-0", cli.ExitFail, []string{"zero-copy"}},
		{"conflict", "-i xdp:p1@xdp:zerocopy=force -i xdp:p2@xdp:zerocopy=never", cli.ExitUsage, []string{"xdp:p2", "share memory"}},
		{"option", "-i xdp:p1@xdp:mode=fast -i xdp:p2", cli.ExitUsage, []string{"native"}},
		{"host rings", "-i xdp:p1^ -i xdp:p2", cli.ExitUsage, []string{"host rings"}},
		{"pipe", "-i netmap:p1{1 -i xdp:p2", cli.ExitUsage, []string{"joins interfaces"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			said := r.refused(tc.code, strings.Fields(tc.args)...)
			for _, w := range tc.want {
				if !strings.Contains(said, w) {
					t.Errorf("stderr lacks %q:\n%s", w, said)
				}
			}
		})
	}
}

// Two queues, a worker for each.
func TestXDPTwoWorkers(t *testing.T) {
	netlab.NeedRoot(t)
	o := plainEnds(1500)
	o.Queues = 2
	r := newRig(t, 2, o)
	p := r.startArgs("--json", "--workers", "2", "-i", "xdp:p1", "-i", "xdp:p2")
	taps := r.taps()
	var frames [][]byte
	var names []string
	for i := range 200 { // of one flow, which one queue gets
		frames = append(frames, frame(macB, macA, untagged, 60+i, i))
		names = append(names, fmt.Sprint("frame ", i))
	}
	exchange(t, taps[0], taps[1], frames, names)
	if final := p.stop(); final.Forwarded != uint64(len(frames)) {
		t.Errorf("%d sent, totals %+v", len(frames), final)
	}
}

// asUser makes a command run as nobody, with exactly the given capabilities.
func asUser(c *netlab.Cmd, caps ...uintptr) {
	c.Path = "/proc/self/exe" // the test's own folder may be closed to others
	c.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig:   syscall.SIGKILL,
		Credential:  &syscall.Credential{Uid: 65534, Gid: 65534, NoSetGroups: true},
		AmbientCaps: caps,
	}
}

// The bridge needs three capabilities and no more; each of them that is missing
// is named.
func TestXDPCapabilities(t *testing.T) {
	netlab.NeedRoot(t)
	all := map[string]uintptr{"CAP_NET_RAW": unix.CAP_NET_RAW, "CAP_NET_ADMIN": unix.CAP_NET_ADMIN, "CAP_BPF": unix.CAP_BPF}
	r := newRig(t, 2, plainEnds(1500))
	for without := range all {
		t.Run("without "+without, func(t *testing.T) {
			c := r.NS("dut").Command(os.Args[0], "-i", "xdp:p1", "-i", "xdp:p2")
			var have []uintptr
			for name, n := range all {
				if name != without {
					have = append(have, n)
				}
			}
			asUser(c, have...)
			c.Env = append(os.Environ(), asBridge+"=1")
			var said bytes.Buffer
			c.Stderr = &said
			r.ok(c.Start())
			_ = c.Wait()
			if code := c.ProcessState.ExitCode(); code != cli.ExitFail {
				t.Errorf("exit code %d", code)
			}
			for name := range all {
				if strings.Contains(said.String(), name) != (name == without) {
					t.Errorf("without %s it says: %s", without, said.String())
				}
			}
		})
	}
	exact := func(c *netlab.Cmd) { asUser(c, unix.CAP_NET_RAW, unix.CAP_NET_ADMIN, unix.CAP_BPF) }
	p := r.startWith(exact, "--json", "-i", "xdp:p1", "-i", "xdp:p2")
	taps := r.taps()
	exchange(t, taps[0], taps[1], [][]byte{frame(macB, macA, untagged, 60, 9)}, []string{"with three capabilities"})
	p.stop()
}
