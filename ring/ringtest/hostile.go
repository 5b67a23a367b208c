package ringtest

import (
	"bytes"
	"errors"
	"math"

	"github.com/netring/netring/ring"
)

// some sends and receives frames until the rings have gone round once more,
// to see that they still work.
func (b *bench) some() {
	b.t.Helper()
	for want := b.filled + uint64(b.TX.Len()) + 3; b.filled < want; {
		b.fill(int(want - b.filled))
		b.drain()
	}
}

// hostileCursors sets cursors that Sync must refuse.
func (b *bench) hostileCursors() {
	b.some()
	// Have something between head and tail of both rings.
	b.fill(1)
	b.sync(b.TX)
	b.await(b.RX, "a frame has not arrived", func() bool { return b.RX.Space() > 0 })
	for _, r := range []*ring.Ring{b.TX, b.RX} {
		for _, c := range []struct {
			name            string
			headBy, curBy   uint32 // from the accepted head
			headTail, curTl bool   // or from tail
		}{
			{name: "head after tail", headBy: 1, headTail: true, curBy: 1, curTl: true},
			{name: "head far away", headBy: 1 << 31, curBy: 1 << 31},
			{name: "head before the accepted one", headBy: math.MaxUint32, curBy: 0},
			{name: "cur before head", headBy: 0, curBy: math.MaxUint32},
			{name: "cur after tail", headBy: 0, curBy: 1, curTl: true},
			{name: "cur before the head that moved", headBy: 0, headTail: true, curBy: 0},
		} {
			if r.Space() == 0 {
				continue // nothing to be out of order with
			}
			base := func(tail bool) uint32 {
				if tail {
					return r.Tail()
				}
				return r.Accepted()
			}
			accepted, tail := r.Accepted(), r.Tail()
			r.Head, r.Cur = base(c.headTail)+c.headBy, base(c.curTl)+c.curBy
			if err := r.Sync(); !errors.Is(err, ring.ErrCursor) {
				b.t.Fatalf("%v ring, %s: Sync says %v, want %v", r.Dir(), c.name, err, ring.ErrCursor)
			}
			if r.Head != accepted || r.Cur != accepted || r.Tail() != tail || r.Accepted() != accepted {
				b.t.Fatalf("%v ring, %s: head %d, cur %d, tail %d; want %d, %d, %d", r.Dir(), c.name,
					r.Head, r.Cur, r.Tail(), accepted, accepted, tail)
			}
		}
	}
	b.drain()
	b.some()
}

// damage is a slot that no driver may take over.
type damage struct {
	name string
	do   func(r *ring.Ring, k uint32)
}

func damages() []damage {
	return []damage{
		{"buffer 2^32-1", func(r *ring.Ring, k uint32) { r.Slot(k).Buf = math.MaxUint32 }},
		{"buffer 2^31", func(r *ring.Ring, k uint32) { r.Slot(k).Buf = 1 << 31 }},
		{"buffer of the slot before", func(r *ring.Ring, k uint32) { r.Slot(k).Buf = r.Slot(k - 1).Buf }},
		{"buffers of two slots exchanged for one", func(r *ring.Ring, k uint32) {
			// The buffer of the slot before is in no slot any more.
			was := bytes.Clone(r.Frame(k - 1))
			r.Slot(k - 1).Buf = r.Slot(k).Buf
			copy(r.Frame(k-1), was)
		}},
		{"offset 2^32-1", func(r *ring.Ring, k uint32) { r.Slot(k).Off = math.MaxUint32 }},
		{"offset behind the buffer", func(r *ring.Ring, k uint32) { r.Slot(k).Off = 1 << 20 }},
		{"length 2^32-1", func(r *ring.Ring, k uint32) { r.Slot(k).Len = math.MaxUint32 }},
		{"a sum that overflows", func(r *ring.Ring, k uint32) { r.Slot(k).Off = math.MaxUint32 - 30 }},
		{"length of 2^31 and more to come", func(r *ring.Ring, k uint32) {
			r.Slot(k).Len, r.Slot(k).Flags = 1<<31, ring.SlotMoreFrag
		}},
	}
}

// noSpares stops exchanging buffers with those in slots: a driver cannot tell
// one that was exchanged from one that was lost.
func (b *bench) noSpares() {
	b.Spare = nil
	b.initial = b.buffers()
}

// hostileTransmit hands over slots that name memory that is not theirs.
func (b *bench) hostileTransmit() {
	b.noSpares()
	for _, d := range damages() {
		b.some() // both slots are the program's
		first := b.TX.Head
		b.fill(2)
		if b.TX.Head != first+2 {
			b.t.Fatalf("room for %d frames, want 2", b.TX.Head-first)
		}
		b.TX.Cur = b.TX.Head
		d.do(b.TX, first+1)
		err := b.TX.Sync()
		if !errors.Is(err, ring.ErrSlot) {
			b.t.Fatalf("%s: Sync says %v, want %v", d.name, err, ring.ErrSlot)
		}
		// Some drivers' first slot is the wrong one where two have changed.
		at := b.TX.Head
		if at != first+1 && at != first || b.TX.Accepted() != at {
			b.t.Fatalf("%s: head %d, accepted %d, want the bad slot, %d", d.name, at, b.TX.Accepted(), first+1)
		}
		for i := at; i != first+2; i++ { // take the refused frames back
			b.filled--
			b.bytes -= uint64(b.size(b.filled))
		}
		b.TX.Cur = at
		b.fill(1) // what is in the slot now must do
		b.drain()
	}
	b.some()
}

// hostileReceive passes slots that have been written over.
func (b *bench) hostileReceive() {
	b.noSpares()
	for _, d := range damages() {
		b.some()
		b.fill(2)
		b.sync(b.TX)
		b.await(b.RX, "two frames have not arrived", func() bool { return b.RX.Space() == 2 })
		first := b.RX.Head
		b.inspect(2)
		b.passed += 2
		d.do(b.RX, first+1)
		b.RX.Head += 2
		b.RX.Cur = b.RX.Head
		// A driver to which released slots say nothing takes them as they
		// are; another one refuses them, and has repaired what it refused.
		for tries := 0; ; tries++ {
			err := b.RX.Sync()
			if err == nil {
				break
			}
			if !errors.Is(err, ring.ErrSlot) || tries == 2 {
				b.t.Fatalf("%s: Sync says %v", d.name, err)
			}
			if at := b.RX.Head; at != first+1 && at != first {
				b.t.Fatalf("%s: head %d, want the bad slot, %d", d.name, at, first+1)
			}
			b.RX.Head, b.RX.Cur = first+2, first+2
		}
		b.released = b.passed
		b.drain()
	}
	b.some()
}
