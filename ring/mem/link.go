package mem

import (
	"fmt"
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

// sender is the driver of the transmit ring.
type sender struct{ *link }

// receiver is the driver of the receive ring.
type receiver struct{ *link }

var (
	_ ring.Armer     = sender{}
	_ ring.Refresher = sender{}
	_ ring.Armer     = receiver{}
	_ ring.Refresher = receiver{}
)

// Sync publishes the whole frames among the slots and takes back what the
// receiver has released.
func (l sender) Sync(r *ring.Ring, from, to uint32) (accepted, tail uint32, err error) {
	gone := l.rxClosed.Load() // before released, which is final then
	if gone {
		tail = l.reclaim(r, l.released.Load())
		return from, l.abandon(r, tail), ring.ErrGone
	}
	if !l.begun {
		l.begin(r, from)
	}
	accepted, err = l.accept(r, from, to)
	if l.whole != l.sent.Load() {
		l.sent.Store(l.whole)
		l.rx.wake(&l.rxArmed, r)
	}
	return accepted, l.reclaim(r, l.released.Load()), err
}

// begin notes the buffers in the slots of a fresh ring, which may start
// anywhere.
func (l *link) begin(r *ring.Ring, from uint32) {
	l.begun = true
	bufs := make([]uint32, len(l.wire))
	for i := range bufs {
		bufs[i] = l.wire[i].Buf
	}
	for i := range l.wire {
		l.wire[i].Buf = bufs[(from+uint32(i))&uint32(len(bufs)-1)]
	}
}

// lenAndPart masks a slot's length and, above, [ring.SlotMoreFrag], so that one
// addition sums both up. maxBuf and maxRun keep the lengths of a run below 2^32.
const (
	lenAndPart = 1<<32 - 1 | uint64(ring.SlotMoreFrag)<<32
	maxBuf     = 1 << 18
	maxRun     = 1 << 13
)

// run is the longest run of slots from cursor a of one ring of n slots and b of
// another that does not wrap in either, at most left
// and maxRun.
func run(n, a, b, left uint32) uint32 {
	return min(left, maxRun, n-a&(n-1), n-b&(n-1))
}

// accept takes over the slots [from, to), up to the first bad one.
func (l *link) accept(r *ring.Ring, from, to uint32) (accepted uint32, err error) {
	slots, n := r.Slots(), uint32(len(l.wire))
	for k := from; k != to; {
		i, j, m := k&(n-1), l.accepted&(n-1), run(n, k, l.accepted, to-k)
		done, odd := l.acceptRun(slots[i:i+m], l.wire[j:j+m])
		k += done
		l.accepted += done
		if odd {
			if err := l.acceptOdd(r, k); err != nil {
				return k, err
			}
			k++
		}
	}
	return to, nil
}

// acceptRun takes over ordinary slots: it stops at the first odd one, which is bad or
// has flags that ask for a closer look.
func (l *link) acceptRun(slots, wire []ring.Slot) (done uint32, odd bool) {
	holder, stride := l.holder, uint64(l.stride)
	n := len(slots)
	for i := range slots {
		s := &slots[i]
		b := s.Buf
		if uint64(b) >= uint64(len(holder)) || holder[b] < taken || uint64(s.Off)+uint64(s.Len) > stride ||
			s.Flags&(ring.SlotVnet|ring.SlotMoreFrag) != 0 {
			n, odd = i, true
			break
		}
		holder[b] = lent
	}
	copy(wire[:n], slots)
	if n != 0 {
		// Each is a frame, or the end of one.
		l.whole = l.accepted + uint32(n)
	}
	return uint32(n), odd
}

// acceptOdd looks closely at slot k and takes it over unless it is bad.
func (l *link) acceptOdd(r *ring.Ring, k uint32) error {
	s, w := r.Slot(k), &l.wire[l.accepted&uint32(len(l.wire)-1)]
	switch {
	case !l.pool.owned(s.Buf) || uint64(s.Off)+uint64(s.Len) > uint64(l.stride):
		return l.refuse(r, k, w.Buf, l.tx.id)
	case s.Flags&ring.SlotVnet != 0 && (s.Off < l.vnet || l.vnet == 0):
		return fmt.Errorf("%w: slot %d: no virtio-net header before offset %d", ring.ErrSlot, k, s.Off)
	case s.Flags&ring.SlotMoreFrag != 0 && l.accepted-l.whole == uint32(len(l.wire)-1):
		return fmt.Errorf("%w: a frame of more slots than the ring's %d", ring.ErrTooLarge, len(l.wire))
	}
	l.holder[s.Buf] = lent
	*w = *s
	l.accepted++
	if s.Flags&ring.SlotMoreFrag == 0 {
		l.whole = l.accepted
	}
	return nil
}

// refuse is the error of a slot that does not describe memory of the
// program's; where the buffer is not, it gets one back.
func (l *link) refuse(r *ring.Ring, k, was, id uint32) error {
	s := *r.Slot(k)
	if !l.pool.owned(s.Buf) {
		l.pool.repair(r, k, was, id)
	}
	return fmt.Errorf("%w: slot %d: buffer %d, offset %d, length %d", ring.ErrSlot, k, s.Buf, s.Off, s.Len)
}

// idle reports whether nothing is under way. After [link.abandon] reclaimed is
// ahead of released, so that this must be asked before one is compared with the
// other.
func (l *link) idle() bool { return l.reclaimed == l.accepted }

// reclaim gives the sender the slots up to released and counts their frames as
// sent; it returns the new tail.
func (l *link) reclaim(r *ring.Ring, released uint32) (tail uint32) {
	slots, holder, n, id := r.Slots(), l.holder, uint32(len(l.wire)), l.tx.id
	tail = r.Tail()
	if l.reclaimed == released || l.idle() {
		return tail
	}
	var packets, bytes uint64
	for w := l.reclaimed; w != released; {
		i, j, m := tail&(n-1), w&(n-1), run(n, tail, w, released-w)
		to, from := slots[i:i+m], l.wire[j:j+m]
		to = to[:len(from)]
		sum := uint64(0)
		for i := range from {
			d := &from[i]
			b := d.Buf
			sum += (uint64(d.Len) | uint64(d.Flags)<<32) & lenAndPart
			to[i].Buf = b
			holder[b] = id
		}
		bytes += uint64(uint32(sum))
		packets += uint64(m) - sum>>32
		tail += m
		w += m
	}
	l.reclaimed = released
	r.Stats.Packets.Add(packets)
	r.Stats.Bytes.Add(bytes)
	return tail
}

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

// Arm makes the descriptor signal when the receiver releases slots or closes.
func (l sender) Arm(*ring.Ring) {
	l.tx.event.set(false)
	l.txArmed.Store(true)
	if l.rxClosed.Load() {
		l.tx.event.set(true)
	}
}

// Refresh reports whether the other end is there.
func (l sender) Refresh(*ring.Ring) error {
	if l.rxClosed.Load() {
		return ring.ErrGone
	}
	return nil
}

// Sync releases slots to the sender and takes what it has published.
func (l receiver) Sync(r *ring.Ring, from, to uint32) (accepted, tail uint32, err error) {
	gone := l.txClosed.Load() // before sent, which is final then
	accepted, err = l.release(r, from, to)
	if gone {
		l.settle(l.back)
	}
	tail = l.grant(r, l.sent.Load())
	if gone && err == nil && r.Cur == tail {
		err = ring.ErrGone
	}
	return accepted, tail, err
}

// release takes back the slots [from, to), up to the first bad one.
func (l *link) release(r *ring.Ring, from, to uint32) (accepted uint32, err error) {
	slots, n := r.Slots(), uint32(len(l.wire))
	w, k := l.back, from
	for k != to {
		i, j, m := k&(n-1), w&(n-1), run(n, k, w, to-k)
		done := l.releaseRun(slots[i:i+m], l.wire[j:j+m])
		k, w = k+done, w+done
		if done != m {
			err = l.refuse(r, k, l.wire[w&(n-1)].Buf, l.rx.id)
			break
		}
	}
	if w != l.back {
		l.back = w
		l.released.Store(w)
		l.tx.wake(&l.txArmed, r)
	}
	return k, err
}

// releaseRun takes slots back and returns how many, up to the first whose buffer
// is not the program's.
func (l *link) releaseRun(slots, wire []ring.Slot) uint32 {
	holder := l.holder
	wire = wire[:len(slots)]
	for i := range slots {
		b := slots[i].Buf
		if uint64(b) >= uint64(len(holder)) || holder[b] < taken {
			return uint32(i)
		}
		holder[b] = lent
		wire[i].Buf = b
	}
	return uint32(len(slots))
}

// grant gives the receiver what lies up to sent and returns the new tail.
func (l *link) grant(r *ring.Ring, sent uint32) (tail uint32) {
	slots, holder, n, id := r.Slots(), l.holder, uint32(len(l.wire)), l.rx.id
	tail = r.Tail()
	if l.got == sent {
		return tail
	}
	var packets, bytes uint64
	for w := l.got; w != sent; {
		i, j, m := tail&(n-1), w&(n-1), run(n, tail, w, sent-w)
		to, from := slots[i:i+m], l.wire[j:j+m]
		copy(to, from)
		sum := uint64(0)
		for i := range from {
			d := &from[i]
			b := d.Buf
			sum += (uint64(d.Len) | uint64(d.Flags)<<32) & lenAndPart
			holder[b] = id
		}
		bytes += uint64(uint32(sum))
		packets += uint64(m) - sum>>32
		tail += m
		w += m
	}
	l.got = sent
	r.Stats.Packets.Add(packets)
	r.Stats.Bytes.Add(bytes)
	return tail
}

// Arm makes the descriptor signal when the sender publishes something or closes.
func (l receiver) Arm(*ring.Ring) {
	l.rx.event.set(false)
	l.rxArmed.Store(true)
	if l.txClosed.Load() {
		l.rx.event.set(true)
	}
}

// Refresh reports whether the other end is there.
func (l receiver) Refresh(*ring.Ring) error {
	if l.txClosed.Load() {
		return ring.ErrGone
	}
	return nil
}
