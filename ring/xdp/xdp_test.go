package xdp_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/xdp"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// open opens an interface inside a namespace; the port is closed when the test
// ends.
func open(t testing.TB, ns *netlab.NS, name string, m *xdp.Mem, o xdp.Options) *xdp.Port {
	t.Helper()
	var p *xdp.Port
	err := ns.Do(func() (err error) {
		p, err = xdp.Open(name, m, o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// wait returns when r has a slot for the program, syncing in between; false
// after a second without one.
func wait(t testing.TB, r *ring.Ring) bool {
	t.Helper()
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); {
		if err := r.Sync(); err != nil {
			t.Fatal(err)
		}
		if r.Space() > 0 {
			return true
		}
		ev := int16(unix.POLLIN)
		if r.Dir() == ring.TX {
			ev = unix.POLLOUT
		}
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(r.FD()), Events: ev}}, 10); err != nil && !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
	}
	return false
}

// numbered writes a frame with a sequence number.
func numbered(b []byte, size int, seq uint32) []byte {
	b = b[:size]
	copy(b, "\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x88\xb5")
	for i := 14; i < size; i++ {
		b[i] = byte(i) ^ byte(seq)
	}
	binary.BigEndian.PutUint32(b[14:], seq)
	return b
}

// send puts n numbered frames into r and syncs until all are completed.
func send(t testing.TB, r *ring.Ring, n, size int) {
	t.Helper()
	for seq := uint32(0); seq < uint32(n); {
		if !wait(t, r) {
			t.Fatalf("transmit ring full for a second at frame %d", seq)
		}
		for ; r.Space() > 0 && seq < uint32(n); seq++ {
			r.Slot(r.Head).Len = uint32(len(numbered(r.Buf(r.Head), size, seq)))
			r.Slot(r.Head).Flags = 0
			r.Head++
			r.Cur = r.Head
		}
		if err := r.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(2 * time.Second); r.Pending() > 0; {
		if err := r.Sync(); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d frames not completed", r.Pending())
		}
	}
}

func TestForwardByExchange(t *testing.T) {
	netlab.NeedNet(t)
	netlab.NeedRoot(t)
	l := netlab.Setup(t, "gen", "dut", "sink")
	l.Pair(t, "gen", "g0", "dut", "d0", netlab.VethOpts{})
	l.Pair(t, "dut", "d1", "sink", "s0", netlab.VethOpts{})
	const slots, n = 256, 5000
	m, err := xdp.NewMem(4*slots, 0)
	if err != nil {
		t.Fatal(err)
	}
	gen := open(t, l.NS("gen"), "g0", nil, xdp.Options{Slots: slots, TXOnly: true})
	a := open(t, l.NS("dut"), "d0", m, xdp.Options{Slots: slots})
	b := open(t, l.NS("dut"), "d1", m, xdp.Options{Slots: slots})
	sink := open(t, l.NS("sink"), "s0", nil, xdp.Options{Slots: slots})
	if got := a.Mode(); !got.Native {
		t.Errorf("mode %v, want native on veth", got)
	}
	arx, btx, rx := a.RxRings()[0], b.TxRings()[0], sink.RxRings()[0]
	var received atomic.Uint32
	go func() {
		// send fails the test by Fatal, which must not run here. A window
		// keeps every ring from overflowing.
		tx := gen.TxRings()[0]
		for seq := uint32(0); seq < n; {
			for ; tx.Space() > 0 && seq < min(n, received.Load()+slots/2); seq++ {
				tx.Slot(tx.Head).Len = uint32(len(numbered(tx.Buf(tx.Head), 60+int(seq)%1400, seq)))
				tx.Slot(tx.Head).Flags = 0
				tx.Head++
				tx.Cur = tx.Head
			}
			if tx.Sync() != nil {
				return
			}
			runtime.Gosched()
		}
		for tx.Pending() > 0 && tx.Sync() == nil {
		}
	}()
	want := make([]byte, 2048)
	idle := 0
	for seq := uint32(0); seq < n; {
		if err := arx.Sync(); err != nil {
			t.Fatal(err)
		}
		ring.Move(btx, arx, arx.Space())
		if err := btx.Sync(); err != nil {
			t.Fatal(err)
		}
		if err := rx.Sync(); err != nil {
			t.Fatal(err)
		}
		if rx.Space() == 0 {
			if idle++; idle > 2_000_000 {
				t.Fatalf("stuck at frame %d", seq)
			}
			continue
		}
		idle = 0
		for ; rx.Space() > 0; seq++ {
			if got := rx.Frame(rx.Head); !bytes.Equal(got, numbered(want, 60+int(seq)%1400, seq)) {
				t.Fatalf("frame %d: got %d bytes % x", seq, len(got), got[:min(len(got), 20)])
			}
			rx.Head++
			rx.Cur = rx.Head
		}
		received.Store(seq)
	}
	if got := btx.Stats.Packets.Load(); got == 0 {
		t.Error("no completion counted")
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	if m.Free() != 4*slots {
		t.Errorf("%d of %d frames came back", m.Free(), 4*slots)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := arx.Sync(); !errors.Is(err, ring.ErrClosed) {
		t.Errorf("sync after close: %v", err)
	}
}

func TestErrors(t *testing.T) {
	netlab.NeedNet(t)
	netlab.NeedRoot(t)
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	in := func(name string, o xdp.Options) (p *xdp.Port, err error) {
		derr := l.NS("a").Do(func() error { p, err = xdp.Open(name, nil, o); return nil })
		return p, errors.Join(derr, err)
	}
	if _, err := in("nosuch", xdp.Options{}); !errors.Is(err, ring.ErrNoInterface) {
		t.Errorf("unknown interface: %v", err)
	}
	if _, err := in("a0", xdp.Options{Slots: 3}); err == nil {
		t.Error("3 slots accepted")
	}
	if _, err := in("a0", xdp.Options{Slots: 64, TxSlots: 128}); err == nil {
		t.Error("more transmit than receive slots accepted")
	}
	if _, err := in("a0", xdp.Options{ZeroCopy: xdp.ZeroCopyForce}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("zero-copy on veth: %v", err)
	}
	p := open(t, l.NS("a"), "a0", nil, xdp.Options{Slots: 64})
	_, err := in("a0", xdp.Options{Slots: 64})
	if err == nil || !strings.Contains(err.Error(), "program id") {
		t.Errorf("second opener: %v, want the id of the first one's program", err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	// The kernel takes the memory down later; opening again must wait for it.
	p2, err := in("a0", xdp.Options{Slots: 64})
	if err != nil {
		t.Fatalf("open again: %v", err)
	}
	p2.Close()
}

// A veth copies, so a transmit ring is small unless asked for; what it does not
// need is free for other ports, and Close gives back the rest.
func TestTransmitSlots(t *testing.T) {
	netlab.NeedNet(t)
	netlab.NeedRoot(t)
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	const slots = 2 * xdp.CopySlots
	for _, c := range []struct {
		o    xdp.Options
		want int
	}{
		{xdp.Options{Slots: slots}, xdp.CopySlots},
		{xdp.Options{Slots: 16}, 16},
		{xdp.Options{Slots: slots, TxSlots: slots}, slots},
		{xdp.Options{Slots: slots, TxSlots: 8}, 8},
		{xdp.Options{Slots: slots, TXOnly: true}, slots},
	} {
		m, err := xdp.NewMem(2*slots, 0)
		if err != nil {
			t.Fatal(err)
		}
		p := open(t, l.NS("a"), "a0", m, c.o)
		tx, held := p.TxRings()[0], 0
		for _, r := range slices.Concat(p.RxRings(), p.TxRings()) {
			held += r.Len()
		}
		if tx.Len() != c.want {
			t.Errorf("%+v: %d transmit slots, want %d", c.o, tx.Len(), c.want)
		}
		if got := m.Free(); got != 2*slots-held {
			t.Errorf("%+v: %d frames free, want all but %d", c.o, got, held)
		}
		send(t, tx, 3*slots, 60)
		if err := errors.Join(p.Close(), m.Close()); err != nil {
			t.Fatal(err)
		}
		if got := m.Free(); got != 2*slots {
			t.Errorf("%+v: %d frames free after Close, want %d", c.o, got, 2*slots)
		}
	}
}

func TestHostileSlots(t *testing.T) {
	netlab.NeedNet(t)
	netlab.NeedRoot(t)
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	p := open(t, l.NS("a"), "a0", nil, xdp.Options{Slots: 8})
	tx := p.TxRings()[0]
	for name, spoil := range map[string]func(s *ring.Slot){
		"no such frame":         func(s *ring.Slot) { s.Buf = 1 << 30 },
		"frame of the kernel's": func(s *ring.Slot) { s.Buf = findLent(p) },
		"beyond the frame":      func(s *ring.Slot) { s.Off, s.Len = 2000, 100 },
		"offset wraps":          func(s *ring.Slot) { s.Off, s.Len = 1<<32-1, 100 },
		"empty":                 func(s *ring.Slot) { s.Len = 0 },
	} {
		h := tx.Head
		numbered(tx.Buf(h), 60, 0)
		numbered(tx.Buf(h+1), 60, 1)
		tx.Slot(h).Len, tx.Slot(h+1).Len = 60, 60
		spoil(tx.Slot(h + 1))
		tx.Head += 2
		tx.Cur = tx.Head
		if err := tx.Sync(); !errors.Is(err, ring.ErrSlot) {
			t.Errorf("%s: %v", name, err)
		}
		if tx.Head != h+1 {
			t.Errorf("%s: head %d, want %d: the good slot is sent, the bad one ours", name, tx.Head, h+1)
		}
	}
	for tx.Pending() > 0 {
		if err := tx.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[uint32]bool{}
	for k := tx.Head; k != tx.Tail(); k++ {
		seen[tx.Slot(k).Buf] = true
	}
	if len(seen) != 8 {
		t.Errorf("%d frames in 8 slots", len(seen))
	}
	m := p.Mem()
	p.Close()
	if m.Free() != 16 {
		t.Errorf("%d of 16 frames came back", m.Free())
	}
}

// findLent returns a frame that is in the fill ring: every frame that is not
// in a transmit slot.
func findLent(p *xdp.Port) uint32 {
	tx := p.TxRings()[0]
	mine := map[uint32]bool{}
	for k := range uint32(tx.Len()) {
		mine[tx.Slot(k).Buf] = true
	}
	for f := uint32(0); ; f++ {
		if !mine[f] {
			return f
		}
	}
}

func TestNothingStaysAttached(t *testing.T) {
	netlab.NeedNet(t)
	netlab.NeedRoot(t)
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	p := open(t, l.NS("a"), "a0", nil, xdp.Options{Slots: 8})
	out, err := l.NS("a").Exec("ip", "link", "show", "a0")
	if err != nil || !strings.Contains(out, "xdp") {
		t.Fatalf("no program shown while open: %s %v", out, err)
	}
	p.Close()
	out, err = l.NS("a").Exec("ip", "link", "show", "a0")
	if err != nil || strings.Contains(out, "xdp") {
		t.Fatalf("program still there after Close: %s %v", out, err)
	}
}

func TestInterfaceGone(t *testing.T) {
	netlab.NeedNet(t)
	netlab.NeedRoot(t)
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	p := open(t, l.NS("a"), "a0", nil, xdp.Options{Slots: 8})
	if _, err := l.NS("a").Exec("ip", "link", "set", "a0", "down"); err != nil {
		t.Fatal(err)
	}
	if err := p.RxRings()[0].Refresh(); !errors.Is(err, ring.ErrLinkDown) {
		t.Errorf("down: %v", err)
	}
	if _, err := l.NS("a").Exec("ip", "link", "set", "a0", "up"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.NS("b").Exec("ip", "link", "del", "b0"); err != nil {
		t.Fatal(err)
	}
	if err := p.RxRings()[0].Refresh(); !errors.Is(err, ring.ErrGone) {
		t.Errorf("gone: %v", err)
	}
}

func TestUnprivileged(t *testing.T) {
	netlab.NeedNet(t)
	if netlab.Root() {
		t.Skip("runs as an ordinary user")
	}
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	err := l.NS("a").Do(func() error { _, err := xdp.Open("a0", nil, xdp.Options{}); return err })
	if !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "CAP_BPF") {
		t.Errorf("open without privilege: %v, want one that names CAP_BPF", err)
	}
}

func BenchmarkSend(b *testing.B) {
	netlab.NeedNet(b)
	netlab.NeedRoot(b)
	l := netlab.Setup(b, "a", "b")
	l.Pair(b, "a", "a0", "b", "b0", netlab.VethOpts{})
	tx := open(b, l.NS("a"), "a0", nil, xdp.Options{TXOnly: true}).TxRings()[0]
	b.ReportAllocs()
	for b.Loop() {
		send(b, tx, 1024, 60)
	}
	b.ReportMetric(1024*float64(b.N)/b.Elapsed().Seconds(), "pkts/s")
}
