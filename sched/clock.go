package sched

import (
	"sync/atomic"
	"time"
)

// Clock is the coarse time of a worker: it reads a clock once a round and sets
// it here, for all of its queues. The zero value stands at 0. Anybody may read.
type Clock struct{ ns atomic.Int64 }

// Set sets the time, in nanoseconds of a monotonic clock. It must not go back.
func (c *Clock) Set(ns int64) { c.ns.Store(ns) }

// Now is the time that was set last.
func (c *Clock) Now() int64 { return c.ns.Load() }

// tick is the unit in which a Queue's dynamic limit counts time.
const tick = int64(time.Millisecond)
