package sched

import "github.com/netring/netring/ring"

// hold takes up to n frames from the head of src into the two-level queue, by
// the policy for full queues.
func (q *Queue) hold(src *ring.Ring, n int) int {
	taken, pumped := 0, false
	for taken < n {
		slots := frameSlots(src, src.Head)
		if slots == 0 {
			break
		}
		if q.pq != nil && q.pq.Full() && !pumped {
			pumped = true
			q.pump(&q.tally.bellForced)
			continue
		}
		if q.opt.Full == Backpressure && (q.pq == nil || q.pq.Full()) {
			q.tally.held++
			break
		}
		q.enqueue(src, src.Head, slots)
		taken += ring.Skip(src, 1)
	}
	return taken
}

// enqueue puts a copy of the frame in the slots slots of src from k into the
// two-level queue, or drops it or others by the queue's rule.
func (q *Queue) enqueue(src *ring.Ring, k, slots uint32) {
	bytes, cause, ok := q.sendable(src, k, slots)
	if !ok {
		q.drop(cause, 1)
		return
	}
	if q.pq == nil {
		q.drop(ring.DropFull, 1)
		return
	}
	prio := q.opt.Classifier != nil && q.opt.Classifier.Priority(src.Frame(k))
	if !q.pq.Room(prio, q.evicted) {
		q.tally.refused++
		if prio {
			q.tally.refusedPriority++
		}
		q.drop(ring.DropFull, 1)
		return
	}
	handle, cause, ok := q.store.put(src, k, slots)
	if !ok {
		q.drop(cause, 1)
		return
	}
	q.pq.Push(handle, bytes, prio)
	q.tally.queued++
	if prio {
		q.tally.priority++
	}
}

// sendable says how many bytes the frame has, or why the transmit ring can
// never send it.
func (q *Queue) sendable(src *ring.Ring, k, slots uint32) (bytes uint32, cause ring.Cause, ok bool) {
	tx := q.tx
	var total uint64
	for i := range slots {
		total += uint64(src.Slot(k + i).Len)
	}
	flags := src.Slot(k).Flags
	switch {
	case flags&ring.SlotVnet != 0 && tx.VnetLen() == 0:
		return 0, ring.DropOffload, false
	case total > ring.MaxFrame, total > uint64(tx.MaxFrame()) && flags&ring.SlotGSO == 0:
		return 0, ring.DropOversize, false
	case tx.MultiSlot():
		ok = q.parts(uint32(total)) <= uint32(tx.Len())
	default:
		ok = uint32(total) <= q.part
	}
	return uint32(total), ring.DropOversize, ok
}

// parts is the number of slots of tx for a waiting frame of so many bytes.
func (q *Queue) parts(bytes uint32) uint32 {
	if bytes <= q.part {
		return 1
	}
	if q.part == 0 {
		return ^uint32(0)
	}
	return (bytes + q.part - 1) / q.part
}

// pump takes completions and sends waiting frames, as long as one brings the
// other forward. It ends, as each turn takes frames from a queue that nobody
// fills meanwhile.
func (q *Queue) pump(bell *uint64) {
	q.sync(bell)
	for q.err == nil && q.drain() {
		q.sync(bell)
	}
}

// drain puts waiting frames into the ring up to its room and the limit, and
// reports whether there were any.
func (q *Queue) drain() (any bool) {
	for q.Waiting() != 0 && q.err == nil {
		_, bytes, _ := q.pq.Peek()
		parts := q.parts(bytes)
		if why := q.blocked(parts); why != 0 {
			q.stop(why, parts)
			break
		}
		handle, _, _ := q.pq.Pop()
		q.place(handle, parts)
		q.store.drop(handle)
		any = true
	}
	return any
}

// place copies a waiting frame into the next parts slots of the ring.
func (q *Queue) place(handle, parts uint32) {
	tx, rec := q.tx, &q.store.records[handle]
	from, left := q.store.read(handle), rec.length
	for i := range parts {
		k := tx.Head + i
		n := min(left, q.part)
		b := tx.Buf(k)
		if uint32(len(b)) < n {
			q.drop(ring.DropMalformed, 1)
			return
		}
		from.read(b[:n])
		s := tx.Slot(k)
		s.Len, s.Flags = n, rec.flags
		if i != 0 {
			s.Flags &^= ring.SlotVnet | ring.SlotGSO
		}
		if i+1 < parts {
			s.Flags |= ring.SlotMoreFrag
		}
		left -= n
	}
	if rec.flags&ring.SlotVnet != 0 && !tx.SetVnet(tx.Head, &rec.vnet) {
		q.drop(ring.DropMalformed, 1)
		return
	}
	head := tx.Head
	tx.Head += parts
	tx.Cur = tx.Head
	q.account(head)
}
