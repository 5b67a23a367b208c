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
	// RefusedPriority are those of Refused that had priority.
	Evicted                  [NumEvictions]atomic.Uint64
	Refused, RefusedPriority atomic.Uint64
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
	// Those of them that have priority.
	WaitingPriority, WaitingPriorityBytes atomic.Uint64
}

// Counts is a copy of [Counters], or the sum of several. The JSON keys are
// stable.
type Counts struct {
	Direct             uint64 `json:"direct_packets"`
	Queued             uint64 `json:"queued_packets"`
	Priority           uint64 `json:"priority_packets"`
	Evicted            uint64 `json:"evicted_packets"` // for all causes
	EvictedForPriority uint64 `json:"evicted_for_priority"`
	EvictedForNewer    uint64 `json:"evicted_for_newer"`
	EvictedPriority    uint64 `json:"evicted_priority"`
	Refused            uint64 `json:"refused_packets"`
	RefusedPriority    uint64 `json:"refused_priority"`
	Held               uint64 `json:"held_back"`
	BellStaged         uint64 `json:"doorbells_staged"`
	BellRollup         uint64 `json:"doorbells_rollup"`
	BellForced         uint64 `json:"doorbells_forced"`
	OActives           uint64 `json:"oactives"`
	LimitStops         uint64 `json:"limit_stops"`
	LimitGrown         uint64 `json:"limit_grown"`
	LimitCut           uint64 `json:"limit_cut"`
	Stalls             uint64 `json:"limit_stalls"`
	Watchdog           uint64 `json:"watchdog_resets"`

	// Gauges.
	Limit                uint64 `json:"limit_bytes"`
	Inflight             uint64 `json:"inflight_bytes"`
	OActive              uint64 `json:"oactive"` // how many transmit rings are full
	Waiting              uint64 `json:"waiting_packets"`
	WaitingBytes         uint64 `json:"waiting_bytes"`
	WaitingPriority      uint64 `json:"waiting_priority"`
	WaitingPriorityBytes uint64 `json:"waiting_priority_bytes"`
}

// AddTo adds the counters to sum.
func (c *Counters) AddTo(sum *Counts) {
	sum.Direct += c.Direct.Load()
	sum.Queued += c.Queued.Load()
	sum.Priority += c.Priority.Load()
	for i, n := range [NumEvictions]*uint64{&sum.EvictedForPriority, &sum.EvictedForNewer, &sum.EvictedPriority} {
		evicted := c.Evicted[i].Load()
		*n += evicted
		sum.Evicted += evicted
	}
	sum.Refused += c.Refused.Load()
	sum.RefusedPriority += c.RefusedPriority.Load()
	sum.Held += c.Held.Load()
	sum.BellStaged += c.BellStaged.Load()
	sum.BellRollup += c.BellRollup.Load()
	sum.BellForced += c.BellForced.Load()
	sum.OActives += c.OActives.Load()
	sum.LimitStops += c.LimitStops.Load()
	sum.LimitGrown += c.LimitGrown.Load()
	sum.LimitCut += c.LimitCut.Load()
	sum.Stalls += c.Stalls.Load()
	sum.Watchdog += c.Watchdog.Load()
	sum.Limit += c.Limit.Load()
	sum.Inflight += c.Inflight.Load()
	sum.OActive += c.OActive.Load()
	sum.Waiting += c.Waiting.Load()
	sum.WaitingBytes += c.WaitingBytes.Load()
	sum.WaitingPriority += c.WaitingPriority.Load()
	sum.WaitingPriorityBytes += c.WaitingPriorityBytes.Load()
}

// tally is what a Queue has counted since it last published.
type tally struct {
	direct, queued, priority           uint64
	evicted                            [NumEvictions]uint64
	refused, refusedPriority, held     uint64
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
	add(&c.RefusedPriority, t.refusedPriority)
	add(&c.Held, t.held)
	add(&c.BellStaged, t.bellStaged)
	add(&c.BellRollup, t.bellRollup)
	add(&c.BellForced, t.bellForced)
	add(&c.OActives, t.oactives)
	add(&c.LimitStops, t.limitStops)
	add(&c.Watchdog, t.watchdog)
}
