package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/netring/netring/internal/cli"
	"github.com/netring/netring/internal/netlab"
)

// modes are the variants that forward frames in different ways.
var modes = [][]string{
	{},
	{"--rx-version", "v3"},
	{"--vnet", "off", "--offload", "off"},
	{"--rx-version", "v3", "--vnet", "off", "--offload", "off"},
	{"--mode", "busy"},
	{"--mode", "tick"},
	{"--mode", "interrupt", "--dql=false", "--queue-packets", "0"},
	{"--stage-packets", "4", "--full", "backpressure"},
}

// What goes in at one end comes out at the other: every byte, in order, once,
// and never where it came from.
func TestDeliveryIdentical(t *testing.T) {
	for _, mtu := range []int{1500, 9000} {
		for _, args := range modes {
			t.Run(fmt.Sprintf("mtu %d %s", mtu, strings.Join(args, " ")), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, 2, netlab.VethOpts{MTU: mtu})
				p := r.start(append([]string{"--json"}, args...)...)
				taps := r.taps()
				there, names := trial(macB, macA, mtu)
				back, _ := trial(macA, macB, mtu)
				var both sync.WaitGroup
				for i, frames := range [][][]byte{there, back} {
					both.Go(func() { exchange(t, taps[i], taps[1-i], frames, names) })
				}
				both.Wait()
				final := p.stop()
				empty(t, taps...)
				if n := uint64(len(there) + len(back)); final.Forwarded != n || final.Received != n || final.Dropped != 0 || final.Pending != 0 {
					t.Errorf("%d sent, totals %+v", n, final)
				}
			})
		}
	}
}

// exchange sends frames from one tap and wants them, in order and with nothing
// between them, at the other. A few are under way at a time.
func exchange(t *testing.T, from, to *tap, frames [][]byte, names []string) {
	const window = 32
	for i := range frames {
		if i >= window && !expect(t, to, frames[i-window], names[i-window]) {
			return
		}
		from.send(t, frames[i])
	}
	for i := max(0, len(frames)-window); i < len(frames); i++ {
		if !expect(t, to, frames[i], names[i]) {
			return
		}
	}
}

func expect(t *testing.T, to *tap, want []byte, name string) bool {
	got := to.recv(t, patience)
	if !bytes.Equal(got, want) {
		t.Errorf("%s: %s: got %d bytes %x, want %d bytes %x", to.name, name,
			len(got), got[:min(len(got), 64)], len(want), want[:min(len(want), 64)])
		return false
	}
	return true
}

// flood sends frames from a tap until it is told to stop, and counts.
type flood struct {
	tap  *tap
	sent atomic.Uint64
	stop chan struct{}
	done sync.WaitGroup
}

func startFlood(t *testing.T, w *tap) *flood {
	f := &flood{tap: w, stop: make(chan struct{})}
	one := frame(macB, macA, untagged, 60, 1)
	f.done.Go(func() {
		for {
			select {
			case <-f.stop:
				return
			default:
			}
			if _, err := syscall.Write(w.fd, one); err == nil {
				f.sent.Add(1)
			}
		}
	})
	t.Cleanup(f.end)
	return f
}

// end stops the flood and returns how many frames the kernel took.
func (f *flood) end() {
	select {
	case <-f.stop:
	default:
		close(f.stop)
	}
	f.done.Wait()
}

// Under full load, everything that went in came out or is counted, to the
// frame.
func TestConservationUnderLoad(t *testing.T) {
	for _, args := range modes {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 2, netlab.VethOpts{})
			p := r.start(append([]string{"--json", often}, args...)...)
			f := startFlood(t, r.taps()[0])
			p.received(50000)
			f.end()
			r.totals(p.stop(), f.sent.Load())
		})
	}
}

// totals compares a bridge's final object with what the first host sent and
// the kernel's own counters.
func (r *rig) totals(final *report, sent uint64) {
	r.t.Helper()
	in, err := r.NS("dut").Counters("p1")
	r.ok(err)
	out, err := r.NS("dut").Counters("p2")
	r.ok(err)
	if sent != 0 && final.Received != sent {
		r.t.Errorf("sent %d, received %d (interface: %d)", sent, final.Received, in.RxPackets)
	}
	if final.Received != final.Forwarded+final.Dropped || final.Pending != 0 {
		r.t.Errorf("received %d, forwarded %d, dropped %d (%v), pending %d", final.Received, final.Forwarded, final.Dropped, final.Drops, final.Pending)
	}
	if out.TxPackets != final.Forwarded {
		r.t.Errorf("forwarded %d, the interface sent %d", final.Forwarded, out.TxPackets)
	}
	if final.Forwarded == 0 {
		r.t.Error("nothing was forwarded")
	}
}

// A bridge that is stopped in the middle of the load drains and adds up too.
func TestTermUnderLoad(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, netlab.VethOpts{})
	p := r.start("--json", often)
	f := startFlood(t, r.taps()[0])
	p.received(10000)
	final := p.stop()
	f.end()
	r.totals(final, 0)
	if got := f.sent.Load(); final.Received > got {
		t.Errorf("received %d of %d sent", final.Received, got)
	}
}

// Killed, the bridge leaves nothing behind: a second one starts and forwards.
func TestKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, netlab.VethOpts{})
	p := r.start("--json", often)
	taps := r.taps()
	f := startFlood(t, taps[0])
	p.received(5000)
	r.ok(p.Process.Kill())
	p.exit()
	f.end()
	p = r.start("--json")
	after := frame(macB, macA, untagged, 60, 9)
	taps[0].send(t, after)
	skipTo(t, taps[1], after)
	p.stop()
}

// Down, the link is said to be down once and waited for without using the
// processor; up, traffic goes on.
func TestLinkDownAndUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, netlab.VethOpts{})
	p := r.start("--json", often)
	taps := r.taps()
	one := [][]byte{frame(macB, macA, untagged, 60, 9)}
	exchange(t, taps[0], taps[1], one, []string{"before"})
	f := startFlood(t, taps[0])
	r.ok(r.NS("dut").Down("p2"))
	p.await("link is down")
	p.until("drops for the link", func(r *report) bool { return r.Drops["link"] > 1000 })
	f.end()
	p.until("all that was sent", func(r *report) bool { return r.Received == f.sent.Load()+1 })
	const window = 300 * time.Millisecond
	before := cpuTime(t, p)
	time.Sleep(window) // what is measured is how little is done meanwhile
	if used := cpuTime(t, p) - before; used > window/3 {
		t.Errorf("used %v of the processor in %v with a link down", used, window)
	}
	r.ok(r.NS("dut").Up("p2"))
	p.await("link is up")
	taps[0].send(t, one[0])
	skipTo(t, taps[1], one[0])
	if n := strings.Count(p.stderr(), "link is down"); n != 1 {
		t.Errorf("said %d times that the link is down:\n%s", n, p.stderr())
	}
	final := p.stop()
	if final.Drops["link"] == 0 {
		t.Errorf("no drops for the link: %v", final.Drops)
	}
	if final.Received != final.Forwarded+final.Dropped {
		t.Errorf("totals do not add up: %+v", final)
	}
}

// cpuTime is what a process has used of the processors.
func cpuTime(t *testing.T, p *proc) time.Duration {
	t.Helper()
	d, err := processTime(p.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Two bridges on one interface would deliver frames twice: the second one is
// refused, until the first has ended, in whatever way.
func TestSecondBridge(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, netlab.VethOpts{})
	first := r.startArgs("-i", "p1", "-i", "lagg:p2+p3")
	said := r.refused(cli.ExitFail, "-i", "p3", "-i", "p1")
	if want := fmt.Sprintf("interface p3: another bridge (pid %d)", first.Process.Pid); !strings.Contains(said, want) {
		t.Errorf("the second says %q, want %q in it", said, want)
	}
	r.ok(first.Process.Kill())
	first.exit()
	r.startArgs("--json", "-i", "p3", "-i", "p1").stop()
}

// An interface that is deleted under load ends the bridge with 1 and its name;
// the totals still add up.
func TestInterfaceGone(t *testing.T) {
	for i, name := range []string{"p1", "p2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 2, netlab.VethOpts{})
			p := r.start("--json", often)
			f := startFlood(t, r.taps()[0])
			p.received(5000)
			r.ok(r.NS("dut").Delete(r.port(i)))
			if code := p.exit(); code != cli.ExitFail {
				t.Errorf("exit code %d, want %d", code, cli.ExitFail)
			}
			f.end()
			if s := p.stderr(); !strings.Contains(s, name) || !strings.Contains(s, "gone") {
				t.Errorf("the message does not name %s:\n%s", name, s)
			}
			if final := p.final(); final.Received != final.Forwarded+final.Dropped {
				t.Errorf("totals do not add up: %+v", final)
			}
		})
	}
}

// Two workers keep each flow in order and add up.
func TestTwoWorkers(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, netlab.VethOpts{})
	p := r.start("--json", "--workers", "2")
	taps := r.taps()
	frames, names := trial(macB, macA, 1500)
	// Which worker a frame goes to is the kernel's choice, by its flow; these
	// have none, so all are one flow.
	exchange(t, taps[0], taps[1], frames, names)
	final := p.stop()
	if n := uint64(len(frames)); final.Forwarded != n || final.Received != n {
		t.Errorf("%d sent, totals %+v", n, final)
	}
}

// TCP and UDP with every offload on, over IPv4 and IPv6.
func TestIperf(t *testing.T) {
	if _, err := exec.LookPath("iperf3"); err != nil {
		t.Skip("iperf3 is not installed: apt-get install iperf3")
	}
	for _, args := range [][]string{{}, {"--rx-version", "v3"}, {"--vnet", "off", "--offload", "off"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			iperf(t, args)
		})
	}
}

func iperf(t *testing.T, args []string) {
	o := netlab.VethOpts{}
	if slices.Contains(args, "--vnet") {
		// Without the header nobody could finish what the ends leave open.
		o.Offloads = map[string]bool{"tx-checksum-ip-generic": false, "rx-gro": false}
	}
	r := newRig(t, 2, o)
	iperfRun(t, r, r.start(append([]string{"--json"}, args...)...))
}

// iperfRun sends TCP both ways and UDP over IPv4 and IPv6 through p, and ends it.
func iperfRun(t *testing.T, r *rig, p *proc) {
	for i := range 2 {
		r.ok(r.NS(r.host(i)).AddAddr(r.end(i), fmt.Sprintf("10.9.0.%d/24", i+1)))
		r.ok(r.NS(r.host(i)).AddAddr(r.end(i), fmt.Sprintf("fd00:9::%d/64", i+1)))
	}
	for _, addr := range []string{"10.9.0.2", "fd00:9::2"} {
		for _, load := range [][]string{{"-n", "30M"}, {"-n", "1M", "-u", "-b", "50M"}, {"-n", "30M", "-R"}} {
			server := r.NS("h2").Command("iperf3", "-s", "-1", "--forceflush", "-B", addr)
			var said output
			server.Stdout, server.Stderr = &said, &said
			r.ok(server.Start())
			for end := time.Now().Add(patience); !said.has("listening"); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("iperf3 server does not listen: %s", said.lines())
				}
			}
			client := append([]string{"-c", addr, "--connect-timeout", "3000"}, load...)
			if out, err := r.NS("h1").Exec("iperf3", client...); err != nil {
				t.Fatalf("iperf3 %s: %v\n%s\n%s", strings.Join(client, " "), err, out, p.stderr())
			}
			if err := server.Wait(); err != nil {
				t.Fatalf("iperf3 server: %v\n%s", err, said.lines())
			}
		}
	}
	final := p.stop()
	if final.Received != final.Forwarded+final.Dropped-final.Copied {
		t.Errorf("totals do not add up: %+v", final)
	}
}
