package mem

import (
	"sync/atomic"

	"github.com/netring/netring/ring"
)

// line is what keeps two words apart for the caches of two cores: adjacent
// lines are fetched in pairs.
const line = 128

// link is one direction of a ring pair. Descriptors lie in wire between the
// sender's slots and the receiver's; all cursors here count wire slots and run
// freely. In order:
//
//	reclaimed ≤ released ≤ got ≤ sent ≤ accepted ≤ reclaimed + n
//
// (once the receiver is closed and the rest abandoned, reclaimed = accepted)
//
//	[reclaimed, released)  given back by the receiver, not taken by the sender yet
//	[released, got)        in the receiver's slots; wire keeps what it put there
//	[got, sent)            published
//	[sent, accepted)       a chain whose end has not come
//	the rest               in the sender's slots; wire keeps what it put there
type link struct {
	pool   *Pool
	holder []uint32 // the pool's book
	stride uint32
	vnet   uint32
	wire   []ring.Slot
	tx, rx side

	_        [line]byte
	sent     atomic.Uint32 // by the sender
	txClosed atomic.Bool   // no more will be sent; the sender's words below are the receiver's
	txArmed  atomic.Bool   // by the sender, and taken back by who signals
	_        [line]byte
	released atomic.Uint32 // by the receiver
	rxClosed atomic.Bool   // no more will be taken, released is final
	rxArmed  atomic.Bool
	_        [line]byte

	// The sender's.
	accepted  uint32
	whole     uint32 // sent, as last stored
	reclaimed uint32
	begun     bool
	_         [line]byte

	// The receiver's.
	got  uint32
	back uint32 // released, as last stored
}

// side is one end of a link.
type side struct {
	port  *Port
	ring  *ring.Ring
	event event
	id    uint32 // the ring's identity in the pool's book
}

// wake signals an end that has armed its ring.
func (s *side) wake(armed *atomic.Bool, from *ring.Ring) {
	if armed.Load() && armed.CompareAndSwap(true, false) {
		from.Stats.Doorbells.Add(1)
		s.signal()
	}
}

// signal makes the end's descriptor ready, unless it is closed.
func (s *side) signal() {
	if s.port.life.Enter() {
		s.event.set(true)
		s.port.life.Exit()
	}
}

// Bounds of a buffer and of a run, which keep the lengths of a run below 2^32.
const (
	maxBuf = 1 << 18
	maxRun = 1 << 13
)

// lenAndPart is the slot's length and, in the upper half, 1 if the frame goes on,
// so that one addition sums both up.
func lenAndPart(s *ring.Slot) uint64 {
	return (uint64(s.Len) | uint64(s.Flags)<<32) & (1<<32 - 1 | uint64(ring.SlotMoreFrag)<<32)
}

// run returns the slots of r from k on and those of wire from w on: as many of
// the one as of the other, up to n, that do not wrap in either.
func (l *link) run(r *ring.Ring, k, w, n uint32) (slots, wire []ring.Slot) {
	slots, mask := r.Slots(), uint32(len(l.wire)-1)
	k, w = k&mask, w&mask
	n = min(n, maxRun, mask+1-k, mask+1-w)
	return slots[k : k+n], l.wire[w : w+n]
}

// hand copies wire slots into those of the ring whose identity is id, for its
// program to have, and counts the frames that end in them. The loop is what a
// pipe's speed hangs on: two slots a turn are a tenth faster, and not inlined
// it has registers enough.
//
//go:noinline
func hand(slots, wire []ring.Slot, holder []uint32, id uint32) (packets, bytes uint64) {
	copy(slots, wire)
	sum := uint64(0)
	if len(wire)&1 != 0 {
		last := &wire[len(wire)-1]
		holder[last.Buf] = id
		sum = lenAndPart(last)
	}
	for i := 0; i < len(wire)-1; i += 2 {
		a, b := &wire[i], &wire[i+1]
		holder[a.Buf] = id
		holder[b.Buf] = id
		sum += lenAndPart(a) + lenAndPart(b)
	}
	return uint64(len(wire)) - sum>>32, uint64(uint32(sum))
}

// pass hands the wire slots [w, to) to the program of the side's ring, from tail
// on, and counts them; it returns the new tail.
func (l *link) pass(s *side, tail, w, to uint32) uint32 {
	var packets, bytes uint64
	for w != to {
		slots, wire := l.run(s.ring, tail, w, to-w)
		p, b := hand(slots, wire, l.holder, s.id)
		packets += p
		bytes += b
		tail += uint32(len(wire))
		w += uint32(len(wire))
	}
	s.ring.Stats.Packets.Add(packets)
	s.ring.Stats.Bytes.Add(bytes)
	return tail
}

// idle reports whether nothing is under way. After [link.abandon] reclaimed is
// ahead of released, so that this must be asked before one is compared with the
// other.
func (l *link) idle() bool { return l.reclaimed == l.accepted }

// abandon gives the sender the slots that the receiver, which is closed, has
// never taken.
func (l *link) abandon(r *ring.Ring, tail uint32) uint32 {
	for w := l.reclaimed; w != l.accepted; w++ {
		b := l.wire[w&uint32(len(l.wire)-1)].Buf
		l.holder[b] = l.tx.id
		r.Slot(tail).Buf = b
		tail++
	}
	l.dropRest()
	return tail
}

// settle does the accounts of a sender that is closed, whose slots get nothing
// any more.
func (l *link) settle(released uint32) {
	if l.idle() {
		return
	}
	var packets, bytes uint64
	for w := l.reclaimed; w != released; w++ {
		d := &l.wire[w&uint32(len(l.wire)-1)]
		bytes += uint64(d.Len)
		packets += uint64(^d.Flags & ring.SlotMoreFrag)
	}
	l.reclaimed = released
	l.tx.ring.Stats.Packets.Add(packets)
	l.tx.ring.Stats.Bytes.Add(bytes)
}

// dropRest counts the frames that will never be taken as dropped.
func (l *link) dropRest() {
	var frames uint64
	for w := l.reclaimed; w != l.whole; w++ {
		frames += uint64(^l.wire[w&uint32(len(l.wire)-1)].Flags & ring.SlotMoreFrag)
	}
	if l.whole != l.accepted {
		frames++ // a chain without its end
	}
	l.reclaimed, l.whole = l.accepted, l.accepted
	l.tx.ring.Stats.Drop(ring.DropClosed, frames)
}
