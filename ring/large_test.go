package ring_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/netring/netring/ring"
)

func TestLarge(t *testing.T) {
	l := ring.NewLarge(3, 100)
	g := region(t, 2, 64)
	g.WithLarge(l)
	var got []uint32
	for range 3 {
		i, ok := l.Take()
		if !ok || len(g.Buf(i)) != 100 || !l.Taken(i) {
			t.Fatalf("took buffer %d, %v, of %d bytes", i, ok, len(g.Buf(i)))
		}
		got = append(got, i)
	}
	if _, ok := l.Take(); ok || l.Spare() != 0 {
		t.Error("took a fourth buffer of three")
	}
	for _, i := range []uint32{0, 1, 5, 1<<32 - 1} {
		if l.Taken(i) {
			t.Errorf("buffer %d is taken, and not of these", i)
		}
		l.Give(i)
	}
	l.Give(got[1])
	l.Give(got[1]) // once is enough
	if i, ok := l.Take(); !ok || i != got[1] || l.Spare() != 0 {
		t.Errorf("after giving %d back: took %d, %v, %d spare", got[1], i, ok, l.Spare())
	}
	// Of all three, one slot names the last, and another one none.
	r, _ := newRing(t, ring.TX, geometry{slots: 2, region: g})
	r.Slot(1).Buf = got[2]
	l.Recover(r, 0, 2)
	if l.Spare() != 2 || !l.Taken(got[2]) {
		t.Errorf("%d spare of 3, of which a slot names one", l.Spare())
	}
	l.Recover(r, 0, 1)
	if l.Spare() != 3 {
		t.Errorf("%d spare of 3, of which no slot names one", l.Spare())
	}
	var none *ring.Large
	if none.Give(0); none.Taken(0) || none.Buf(0) != nil {
		t.Error("no large buffers at all, and some")
	}
}

// largeBed is two rings with large buffers and the frames on their way.
type largeBed struct {
	t        *testing.T
	src, dst *ring.Ring
	in, out  *kernel
	from, to *ring.Large
	memory   map[*byte]bool // of all large buffers
	filled   uint32
	sent     uint32
	moved    int // without a copy
}

func newLargeBed(t *testing.T) *largeBed {
	b := &largeBed{t: t, from: ring.NewLarge(4, 512), to: ring.NewLarge(3, 512), memory: map[*byte]bool{}}
	gs, gd := region(t, 8, 128), region(t, 8, 512)
	gs.WithLarge(b.from)
	gd.WithLarge(b.to)
	b.src, b.in = newRing(t, ring.RX, geometry{slots: 8, vnet: 10, region: gs})
	b.dst, b.out = newRing(t, ring.TX, geometry{slots: 8, vnet: 10, offset: 16, region: gd})
	for i := range uint32(4) {
		b.memory[&gs.Buf(8 + i)[0]] = true
	}
	for i := range uint32(3) {
		b.memory[&gd.Buf(8 + i)[0]] = true
	}
	return b
}

// receive has a super-frame arrive in a large buffer, or a small frame if it is
// to be small or there is no buffer.
func (b *largeBed) receive(small bool) {
	k := b.src.Tail()
	s := b.src.Slot(k)
	*s = ring.Slot{Buf: k & 7, Off: 20, Len: 60}
	if i, ok := b.from.Take(); ok && !small {
		*s = ring.Slot{Buf: i, Off: 20, Len: 400}
	} else if ok {
		b.from.Give(i)
	}
	v := *header
	v.HdrLen = uint16(b.filled)
	if !b.src.SetVnet(k, &v) {
		b.t.Fatal("no room for the header")
	}
	binary.BigEndian.PutUint32(b.src.Frame(k), b.filled)
	b.filled++
	b.in.grant = 1
	if err := b.src.Sync(); err != nil {
		b.t.Fatal(err)
	}
}

// move moves what has arrived and gives the source's buffers back.
func (b *largeBed) move(n int) {
	first := b.src.Head
	for n = ring.Move(b.dst, b.src, n); n > 0; n-- {
		b.from.Give(b.src.Slot(first).Buf)
		first++
	}
}

// send checks and finishes up to n of the frames that were moved.
func (b *largeBed) send(n int) {
	oldest := b.dst.Tail() - 8
	for ; n > 0 && oldest != b.dst.Head; n-- {
		s := b.dst.Slot(oldest)
		var v ring.Vnet
		if got := binary.BigEndian.Uint32(b.dst.Frame(oldest)); got != b.sent || !b.dst.Vnet(oldest, &v) || v.HdrLen != uint16(b.sent) {
			b.t.Fatalf("frame %d with header %+v in the place of frame %d", got, v, b.sent)
		}
		if b.to.Taken(s.Buf) {
			b.moved++
			b.to.Give(s.Buf)
		}
		s.Buf = oldest & 7
		b.sent++
		oldest++
		b.out.grant++
	}
	if err := b.dst.Sync(); err != nil {
		b.t.Fatal(err)
	}
}

// conserved checks that the memory of every buffer is where one slot, or none,
// can name it.
func (b *largeBed) conserved() {
	b.t.Helper()
	seen := map[*byte]bool{}
	for _, r := range []*ring.Ring{b.src, b.dst} {
		for i := uint32(8); r.Region().Buf(i) != nil; i++ {
			p := &r.Region().Buf(i)[0]
			if seen[p] || !b.memory[p] {
				b.t.Fatalf("buffer %d of the %v ring is there twice, or new", i, r.Dir())
			}
			seen[p] = true
		}
	}
	if len(seen) != len(b.memory) {
		b.t.Fatalf("%d of %d large buffers", len(seen), len(b.memory))
	}
}

// TestMoveLarge: frames in large buffers change rings in order, with their
// headers, without a copy while dst has a spare one, and nothing is lost.
func TestMoveLarge(t *testing.T) {
	b := newLargeBed(t)
	rng := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		switch rng.IntN(3) {
		case 0:
			if b.src.Space() < 8 {
				b.receive(rng.IntN(3) == 0)
			}
		case 1:
			b.move(1 + rng.IntN(3))
		case 2:
			if n := 1 + rng.IntN(4); b.dst.Head != b.dst.Tail()-8 {
				b.send(n)
			}
		}
		b.conserved()
	}
	b.move(8)
	b.send(8)
	if copied := int(b.sent) - b.moved; b.sent != b.filled || b.moved < 500 || copied < 100 {
		t.Errorf("%d frames of %d sent, %d of them without a copy", b.sent, b.filled, b.moved)
	}
	if b.from.Spare() != 4 || b.to.Spare() != 3 || b.dst.Stats.Dropped() != 0 {
		t.Errorf("%d and %d spare buffers of 4 and 3, %d frames dropped", b.from.Spare(), b.to.Spare(), b.dst.Stats.Dropped())
	}
}
