package sched

import (
	"errors"
	"fmt"

	"github.com/netring/netring/ring"
)

// Flush is [ring.Egress.Flush]. An error that Is [ring.ErrLinkDown],
// [ring.ErrGone] or [ring.ErrClosed] means that what was on its way has been
// dropped and counted; with [ErrStalled] what the device had is lost too. Any
// other error of the driver leaves the frames in place for the next Flush.
func (q *Queue) Flush() error {
	if q.tx.Pending() != 0 || q.Waiting() != 0 {
		q.dirty = true
		q.pump(&q.tally.bellRollup)
		q.watchdog()
	}
	q.publish()
	err := q.err
	q.err, q.dead = nil, false
	return err
}

// sync rings the doorbell, counted in bell if the device is told of new slots,
// and takes completions.
func (q *Queue) sync(bell *uint64) {
	tx := q.tx
	head := tx.Head
	if head != tx.Accepted() {
		*bell++
		if !q.busy {
			q.busy, q.since = true, q.now()
		}
	}
	err := tx.Sync()
	q.stage.Rollup()
	q.reap()
	if err != nil {
		q.fail(err, head)
	}
	q.busy = tx.Pending() != 0
}

// reap brings the accounts up to what the device has finished.
func (q *Queue) reap() {
	finished := q.tx.Tail() - uint32(q.tx.Len())
	if finished == q.reaped {
		return
	}
	q.reaped = finished
	q.since = q.now()
	if q.limit != nil {
		total := q.sums[(finished-1)&q.mask]
		q.complete(total - q.done)
		q.done = total
	}
	q.open()
}

// complete tells the limit of so many bytes less in the device's hands.
func (q *Queue) complete(bytes uint32) {
	if bytes == 0 {
		return // to the limit, that would not be nothing
	}
	now := q.now() / tick
	if !q.limit.Completed(bytes, now) {
		// Only if the driver finished slots that it was not given.
		q.limit.Reset(now)
		q.note(q.opError("complete", errUnits))
	}
}

// open takes back the signs of a full ring that hold no more.
func (q *Queue) open() {
	if q.oactive && uint32(q.tx.Space()) >= q.need {
		q.oactive = false
	}
	if q.stopped && q.limit.Avail() >= 0 {
		q.stopped = false
	}
}

// fail deals with an error of a sync before which Head was head.
func (q *Queue) fail(err error, head uint32) {
	q.note(err)
	tx := q.tx
	cause := ring.DropRefused
	switch {
	case errors.Is(err, ring.ErrLinkDown), errors.Is(err, ring.ErrGone):
		cause = ring.DropLink
		q.since = q.now() // not stalled: it may go on when the link is back
		q.dead, q.cause = true, cause
		q.purge(cause)
	case errors.Is(err, ring.ErrClosed):
		cause = ring.DropClosed
		tx.Head = tx.Accepted()
		tx.Cur = tx.Head
		q.dead, q.cause = true, cause
		q.purge(cause)
	case errors.Is(err, ring.ErrSlot), errors.Is(err, ring.ErrCursor):
		// Would fail again.
	default:
		tx.Head, tx.Cur = head, head
		return
	}
	q.unsend(head, cause)
}

// unsend drops the frames in slots from Head to to, which the device was not
// given.
func (q *Queue) unsend(to uint32, cause ring.Cause) {
	from := q.tx.Head
	if from == to {
		return
	}
	q.drop(cause, q.frames(from, to))
	q.stage.Rollup()
	if q.limit != nil {
		keep := q.done
		if from != q.reaped {
			keep = q.sums[(from-1)&q.mask]
		}
		bytes := q.sum - keep
		q.sum = keep
		q.complete(bytes)
	}
	q.open()
}

// watchdog makes a ring anew that has not completed anything for too long.
func (q *Queue) watchdog() {
	now := q.now()
	if q.opt.Watchdog == 0 || !q.busy || now-q.since < int64(q.opt.Watchdog) {
		return
	}
	q.tally.watchdog++
	q.since = now
	tx := q.tx
	head := tx.Head
	tx.Head = tx.Accepted()
	tx.Cur = tx.Head
	if err := tx.Reset(); err != nil {
		tx.Head, tx.Cur = head, head
		q.note(q.opError("watchdog", fmt.Errorf("%w for %v, and could not be reset: %w", ErrStalled, q.opt.Watchdog, err)))
		return
	}
	q.unsend(head, ring.DropClosed)
	q.reaped, q.done = tx.Head, q.sum
	if q.limit != nil {
		q.limit.Reset(now / tick)
	}
	q.busy = false
	q.open()
	q.note(q.opError("watchdog", fmt.Errorf("%w for %v: ring reset", ErrStalled, q.opt.Watchdog)))
}

// note keeps the first error until Flush returns it.
func (q *Queue) note(err error) {
	if q.err == nil {
		q.err = err
	}
}

func (q *Queue) opError(op string, err error) error {
	return &ring.OpError{Op: op, Port: q.tx.Port() + " tx", Ring: q.tx.Index(), Err: err}
}
