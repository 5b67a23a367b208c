package xdp_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/mem"
	"github.com/netring/netring/ring/xdp"
)

// Frames from a ring with large buffers are cut for one with small ones, up to
// five; those pass from port to port as they are, one buffer after the other,
// and all memory comes back.
func TestMultiBuffer(t *testing.T) {
	netlab.NeedRoot(t)
	l := netlab.Setup(t, "gen", "dut", "sink")
	o := netlab.VethOpts{MTU: 9000}
	l.Pair(t, "gen", "g0", "dut", "d0", o)
	l.Pair(t, "dut", "d1", "sink", "s0", o)
	const slots = 64
	m, err := xdp.NewMem(4*slots, 0)
	if err != nil {
		t.Fatal(err)
	}
	multi := xdp.Options{Slots: slots, MultiBuffer: true}
	gen := open(t, l.NS("gen"), "g0", nil, xdp.Options{Slots: slots, MultiBuffer: true, TXOnly: true}).TxRings()[0]
	a, b := open(t, l.NS("dut"), "d0", m, multi), open(t, l.NS("dut"), "d1", m, multi)
	sink := open(t, l.NS("sink"), "s0", nil, multi).RxRings()[0]
	if !a.Mode().MultiBuffer {
		t.Errorf("mode %+v", a.Mode())
	}
	rx, tx := a.RxRings()[0], b.TxRings()[0]
	p, q, err := mem.Pair(mem.Options{Slots: 16, BufSize: 16 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(p.Close(), q.Close()) }()
	large := struct{ tx, rx *ring.Ring }{p.TxRings()[0], q.RxRings()[0]}
	want := make([]byte, 9014)
	for seq, size := range []int{60, 1514, 2047, 2048, 2049, 4096, 4097, 8999, 9014, 9014, 60, 9014} {
		numbered(want, size, uint32(seq))
		s := large.tx.Slot(large.tx.Head)
		s.Len, s.Flags = uint32(copy(large.tx.Buf(large.tx.Head), want[:size])), 0
		large.tx.Head++
		large.tx.Cur = large.tx.Head
		if err := errors.Join(large.tx.Sync(), large.rx.Sync(), gen.Sync()); err != nil {
			t.Fatal(err)
		}
		if ring.Move(gen, large.rx, 1) != 1 {
			t.Fatal("no room to send")
		}
		var got []byte
		for len(got) < size {
			for _, r := range []*ring.Ring{gen, rx, tx, sink} {
				if err := r.Sync(); err != nil {
					t.Fatal(err)
				}
			}
			ring.Move(tx, rx, rx.Space())
			if err := tx.Sync(); err != nil {
				t.Fatal(err)
			}
			if sink.Space() == 0 && !wait(t, sink) {
				if rx.Space() != 0 || tx.Pending() != 0 || gen.Pending() != 0 {
					continue
				}
				t.Fatalf("frame %d of %d bytes did not arrive: %d bytes did", seq, size, len(got))
			}
			for ; sink.Space() != 0; sink.Head++ {
				got = append(got, sink.Frame(sink.Head)...)
				if more := sink.Slot(sink.Head).Flags&ring.SlotMoreFrag != 0; more != (len(got) < size) {
					t.Fatalf("frame %d: more %v after %d of %d bytes", seq, more, len(got), size)
				}
			}
			sink.Cur = sink.Head
		}
		if !bytes.Equal(got, want[:size]) {
			t.Fatalf("frame %d of %d bytes differs", seq, size)
		}
	}
	if n := rx.Stats.Packets.Load(); n != 12 {
		t.Errorf("%d frames counted, want 12", n)
	}
	if err := errors.Join(a.Close(), b.Close(), m.Close()); err != nil {
		t.Fatal(err)
	}
	if m.Free() != 4*slots {
		t.Errorf("%d of %d frames came back", m.Free(), 4*slots)
	}
}

// A frame of several slots that is longer than the MTU is refused before any
// part of it goes out: by Sync, and by Move, which counts it. The ring goes on.
func TestMultiBufferTooLong(t *testing.T) {
	netlab.NeedRoot(t)
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{MTU: 4000})
	multi := xdp.Options{Slots: 64, MultiBuffer: true}
	tx := open(t, l.NS("a"), "a0", nil, multi).TxRings()[0]
	rx := open(t, l.NS("b"), "b0", nil, multi).RxRings()[0]
	put := func(parts ...uint32) (first uint32) {
		first = tx.Head
		for i, n := range parts {
			b := tx.Buf(tx.Head)
			numbered(b, max(int(n), 18), uint32(i))
			s := tx.Slot(tx.Head)
			s.Len, s.Flags = n, 0
			if i+1 < len(parts) {
				s.Flags = ring.SlotMoreFrag
			}
			tx.Head++
		}
		tx.Cur = tx.Head
		return first
	}
	const largest = 4000 + 14 + 8
	put(2000, 2014)
	first := put(2000, largest-2000, 1)
	if err := tx.Sync(); !errors.Is(err, ring.ErrTooLarge) || tx.Head != first {
		t.Errorf("one byte too long, at slot %d: %v, head %d", first, err, tx.Head)
	}
	// Its beginning is with the kernel when its length shows.
	put(2000, 2000)
	tx.Slot(first + 1).Flags = ring.SlotMoreFrag
	if err := tx.Sync(); err != nil {
		t.Fatal(err)
	}
	end := put(23)
	if err := tx.Sync(); !errors.Is(err, ring.ErrTooLarge) || tx.Head != end {
		t.Errorf("one byte too long in the end, at slot %d: %v, head %d", end, err, tx.Head)
	}
	put(14)
	p, q, err := mem.Pair(mem.Options{Slots: 16, BufSize: 16 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(p.Close(), q.Close()) }()
	from, to := p.TxRings()[0], q.RxRings()[0]
	for _, n := range []int{largest + 1, 4014} {
		from.Slot(from.Head).Len = uint32(len(numbered(from.Buf(from.Head), n, 7)))
		from.Head++
		from.Cur = from.Head
	}
	if err := errors.Join(from.Sync(), to.Sync()); err != nil {
		t.Fatal(err)
	}
	if n := ring.Move(tx, to, 2); n != 2 || tx.Stats.Drops[ring.DropOversize].Load() != 1 {
		t.Errorf("%d moved, %d dropped as oversize; want 2, 1", n, tx.Stats.Drops[ring.DropOversize].Load())
	}
	for got := 0; got < 3; {
		if err := tx.Sync(); err != nil {
			t.Fatal(err)
		}
		if !wait(t, rx) {
			t.Fatalf("%d frames arrived, want 3", got)
		}
		size := uint32(0)
		for ; rx.Space() != 0; rx.Head++ {
			s := rx.Slot(rx.Head)
			if size += s.Len; s.Flags&ring.SlotMoreFrag == 0 {
				if size != 4014 {
					t.Errorf("frame %d has %d bytes, want 4014", got, size)
				}
				got, size = got+1, 0
			}
		}
		rx.Cur = rx.Head
	}
}

// A fill ring that runs dry, and a full receive ring, show in the counters.
func TestStatistics(t *testing.T) {
	netlab.NeedRoot(t)
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	tx := open(t, l.NS("a"), "a0", nil, xdp.Options{TXOnly: true}).TxRings()[0]
	rx := open(t, l.NS("b"), "b0", nil, xdp.Options{Slots: 16}).RxRings()[0]
	const n = 200
	send(t, tx, n, 60)
	seen := uint64(0)
	for wait(t, rx) && seen < 16 {
		seen += uint64(rx.Space())
		rx.Head = rx.Tail()
		rx.Cur = rx.Head
	}
	if err := rx.Refresh(); err != nil {
		t.Fatal(err)
	}
	s := &rx.Stats
	if s.Packets.Load() != 16 || s.KernelDrops.Load() != n-16 || s.KernelPackets.Load() != n {
		t.Errorf("%d received, %d dropped, %d seen; want 16, %d, %d", s.Packets.Load(), s.KernelDrops.Load(), s.KernelPackets.Load(), n-16, n)
	}
	if s.KernelFreezes.Load() == 0 {
		t.Error("the dry fill ring was not counted")
	}
}

// A queue that another socket has is named.
func TestQueueTaken(t *testing.T) {
	netlab.NeedRoot(t)
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	o := xdp.Options{Slots: 64, TXOnly: true}
	open(t, l.NS("a"), "a0", nil, o)
	err := l.NS("a").Do(func() error { _, err := xdp.Open("a0", nil, o); return err })
	if !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), "queue 0") {
		t.Errorf("second socket on the queue: %v", err)
	}
}

// An MTU that does not fit is refused with the reason, unless frames may take
// several buffers.
func TestLargeMTU(t *testing.T) {
	netlab.NeedRoot(t)
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{MTU: 9000})
	err := l.NS("a").Do(func() error { _, err := xdp.Open("a0", nil, xdp.Options{}); return err })
	if !errors.Is(err, ring.ErrTooLarge) || !strings.Contains(err.Error(), "multi-buffer") {
		t.Errorf("MTU 9000: %v", err)
	}
	open(t, l.NS("a"), "a0", nil, xdp.Options{MultiBuffer: true})
}

// Opening, failing to open and closing leave no descriptor and no mapping.
func TestLeaks(t *testing.T) {
	netlab.NeedRoot(t)
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	count := func() (fds, maps int) {
		d, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return len(d), strings.Count(string(b), "AF_XDP") + strings.Count(string(b), "socket:")
	}
	once := func() {
		_ = l.NS("a").Do(func() error {
			p, err := xdp.Open("a0", nil, xdp.Options{Slots: 64})
			if err != nil {
				t.Error(err)
				return nil
			}
			if _, err := xdp.Open("a0", nil, xdp.Options{Slots: 64}); err == nil {
				t.Error("opened twice")
			}
			if _, err := xdp.Open("a0", nil, xdp.Options{Slots: 64, Queues: []int{7}, TXOnly: true}); err == nil {
				t.Error("opened a queue that is not there")
			}
			return p.Close()
		})
	}
	once() // libraries keep a few of their own
	fds, maps := count()
	for range 5 {
		once()
	}
	if f, m := count(); f > fds || m > maps {
		t.Errorf("%d descriptors and %d mappings, before %d and %d", f, m, fds, maps)
	}
}
