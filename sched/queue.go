package sched

import (
	"errors"
	"fmt"

	"github.com/netring/netring/ring"
)

// Queue is the transmit side of one port for one worker: it stands before one
// transmit ring, whose owner it is. See the package comment for what it does
// and [Options] for how it is set.
//
// All methods but Counters, Memory and Ring are for the worker's goroutine.
type Queue struct {
	tx   *ring.Ring
	mask uint32
	opt  Options

	stage     Stager
	staging   bool          // else only Flush rings the doorbell
	limit     *DynamicLimit // nil: the ring's size is the limit
	accounted bool          // lengths are looked at: there is staging or a limit

	// The limit's units per frame are the Len of its slots. sums holds, per
	// slot, the running total (modulo 2^32) up to and with this slot, so that
	// the bytes that a completion stands for are one subtraction, and are
	// those that were queued.
	sums   []uint32
	sum    uint32 // total up to Head
	done   uint32 // total up to reaped
	reaped uint32 // first slot that the device is not known to have finished

	pq      *PriorityQueue[uint32] // handles into store; nil if no frame may wait
	store   *store
	part    uint32 // the most bytes that a slot of tx takes
	evicted func(handle, bytes uint32, why Eviction)

	oactive bool   // the ring was found full, and has not got need slots since
	need    uint32 // slots that were wanted then
	stopped bool   // the limit was found reached
	busy    bool   // frames are outstanding
	since   int64  // since when, or time of the last completion
	err     error  // first error since the last Flush
	dead    bool   // until then everything is dropped, under cause
	cause   ring.Cause

	dirty    bool // there is something to publish
	tally    tally
	drops    [ring.NumCauses]uint64
	counters Counters
}

var _ ring.Egress = (*Queue)(nil)

// ErrStalled, from [Queue.Flush]: the ring has completed nothing for the
// watchdog's time although frames were outstanding.
var ErrStalled = errors.New("transmit ring completed nothing")

// NewQueue makes the queue before tx and becomes its owner. The memory for
// waiting frames is taken now.
func NewQueue(tx *ring.Ring, o Options) (*Queue, error) {
	if tx == nil || tx.Dir() != ring.TX {
		return nil, errors.New("sched: a queue needs a transmit ring")
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	q := &Queue{tx: tx, mask: uint32(tx.Len() - 1), opt: o, reaped: tx.Tail() - uint32(tx.Len())}
	q.part = uint32(tx.Region().BufSize() - tx.Offset())
	q.since = q.now()
	q.stage, q.staging = NewStager(o.StagePackets, o.StageBytes), o.StagePackets != 0
	if o.Limit {
		d, err := NewDynamicLimit(o.limitOptions(), q.now()/tick)
		if err != nil {
			return nil, fmt.Errorf("sched: %w", err)
		}
		q.limit = d
		q.sums = make([]uint32, tx.Len())
	}
	q.accounted = o.Limit || q.staging
	if o.QueuePackets != 0 {
		pq, err := NewPriorityQueue[uint32](o.QueuePackets, o.queueBytes(), o.Rule)
		if err != nil {
			return nil, fmt.Errorf("sched: %w", err)
		}
		q.pq = pq
		q.store = newStore(o.QueuePackets, o.storeBytes(tx))
		q.evicted = func(handle, _ uint32, why Eviction) {
			q.store.drop(handle)
			q.tally.evicted[why]++
			q.drop(ring.DropFull, 1)
		}
	}
	return q, nil
}

// Ring is the transmit ring.
func (q *Queue) Ring() *ring.Ring { return q.tx }

// Counters may be read by anybody at any time.
func (q *Queue) Counters() *Counters { return &q.counters }

// Memory is what the queue has taken for waiting frames and its accounts, in
// bytes. It does not change.
func (q *Queue) Memory() int {
	n := 4 * len(q.sums)
	if q.store != nil {
		n += len(q.store.mem) + 4*len(q.store.next) + 24*len(q.store.records) + 12*q.opt.QueuePackets
	}
	return n
}

// Waiting is the number of frames in the two-level queue.
func (q *Queue) Waiting() int {
	if q.pq == nil {
		return 0
	}
	return q.pq.Len()
}

func (q *Queue) now() int64 {
	if q.opt.Clock == nil {
		return 0
	}
	return q.opt.Clock.Now()
}

func (q *Queue) drop(cause ring.Cause, n uint64) { q.drops[cause] += n }

// Purge drops all frames that wait or are in slots that the device was not
// given, under the given cause, and publishes the counters: for the end of a
// worker, or a port that is taken out.
func (q *Queue) Purge(cause ring.Cause) {
	head := q.tx.Head
	q.tx.Head = q.tx.Accepted()
	q.tx.Cur = q.tx.Head
	q.unsend(head, cause)
	q.purge(cause)
	q.publish()
}

func (q *Queue) purge(cause ring.Cause) {
	for q.Waiting() != 0 {
		handle, _, _ := q.pq.Pop()
		q.store.drop(handle)
		q.drop(cause, 1)
	}
	q.dirty = true
}

// publish adds what was counted to the counters that others read.
func (q *Queue) publish() {
	if !q.dirty {
		return
	}
	q.dirty = false
	c := &q.counters
	c.add(&q.tally)
	q.tally = tally{}
	for cause, n := range q.drops {
		q.tx.Stats.Drop(ring.Cause(cause), n)
	}
	clear(q.drops[:])
	if q.pq != nil {
		set(&c.Waiting, uint64(q.pq.Len()))
		set(&c.WaitingBytes, uint64(q.pq.Bytes()))
		set(&c.WaitingPriority, uint64(q.pq.PriorityLen()))
		set(&c.WaitingPriorityBytes, uint64(q.pq.PriorityBytes()))
	}
	var oactive uint64
	if q.oactive {
		oactive = 1
	}
	set(&c.OActive, oactive)
	if d := q.limit; d != nil {
		set(&c.Limit, uint64(d.Limit()))
		set(&c.Inflight, uint64(q.sum-q.done))
		set(&c.LimitGrown, d.Grown())
		set(&c.LimitCut, d.Cut())
		stalls, longest := d.Stalls()
		set(&c.Stalls, stalls)
		set(&c.StallMax, uint64(longest))
	}
}
