package gate

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/netlab"
)

const holderEnv = "NETRING_GATE_HOLDER"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(holderEnv) != "":
		os.Exit(hold())
	case os.Getenv(insideEnv) != "":
		os.Exit(m.Run())
	}
	netlab.Main(m)
}

// load loads the gate, or skips the test where that is forbidden.
func load(t testing.TB) *XDP {
	t.Helper()
	g, err := LoadXDP()
	var pe *PrivilegeError
	if errors.As(err, &pe) {
		t.Skipf("%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

func frame(etherType uint16) []byte {
	f := make([]byte, 60)
	binary.BigEndian.PutUint16(f[12:], etherType)
	return f
}

// run sends n frames through the program without an interface and returns the
// last verdict.
func run(t testing.TB, g *XDP, f []byte, n int) uint32 {
	t.Helper()
	ret, err := g.prog.Run(&ebpf.RunOptions{Data: f, Repeat: uint32(n)})
	if errors.Is(err, ebpf.ErrNotSupported) {
		netlab.Skip(t, "needs BPF_PROG_TEST_RUN: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ret
}

func counts(t testing.TB, g *XDP) Counts {
	t.Helper()
	c, err := g.Counts()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestXDPBudget(t *testing.T) {
	g := load(t)
	if got := run(t, g, frame(0x0800), 1000); got != xdpPass {
		t.Errorf("verdict %d before a budget was set, want %d", got, xdpPass)
	}
	if c := counts(t, g); c != (Counts{Passed: 1000}) {
		t.Errorf("counted %+v, want 1000 passed", c)
	}
	// One window that lasts for the test.
	if err := g.SetBudget(100, time.Second); err != nil {
		t.Fatal(err)
	}
	if err := g.window.Put(uint32(0), make([]byte, winSize)); err != nil {
		t.Fatal(err)
	}
	if got := run(t, g, frame(0x0800), 250); got != xdpDrop {
		t.Errorf("verdict %d over the budget, want %d", got, xdpDrop)
	}
	if c := counts(t, g); c != (Counts{Passed: 1100, Dropped: 150}) {
		t.Errorf("counted %+v, want 100 more passed and 150 dropped", c)
	}
	// Control frames have a small budget of their own; what is over is
	// ordinary, and that budget is used up.
	for _, et := range controlTypes {
		if got := run(t, g, frame(et), 1); got != xdpPass {
			t.Errorf("control frame %#x over the budget: verdict %d, want %d", et, got, xdpPass)
		}
	}
	run(t, g, frame(controlTypes[0]), 2*Control)
	want := Counts{Passed: 1100 + Control, Control: Control, Dropped: 150 + 2*Control + uint64(len(controlTypes)) - Control}
	if c := counts(t, g); c != want {
		t.Errorf("counted %+v, want %+v", c, want)
	}
	// The next window starts anew.
	if err := g.SetBudget(5, 10*time.Microsecond); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Millisecond)
	if got := run(t, g, frame(0x0800), 1); got != xdpPass {
		t.Errorf("verdict %d in a new window, want %d", got, xdpPass)
	}
}

// Short windows admit their budget each: what passes is a rate.
func TestXDPRate(t *testing.T) {
	g := load(t)
	if err := g.SetBudget(50, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	runs := uint64(0)
	for ; time.Since(start) < 100*time.Millisecond; runs++ {
		run(t, g, frame(0x0800), 200)
	}
	windows := uint64(time.Since(start)/time.Millisecond) + 1
	if c := counts(t, g); c.Passed > 50*windows || c.Passed < 50*runs {
		t.Errorf("passed %d in %d runs of 200 packets and %d windows of 50", c.Passed, runs, windows)
	}
}

func TestXDPBudgetRefused(t *testing.T) {
	g := load(t)
	for _, v := range []struct {
		n int
		w time.Duration
	}{{-1, time.Millisecond}, {1, 0}, {1, -time.Second}, {1, time.Minute}} {
		if err := g.SetBudget(v.n, v.w); err == nil {
			t.Errorf("%d packets in %v were accepted", v.n, v.w)
		}
	}
}

// attached returns the interface's XDP state.
func attached(t testing.TB, ns *netlab.NS, name string) *netlink.LinkXdp {
	t.Helper()
	l, err := ns.Netlink().LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return l.Attrs().Xdp
}

func pair(t *testing.T) (ns *netlab.NS, index int) {
	t.Helper()
	lab := netlab.Setup(t, "gen", "dut")
	lab.Pair(t, "gen", "g0", "dut", "d0", netlab.VethOpts{})
	index, err := lab.NS("dut").Index("d0")
	if err != nil {
		t.Fatal(err)
	}
	return lab.NS("dut"), index
}

func TestXDPAttach(t *testing.T) {
	g := load(t)
	ns, index := pair(t)
	for range 3 {
		if err := ns.Do(func() error { return g.Attach(index) }); err != nil {
			t.Fatal(err)
		}
		if x := attached(t, ns, "d0"); x == nil || !x.Attached || g.Mode() != "native" {
			t.Errorf("attached: %+v, mode %s; want native", x, g.Mode())
		}
		if err := ns.Do(func() error { return g.Attach(index) }); err == nil {
			t.Error("attached twice")
		}
		if err := errors.Join(g.Detach(), g.Detach()); err != nil {
			t.Fatal(err)
		}
		if x := attached(t, ns, "d0"); x != nil && x.Attached || g.Mode() != "off" {
			t.Errorf("after Detach: %+v, mode %s", x, g.Mode())
		}
	}
}

func TestXDPGeneric(t *testing.T) {
	g := load(t)
	lab := netlab.Setup(t, "dut")
	ns := lab.NS("dut")
	var index int
	err := ns.Do(func() error {
		a := netlink.NewLinkAttrs()
		a.Name = "br0"
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: a}); err != nil {
			return err
		}
		var err error
		if index, err = ns.Index("br0"); err != nil {
			return err
		}
		return g.Attach(index)
	})
	if err != nil {
		t.Fatal(err)
	}
	if g.Mode() != "generic" {
		t.Errorf("mode %s on a device without XDP, want generic", g.Mode())
	}
}

func TestXDPBusy(t *testing.T) {
	g := load(t)
	ns, index := pair(t)
	other, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "Dual MIT/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, mode := range []link.XDPAttachFlags{link.XDPDriverMode, link.XDPGenericMode} {
		var l link.Link
		if err := ns.Do(func() (err error) {
			l, err = link.AttachXDP(link.XDPOptions{Program: other, Interface: index, Flags: mode})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		info, err := other.Info()
		if err != nil {
			t.Fatal(err)
		}
		id, _ := info.ID()
		err = ns.Do(func() error { return g.Attach(index) })
		var be *BusyError
		if !errors.As(err, &be) || be.Program != uint32(id) || be.Name != "d0" || !errors.Is(err, unix.EBUSY) {
			t.Errorf("mode %d: %v; want a BusyError with program %d on d0", mode, err, id)
		}
		if x := attached(t, ns, "d0"); x == nil || x.ProgId != uint32(id) {
			t.Errorf("mode %d: the other program is gone: %+v", mode, x)
		}
		_ = l.Close()
	}
}

func TestXDPGone(t *testing.T) {
	g := load(t)
	ns, _ := pair(t)
	if err := ns.Do(func() error { return g.Attach(1 << 20) }); err == nil {
		t.Error("attached to an interface that is not there")
	}
	if g.Mode() != "off" {
		t.Errorf("mode %s", g.Mode())
	}
}

// Nothing stays attached when the process is killed.
func TestXDPKilled(t *testing.T) {
	_ = load(t)
	ns, index := pair(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), holderEnv+"=1")
	c.ExtraFiles = []*os.File{w, os.NewFile(uintptr(dup(t, ns.FD())), "ns")}
	c.Args = []string{"holder", string(rune('0' + index))}
	if index > 9 {
		t.Fatalf("interface index %d", index)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	var b [64]byte
	if n, err := r.Read(b[:]); err != nil || string(b[:n]) != "on" {
		t.Fatalf("holder: %q, %v", b[:n], err)
	}
	if x := attached(t, ns, "d0"); x == nil || !x.Attached {
		t.Fatalf("holder has not attached: %+v", x)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	// The kernel drops the link's last reference from a work queue.
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if x := attached(t, ns, "d0"); x == nil || !x.Attached {
			return
		} else if time.Now().After(end) {
			t.Fatalf("still attached after the process was killed: %+v", x)
		}
	}
}

func dup(t *testing.T, fd int) int {
	t.Helper()
	n, err := unix.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// hold is the process that TestXDPKilled kills: it attaches the gate and waits.
func hold() int {
	out := os.NewFile(3, "pipe")
	err := unix.Setns(4, unix.CLONE_NEWNET)
	var g *XDP
	if err == nil {
		g, err = LoadXDP()
	}
	if err == nil {
		err = g.Attach(int(os.Args[1][0] - '0'))
	}
	if err != nil {
		_, _ = out.WriteString(err.Error())
		return 1
	}
	_, _ = out.WriteString("on")
	_ = out.Close()
	select {}
}

func TestPrivilege(t *testing.T) {
	if netlab.Root() {
		t.Skip("root may load programs; this is for others")
	}
	_, err := LoadXDP()
	if err == nil {
		t.Skip("this user may load programs")
	}
	var pe *PrivilegeError
	if !errors.As(err, &pe) || !errors.Is(err, os.ErrPermission) {
		t.Errorf("error %v, want a PrivilegeError", err)
	}
}

// What a packet costs that the gate drops, and one that it passes.
func BenchmarkXDP(b *testing.B) {
	for _, v := range []struct {
		name   string
		budget int
	}{{"drop", 0}, {"pass", 1 << 30}} {
		b.Run(v.name, func(b *testing.B) {
			g := load(b)
			if err := g.SetBudget(v.budget, time.Millisecond); err != nil {
				b.Fatal(err)
			}
			f := frame(0x0800)
			if _, _, err := g.prog.Benchmark(f, b.N, b.ResetTimer); err != nil {
				b.Fatal(err)
			}
		})
	}
}

func TestSoftnetParse(t *testing.T) {
	s := &softnet{cpus: []int{1, 3}, last: make([]struct{ processed, dropped uint32 }, 2)}
	for _, v := range []struct {
		text               string
		processed, dropped uint64
	}{
		{"0000000a 00000001 0 0\n00000010 00000002 0 0\n", 16, 2},                                             // no column for the core
		{"0000000a 1 0 0 0 0 0 0 0 0 0 0 00000000 0 0\n00000010 2 0 0 0 0 0 0 0 0 0 0 00000003 0 0\n", 32, 4}, // core 1 is offline
		{"fffffff0 3 0\nfffffff0 00000002\n", 1<<32 - 16 + 16, 4},
		{"0 0 0\n00000005 00000003\n", 1<<32 + 21, 5}, // wrapped
		{"", 1<<32 + 21, 5},
		{"\n\n", 0, 0},
	} {
		if v.text == "\n\n" { // whatever it is, it ends
			s.parse([]byte(v.text))
			continue
		}
		s.parse([]byte(v.text))
		if s.processed != v.processed || s.dropped != v.dropped {
			t.Errorf("after %q: %d processed, %d dropped; want %d, %d", v.text, s.processed, s.dropped, v.processed, v.dropped)
		}
	}
}
