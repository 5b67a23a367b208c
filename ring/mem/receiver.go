package mem

import "github.com/netring/netring/ring"

// receiver is the driver of the receive ring.
type receiver struct{ *link }

var (
	_ ring.Armer     = receiver{}
	_ ring.Refresher = receiver{}
)

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
	back, k := l.back, from
	for k != to {
		slots, wire := l.run(r, k, back, to-k)
		n := releaseRun(slots, wire, l.holder)
		k, back = k+n, back+n
		if n != uint32(len(wire)) {
			err = l.refuse(r, k, wire[n].Buf, l.rx.id)
			break
		}
	}
	if back != l.back {
		l.back = back
		l.released.Store(back)
		l.tx.wake(&l.txArmed, r)
	}
	return k, err
}

// releaseRun takes slots back and returns how many, up to the first whose buffer
// is not the program's.
func releaseRun(slots, wire []ring.Slot, holder []uint32) uint32 {
	slots = slots[:len(wire)]
	for i := range wire {
		b := slots[i].Buf
		if uint64(b) >= uint64(len(holder)) || holder[b] < taken {
			return uint32(i)
		}
		holder[b] = lent
		wire[i].Buf = b
	}
	return uint32(len(wire))
}

// grant gives the receiver what lies up to sent and returns the new tail.
func (l *link) grant(r *ring.Ring, sent uint32) (tail uint32) {
	if l.got == sent {
		return r.Tail()
	}
	tail = l.pass(&l.rx, r.Tail(), l.got, sent)
	l.got = sent
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
