package mem

import (
	"fmt"

	"github.com/netring/netring/ring"
)

// sender is the driver of the transmit ring.
type sender struct{ *link }

var (
	_ ring.Armer     = sender{}
	_ ring.Refresher = sender{}
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

// accept takes over the slots [from, to), up to the first bad one.
func (l *link) accept(r *ring.Ring, from, to uint32) (accepted uint32, err error) {
	for k := from; k != to; {
		slots, wire := l.run(r, k, l.accepted, to-k)
		n := acceptRun(slots, wire, l.holder, uint64(l.stride))
		k += n
		l.accepted += n
		if n != 0 {
			l.whole = l.accepted // each is a frame, or the end of one
		}
		if n != uint32(len(wire)) {
			if err := l.acceptOdd(r, k); err != nil {
				return k, err
			}
			k++
		}
	}
	return to, nil
}

// acceptRun takes over ordinary slots and returns how many, up to the first
// that is bad or has flags that ask for a closer look.
func acceptRun(slots, wire []ring.Slot, holder []uint32, stride uint64) uint32 {
	n := len(slots)
	for i := range slots {
		s := &slots[i]
		b := s.Buf
		if uint64(b) >= uint64(len(holder)) || holder[b] < taken || uint64(s.Off)+uint64(s.Len) > stride ||
			s.Flags&(ring.SlotVnet|ring.SlotMoreFrag) != 0 {
			n = i
			break
		}
		holder[b] = lent
	}
	return uint32(copy(wire, slots[:n]))
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

// reclaim gives the sender the slots up to released and counts their frames as
// sent; it returns the new tail.
func (l *link) reclaim(r *ring.Ring, released uint32) (tail uint32) {
	if l.reclaimed == released || l.idle() {
		return r.Tail()
	}
	tail = l.pass(&l.tx, r.Tail(), l.reclaimed, released)
	l.reclaimed = released
	return tail
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
