package sched

import "sync/atomic"

// Counters of one [Queue]. Its owner adds to them once per round, in
// [Queue.Flush]; anybody may read them at any time. Dropped frames are counted
// by cause in the Stats of the transmit ring, each under exactly one cause;
// here is what led to them.
type Counters struct {
	Direct   atomic.Uint64 // frames that went straight into the transmit ring
	Queued   atomic.Uint64 // frames that had to wait
	Priority atomic.Uint64 // those of Queued that had priority

	// Evicted are frames that waited and gave way, by cause; Refused are
	// those that found the queue full. Both are drops (full).
	Evicted [NumEvictions]atomic.Uint64
	Refused atomic.Uint64
	// Held is how often frames were left in their receive ring (back-pressure).
	Held atomic.Uint64

	// Doorbells that handed slots over: as the staging bound was reached, at
	// the end of a round, and as the ring or the limit was full.
	BellStaged, BellRollup, BellForced atomic.Uint64
	// OActives is how often the transmit ring was found full, LimitStops how
	// often the dynamic limit was reached.
	OActives, LimitStops atomic.Uint64
	// Watchdog is how often the ring had to be made anew since it completed
	// nothing for too long.
	Watchdog atomic.Uint64

	// Of the dynamic limit: how often it was raised and lowered, stalls, and
	// the longest of them in milliseconds.
	LimitGrown, LimitCut, Stalls, StallMax atomic.Uint64

	// Gauges, as of the last Flush.
	Limit        atomic.Uint64 // bytes; 0 without a dynamic limit
	Inflight     atomic.Uint64 // bytes in the transmit ring; 0 without a dynamic limit
	OActive      atomic.Uint64 // 1 while the transmit ring is full
	Waiting      atomic.Uint64 // frames
	WaitingBytes atomic.Uint64
}

// tally is what a Queue has counted since it last published.
type tally struct {
	direct, queued, priority           uint64
	evicted                            [NumEvictions]uint64
	refused, held                      uint64
	bellStaged, bellRollup, bellForced uint64
	oactives, limitStops, watchdog     uint64
}

func add(c *atomic.Uint64, n uint64) {
	if n != 0 {
		c.Add(n)
	}
}

// set writes a gauge, which mostly has not changed: reading is cheaper.
func set(c *atomic.Uint64, v uint64) {
	if c.Load() != v {
		c.Store(v)
	}
}

func (c *Counters) add(t *tally) {
	add(&c.Direct, t.direct)
	add(&c.Queued, t.queued)
	add(&c.Priority, t.priority)
	for i, n := range t.evicted {
		add(&c.Evicted[i], n)
	}
	add(&c.Refused, t.refused)
	add(&c.Held, t.held)
	add(&c.BellStaged, t.bellStaged)
	add(&c.BellRollup, t.bellRollup)
	add(&c.BellForced, t.bellForced)
	add(&c.OActives, t.oactives)
	add(&c.LimitStops, t.limitStops)
	add(&c.Watchdog, t.watchdog)
}
