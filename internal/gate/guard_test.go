package gate

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/poll"
)

// insideEnv tells a copy of the test binary that it is in the namespace of d0.
const insideEnv = "NETRING_GATE_INSIDE"

// inside runs the test that calls it in a process of its own in a namespace
// with an interface d0, where a Guard's goroutine is too. It returns the
// interface's index there, and 0 to the outer process, when all is done.
func inside(t *testing.T) int {
	t.Helper()
	if os.Getenv(insideEnv) != "" {
		l, err := netlink.LinkByName("d0")
		if err != nil {
			t.Fatal(err)
		}
		return l.Attrs().Index
	}
	load(t)
	lab := netlab.Setup(t, "gen", "dut")
	lab.Pair(t, "gen", "g0", "dut", "d0", netlab.VethOpts{})
	c := lab.NS("dut").Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), insideEnv+"=1")
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err != nil || !bytes.Contains(out.Bytes(), []byte("--- PASS: "+t.Name())) {
		t.Errorf("in the namespace: %v\n%s", err, &out)
	}
	return 0
}

// rig drives a Guard on a clock of its own, with the kernel's statistics of
// the worker's core made up.
type rig struct {
	*Guard
	t                  *testing.T
	index              int
	softnet            string // a file in place of the kernel's
	processed, backlog uint32
	s                  poll.GateSample
}

func newRig(t *testing.T, index int) *rig {
	g, err := NewGuard("d0", index, []int{0}, poll.GateConfig{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Guard: g, t: t, index: index, softnet: filepath.Join(t.TempDir(), "softnet")}
	r.s.Slots = 1024
	f, err := os.Create(r.softnet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	_ = g.core.close()
	g.core = &softnet{fd: dup(t, int(f.Fd())), cpus: []int{0}, buf: make([]byte, 4096), last: make([]struct{ processed, dropped uint32 }, 1)}
	return r
}

// steps lets n samples pass, 20 ms apart, with so many packets dropped in each
// for which the worker's core had no time.
func (r *rig) steps(n int, drops uint32) {
	r.t.Helper()
	for range n {
		r.s.Now += 20 * time.Millisecond
		r.s.Delivered += 2000
		r.s.Sent += 2000
		r.s.Drops += uint64(drops / 2)
		r.backlog += drops / 2
		r.processed += 4000 + drops/2
		if err := os.WriteFile(r.softnet, fmt.Appendf(nil, "%08x %08x 00000000\n", r.processed, r.backlog), 0o600); err != nil {
			r.t.Fatal(err)
		}
		if err := r.Sample(r.s); err != nil {
			r.t.Fatal(err)
		}
	}
}

// wait waits for the Guard's goroutine.
func (r *rig) wait(what string, cond func(GuardCounts) bool) {
	r.t.Helper()
	for end := time.Now().Add(10 * time.Second); !cond(r.Counts()); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("not %s after 10 s: %+v", what, r.Counts())
		}
	}
}

// program is the ID of the program that the interface has, 0 for none.
func (r *rig) program() uint32 {
	r.t.Helper()
	l, err := netlink.LinkByIndex(r.index)
	if err != nil {
		r.t.Fatal(err)
	}
	if x := l.Attrs().Xdp; x != nil && x.Attached {
		return x.ProgId
	}
	return 0
}

func on(c GuardCounts) bool  { return c.On }
func off(c GuardCounts) bool { return !c.On && c.Mode == "off" }

// The gate is there while there is livelock, and at no other time; never with
// TCP's super-frames.
func TestGuard(t *testing.T) {
	index := inside(t)
	if index == 0 {
		return
	}
	r := newRig(t, index)
	defer r.Close()
	r.steps(100, 0)
	if c := r.Counts(); c.Attaches != 0 || r.program() != 0 {
		t.Fatalf("without livelock: %+v", c)
	}
	r.steps(10, 2000)
	r.wait("on", on)
	if c := r.Counts(); r.program() == 0 || c.Mode != "native" || c.Attaches != 1 || c.Budget != 100 || c.Backlog != 10*1000 {
		t.Errorf("with livelock: program %d, %+v; want mode native and a budget of 100", r.program(), c)
	}
	r.steps(105, 0) // the calm time is 2 s
	r.wait("off", off)
	if r.program() != 0 {
		t.Error("a program is left after the gate came off")
	}
	r.steps(10, 2000)
	r.wait("on again", on)
	r.s.Super++
	r.steps(1, 2000)
	r.wait("off for TCP", off)
	for range 100 {
		r.s.Super++
		r.steps(5, 2000)
	}
	if c := r.Counts(); c.Attaches != 2 || c.Refusals != 0 || r.program() != 0 {
		t.Errorf("with super-frames: %+v, program %d; want no third time", c, r.program())
	}
	r.steps(520, 2000) // a while after the last of them
	r.wait("on without TCP", on)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if r.program() != 0 {
		t.Error("a program is left after Close")
	}
}

// An interface that has a program is left alone.
func TestGuardBusy(t *testing.T) {
	index := inside(t)
	if index == 0 {
		return
	}
	other, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "Dual MIT/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	l, err := link.AttachXDP(link.XDPOptions{Program: other, Interface: index})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := newRig(t, index)
	defer r.Close()
	theirs := r.program()
	r.steps(11, 2000) // of the first one nothing is known
	r.wait("refused", func(c GuardCounts) bool { return c.Refusals == 1 })
	r.steps(200, 2000) // 4 s
	if c := r.Counts(); c.Refusals != 1 || c.Attaches != 0 || r.program() != theirs {
		t.Errorf("%+v, program %d; want the other's, %d, and one try", c, r.program(), theirs)
	}
	r.steps(100, 2000)
	r.wait("refused again", func(c GuardCounts) bool { return c.Refusals == 2 })
	if r.program() != theirs {
		t.Errorf("program %d; want the other's, %d", r.program(), theirs)
	}
}
