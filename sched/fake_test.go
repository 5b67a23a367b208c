package sched

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/netring/netring/ring"
)

// sent is a frame that a fakeTx was given.
type sent struct {
	data  []byte
	flags ring.SlotFlags
	vnet  ring.Vnet
}

// fakeTx is the device behind a transmit ring. It finishes slots when told to
// (auto: at once), and what it finished is in out.
type fakeTx struct {
	r        *ring.Ring
	from, to uint32 // in its hands
	auto     bool
	quiet    bool // keeps no copy in out
	err      error
	accept   int // with err: slots that it takes nevertheless
	noReset  bool
	out      []sent
	lost     int
	refused  bool // has returned an error since last looked
}

func (d *fakeTx) Sync(r *ring.Ring, from, to uint32) (accepted, tail uint32, err error) {
	if d.err != nil {
		if n := uint32(d.accept); to-from > n {
			to = from + n
		}
		for to != from && r.Slot(to-1).Flags&ring.SlotMoreFrag != 0 {
			to-- // a driver takes whole frames
		}
		err, d.refused = d.err, true
	}
	d.to = to
	if d.auto {
		d.finish(int(d.to - d.from))
	}
	return to, d.from + uint32(r.Len()), err
}

func (d *fakeTx) Reset(*ring.Ring) error {
	if d.noReset {
		return errors.ErrUnsupported
	}
	d.r.Stats.Drop(ring.DropClosed, uint64(d.to-d.from))
	d.lost += int(d.to - d.from)
	// Of a frame that it was in the middle of, nobody sees the beginning.
	for n := len(d.out); n != 0 && d.out[n-1].flags&ring.SlotMoreFrag != 0; n-- {
		d.out = d.out[:n-1]
	}
	d.from = d.r.Head
	d.to = d.from
	return nil
}

// finish completes up to n slots.
func (d *fakeTx) finish(n int) {
	n = min(n, int(d.to-d.from))
	for range n {
		k := d.from
		d.from++
		if d.quiet {
			continue
		}
		s := d.r.Slot(k)
		f := sent{data: append([]byte(nil), d.r.Frame(k)...), flags: s.Flags}
		d.r.Vnet(k, &f.vnet)
		d.out = append(d.out, f)
	}
}

type txConfig struct {
	slots, bufSize, vnet, maxFrame int
	multi                          bool
}

func newTx(t testing.TB, c txConfig) (*ring.Ring, *fakeTx) {
	t.Helper()
	if c.slots == 0 {
		c.slots = 16
	}
	if c.bufSize == 0 {
		c.bufSize = 2048
	}
	if c.maxFrame == 0 {
		c.maxFrame = 1514
	}
	d := &fakeTx{}
	r := newRing(t, ring.Config{
		Port: "fake0", Dir: ring.TX, Slots: c.slots, Driver: d,
		VnetLen: c.vnet, Offset: 16, MaxFrame: c.maxFrame, MultiSlot: c.multi,
	}, c.bufSize)
	d.r = r
	return r, d
}

func newRing(t testing.TB, c ring.Config, bufSize int) *ring.Ring {
	t.Helper()
	g, err := ring.NewRegion(make([]byte, c.Slots*bufSize), bufSize)
	if err != nil {
		t.Fatal(err)
	}
	c.Region, c.Life, c.FD, c.WakeFD = g, ring.NewLife(), -1, -1
	r, err := ring.New(c)
	if err != nil {
		t.Fatal(err)
	}
	for k := range uint32(c.Slots) {
		r.Slot(k).Buf = k
	}
	r.Seed(^uint32(0) - 20) // over the wrap soon
	if c.Dir == ring.TX {
		if d, ok := c.Driver.(*fakeTx); ok {
			d.from, d.to = r.Head, r.Head
		}
	}
	return r
}

// fakeRx is a receive ring whose frames the test writes.
type fakeRx struct {
	r    *ring.Ring
	next uint32
	off  uint32
}

func (d *fakeRx) Sync(_ *ring.Ring, _, to uint32) (accepted, tail uint32, err error) {
	return to, d.next, nil
}

func newRx(t testing.TB, slots, bufSize, vnet int) (*ring.Ring, *fakeRx) {
	t.Helper()
	d := &fakeRx{off: 32}
	r := newRing(t, ring.Config{Port: "fake1", Dir: ring.RX, Slots: slots, Driver: d, VnetLen: vnet, Offset: 32}, bufSize)
	d.r, d.next = r, r.Head
	return r, d
}

// put makes a frame arrive, in slots of at most part bytes (0: one slot).
func (d *fakeRx) put(t testing.TB, data []byte, flags ring.SlotFlags, v ring.Vnet, part int) {
	t.Helper()
	for first := true; first || len(data) != 0; first = false {
		n := len(data)
		if part != 0 {
			n = min(n, part)
		}
		s := d.r.Slot(d.next)
		s.Off, s.Len, s.Flags = d.off, uint32(n), flags
		if copy(d.r.Region().Buf(s.Buf)[s.Off:], data[:n]) < n {
			t.Fatalf("test frame of %d bytes does not fit", n)
		}
		if first && flags&ring.SlotVnet != 0 {
			v.Encode(d.r.Region().Buf(s.Buf)[d.off-uint32(d.r.VnetLen()) : d.off])
		}
		flags &^= ring.SlotVnet | ring.SlotGSO
		data = data[n:]
		if len(data) != 0 {
			s.Flags |= ring.SlotMoreFrag
		}
		d.next++
	}
	if err := d.r.Sync(); err != nil {
		t.Fatal(err)
	}
}

// numbered is a frame of n bytes that carries id and, for priority, the
// EtherType that prioRule picks.
func numbered(id uint32, n int, prio bool) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(uint32(i)*7 + id)
	}
	binary.BigEndian.PutUint16(b[12:], 0x9000)
	if prio {
		binary.BigEndian.PutUint16(b[12:], 0x8809)
	}
	binary.BigEndian.PutUint32(b[14:], id)
	return b
}

func idOf(b []byte) uint32 { return binary.BigEndian.Uint32(b[14:]) }

// rig is a queue between a fake receive ring and a fake device.
type rig struct {
	*Queue
	t   testing.TB
	rx  *ring.Ring
	in  *fakeRx
	tx  *ring.Ring
	dev *fakeTx
	clk Clock
	id  uint32
}

func newRig(t testing.TB, o Options, c txConfig) *rig {
	t.Helper()
	g := &rig{t: t}
	g.rx, g.in = newRx(t, 256, 4096, ring.VnetLen)
	g.tx, g.dev = newTx(t, c)
	o.Clock = &g.clk
	q, err := NewQueue(g.tx, o)
	if err != nil {
		t.Fatal(err)
	}
	g.Queue = q
	return g
}

// arrive makes n frames of size bytes arrive and returns the id of the first.
func (g *rig) arrive(n, size int, prio bool) uint32 {
	g.t.Helper()
	first := g.id
	for range n {
		g.in.put(g.t, numbered(g.id, size, prio), 0, ring.Vnet{}, 0)
		g.id++
	}
	return first
}

func (g *rig) flush() {
	g.t.Helper()
	if err := g.Flush(); err != nil {
		g.t.Fatalf("flush: %v", err)
	}
}

// ids are the frames that the device has finished, in order, with their
// contents checked.
func (g *rig) ids() (ids []uint32) {
	g.t.Helper()
	for _, f := range g.dev.out {
		id := idOf(f.data)
		want := numbered(id, len(f.data), binary.BigEndian.Uint16(f.data[12:]) == 0x8809)
		if string(want) != string(f.data) {
			g.t.Fatalf("frame %d is damaged", id)
		}
		ids = append(ids, id)
	}
	return ids
}

func seq(from, n uint32) (ids []uint32) {
	for i := range n {
		ids = append(ids, from+i)
	}
	return ids
}

// lacp is a classifier that prefers the frames that numbered marks.
func lacp(t testing.TB) *Classifier {
	t.Helper()
	c, err := NewClassifier(ClassifierOptions{EtherTypes: []uint16{0x8809}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
