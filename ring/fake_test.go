package ring_test

import (
	"testing"

	"github.com/netring/netring/ring"
)

// kernel is the other side of a ring on plain memory: it takes over all slots,
// up to bad if that is set, and lets the program have the given number more of
// them at each Sync.
type kernel struct {
	grant uint32
	bad   uint32
	err   error
}

func (d *kernel) Sync(r *ring.Ring, from, to uint32) (accepted, tail uint32, err error) {
	tail = r.Tail() + d.grant
	d.grant = 0
	if d.err != nil {
		return d.bad, tail, d.err
	}
	return to, tail, nil
}

// geometry is what a test ring is made of.
type geometry struct {
	slots, vnet, offset, maxFrame int
	multi                         bool
	region                        *ring.Region
	first                         uint32 // buffer of slot 0; the others follow
}

func region(t testing.TB, bufs, size int) *ring.Region {
	t.Helper()
	g, err := ring.NewRegion(make([]byte, bufs*size), size)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func newRing(t testing.TB, dir ring.Dir, g geometry) (*ring.Ring, *kernel) {
	t.Helper()
	d := &kernel{}
	r, err := ring.New(ring.Config{Port: "test", Dir: dir, Slots: g.slots, Region: g.region, Life: ring.NewLife(), Driver: d,
		VnetLen: g.vnet, Offset: g.offset, MaxFrame: g.maxFrame, MultiSlot: g.multi, FD: -1, WakeFD: -1})
	if err != nil {
		t.Fatal(err)
	}
	for k := range uint32(g.slots) {
		*r.Slot(k) = ring.Slot{Buf: g.first + k, Off: uint32(g.offset)}
	}
	return r, d
}

// receive puts the frames, each with its flags, into the slots after tail and
// grants them.
func receive(t testing.TB, r *ring.Ring, d *kernel, off int, parts ...part) {
	t.Helper()
	for i, p := range parts {
		k := r.Tail() + uint32(i)
		s := r.Slot(k)
		s.Off, s.Len, s.Flags = uint32(off), uint32(len(p.bytes)), p.flags
		if copy(r.Frame(k), p.bytes) != len(p.bytes) {
			t.Fatalf("a part of %d bytes does not fit", len(p.bytes))
		}
		if p.vnet != nil {
			flags := s.Flags
			if !r.SetVnet(k, p.vnet) {
				t.Fatal("no room for the virtio-net header")
			}
			s.Flags = flags // as the driver of the test says, not as the header does
		}
	}
	d.grant = uint32(len(parts))
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
}

// part is one slot's share of a frame.
type part struct {
	bytes []byte
	flags ring.SlotFlags
	vnet  *ring.Vnet
}

// text returns n recognisable bytes.
func text(seed byte, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = seed + byte(i)
	}
	return b
}

// sent returns the frames between the first slot of tx and its head, joined, and
// the flags of their first slots.
func sent(t testing.TB, tx *ring.Ring) (frames []part) {
	t.Helper()
	for k, begin := tx.Accepted(), true; k != tx.Head; k++ {
		s := tx.Slot(k)
		if begin {
			p := part{flags: s.Flags &^ (ring.SlotMoreFrag | ring.SlotBufChanged)}
			var v ring.Vnet
			if tx.Vnet(k, &v) {
				p.vnet = &v
			}
			frames = append(frames, p)
		}
		b := tx.Frame(k)
		if b == nil {
			t.Fatalf("slot %d names no memory: %+v", k, *s)
		}
		last := &frames[len(frames)-1]
		last.bytes = append(last.bytes, b...)
		begin = s.Flags&ring.SlotMoreFrag == 0
	}
	return frames
}
