package sched

import "github.com/netring/netring/ring"

// Move is [ring.Egress.Move].
func (q *Queue) Move(src *ring.Ring, n int) int {
	if n <= 0 {
		return 0
	}
	q.dirty = true
	taken := 0
	if q.Waiting() == 0 && !q.dead {
		taken = q.direct(src, n)
		if taken == n || frameSlots(src, src.Head) == 0 {
			return taken
		}
	}
	if q.dead {
		k := ring.Skip(src, n-taken)
		q.drop(q.cause, uint64(k))
		return taken + k
	}
	return taken + q.hold(src, n-taken)
}

// Copy is [ring.Egress.Copy].
func (q *Queue) Copy(src *ring.Ring, k uint32) {
	q.dirty = true
	slots := frameSlots(src, k)
	if slots == 0 {
		return
	}
	if q.Waiting() == 0 && q.copyDirect(src, k, ring.Needs(q.tx, src, k, true)) {
		return
	}
	if q.dead {
		q.drop(q.cause, 1)
		return
	}
	if q.pq != nil && q.pq.Full() && q.opt.Full == Backpressure {
		// Nothing is displaced for a frame that cannot be held back.
		q.tally.refused++
		q.drop(ring.DropFull, 1)
		return
	}
	q.enqueue(src, k, slots)
}

// copyDirect is Copy straight into the ring, where slots slots are wanted; false
// if it cannot be done now.
func (q *Queue) copyDirect(src *ring.Ring, k, slots uint32) bool {
	if q.blocked(slots) != 0 && q.err == nil {
		q.sync(&q.tally.bellForced)
	}
	if why := q.blocked(slots); why != 0 {
		q.stop(why, slots)
		return false
	}
	head := q.tx.Head
	if q.dead || !ring.Copy(q.tx, src, k) {
		return false
	}
	q.tally.direct += q.frames(head, q.tx.Head)
	q.account(head)
	return true
}

// direct moves frames from ring to ring as long as there is room and the limit
// allows, up to n.
func (q *Queue) direct(src *ring.Ring, n int) int {
	taken, looked := 0, false
	for {
		taken += q.step(src, n-taken)
		if taken == n {
			return taken
		}
		slots := ring.Needs(q.tx, src, src.Head, false)
		if slots == 0 {
			return taken
		}
		why := q.blocked(slots)
		if why == 0 {
			continue
		}
		// Ring the doorbell: what is staged may be done at once. With nothing
		// staged, look once whether something has completed.
		if q.err != nil || q.tx.Head == q.tx.Accepted() && looked {
			q.stop(why, slots)
			return taken
		}
		looked = true
		q.sync(&q.tally.bellForced)
		if q.dead {
			return taken
		}
	}
}

// step moves up to n frames from ring to ring: until the doorbell is due, the
// limit is reached, or before a frame of several slots of src.
func (q *Queue) step(src *ring.Ring, n int) int {
	tx := q.tx
	head := tx.Head
	if !q.accounted {
		m := ring.Move(tx, src, n)
		q.tally.direct += q.frames(head, tx.Head)
		return m
	}
	if q.blocked(1) != 0 {
		return 0
	}
	p := q.plan(src, min(n, tx.Space(), src.Space()))
	m := ring.Move(tx, src, max(p.frames, 1)) // a frame of several slots goes alone
	if m != p.frames || tx.Head-head != uint32(m) {
		// Not as planned, as some were dropped: look at what is there.
		q.tally.direct += q.frames(head, tx.Head)
		q.account(head)
		return m
	}
	q.tally.direct += uint64(m)
	q.stage = p.stage
	q.queued(p.sum, p.last)
	if p.due {
		q.ringStaged()
	}
	return m
}

// plan is what a step is going to do, if all frames can be sent.
type plan struct {
	frames int
	sum    uint32 // running total after it
	last   uint32 // length of the last frame
	stage  Stager
	due    bool // the doorbell is
}

// maxBatch bounds the bytes of a step, so that it is a legal object of the limit.
const maxBatch = MaxObject - 2*ring.MaxFrame

// plan looks at the lengths of up to n frames at the head of src and enters
// them into the accounts of the slots that they will go to.
func (q *Queue) plan(src *ring.Ring, n int) plan {
	p := plan{stage: q.stage}
	avail := int64(maxBatch)
	if q.limit != nil {
		avail = min(avail, int64(q.limit.Avail()))
	}
	sum, last, from, to := q.sum, uint32(0), src.Head, q.tx.Head
	i := uint32(0)
	for ; i < uint32(n) && avail >= 0; i++ {
		s := src.Slot(from + i)
		if s.Flags&ring.SlotMoreFrag != 0 {
			break
		}
		last = s.Len
		sum += last
		avail -= int64(last)
		if q.limit != nil {
			q.sums[(to+i)&q.mask] = sum
		}
		if q.staging && p.stage.Packet(last) != 0 {
			p.due = true
			i++
			break
		}
	}
	p.frames, p.sum, p.last = int(i), sum, last
	return p
}

// account enters the frames that lie in the slots from from to Head into the
// accounts, and rings the doorbell if it is due.
func (q *Queue) account(from uint32) {
	if !q.accounted {
		return
	}
	tx := q.tx
	sum, frame, last, due := q.sum, uint32(0), uint32(0), false
	for k := from; k != tx.Head; k++ {
		s := tx.Slot(k)
		sum += s.Len
		frame += s.Len
		if q.limit != nil {
			q.sums[k&q.mask] = sum
		}
		if s.Flags&ring.SlotMoreFrag != 0 {
			continue
		}
		if q.staging && q.stage.Packet(frame) != 0 {
			due = true
		}
		last, frame = frame, 0
	}
	q.queued(sum, last)
	if due {
		q.ringStaged()
	}
}

// queued brings the running total to sum; the last frame has last bytes.
func (q *Queue) queued(sum, last uint32) {
	if q.limit != nil && sum != q.sum {
		q.limit.QueuedBatch(sum-q.sum, last, q.now()/tick)
	}
	q.sum = sum
}

// ringStaged rings a doorbell that the staging asks for, unless an error of
// this round makes that pointless.
func (q *Queue) ringStaged() {
	if q.err == nil {
		q.sync(&q.tally.bellStaged)
	}
}

// Reasons why a frame cannot go into the ring.
const (
	noSlots = 1 + iota
	overLimit
)

// blocked says why a frame of so many slots may not go into the ring now, 0 if
// it may.
func (q *Queue) blocked(slots uint32) int {
	switch {
	case uint32(q.tx.Space()) < slots:
		return noSlots
	case q.limit != nil && q.limit.Avail() < 0:
		return overLimit
	}
	return 0
}

// stop notes that frames have to wait for completions.
func (q *Queue) stop(why int, slots uint32) {
	switch {
	case why == noSlots && !q.oactive && slots <= uint32(q.tx.Len()):
		q.oactive, q.need = true, slots
		q.tally.oactives++
	case why == overLimit && !q.stopped:
		q.stopped = true
		q.tally.limitStops++
	}
}

// frameSlots is the number of slots of the frame at slot k of r, 0 if its end
// has not arrived.
func frameSlots(r *ring.Ring, k uint32) uint32 {
	for i := uint32(0); i != r.Tail()-k; i++ {
		if r.Slot(k+i).Flags&ring.SlotMoreFrag == 0 {
			return i + 1
		}
	}
	return 0
}

// frames counts the frames in slots [from, to) of the transmit ring.
func (q *Queue) frames(from, to uint32) (n uint64) {
	if !q.tx.MultiSlot() {
		return uint64(to - from)
	}
	for ; from != to; from++ {
		if q.tx.Slot(from).Flags&ring.SlotMoreFrag == 0 {
			n++
		}
	}
	return n
}
