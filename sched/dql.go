package sched

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// Bounds of a [DynamicLimit], in units.
const (
	// MaxObject is the largest object: 2^32/16 - 1.
	MaxObject = 1<<28 - 1
	// MaxLimit is the largest limit. MaxLimit + MaxObject is below 2^31, so
	// that totals which wrap at 2^32 can be told apart.
	MaxLimit = 1<<31 - 1 - MaxObject
)

// Stall thresholds, in ticks.
const (
	minStall  = 4
	maxStall  = 128
	histWords = 4
	wordBits  = 64
)

const slackUnset = 1<<32 - 1

// LimitOptions configure a [DynamicLimit]. A tick is whatever unit the caller
// counts time in, a millisecond in [Queue]. The zero value has no lower bound,
// the largest upper bound, and lowers the limit at every completion that shows
// slack.
type LimitOptions struct {
	Min, Max uint32 // bounds of the limit, in units; Max 0 means MaxLimit
	Hold     int64  // ticks that slack must last before the limit is lowered
	Stall    int    // ticks without completion that count as a stall, 4 to 128; 0 is off
}

// Validate says what is wrong with the options.
func (o LimitOptions) Validate() error {
	switch {
	case o.Max > MaxLimit:
		return fmt.Errorf("dynamic limit: max %d: must be at most %d", o.Max, MaxLimit)
	case o.Min > o.max():
		return fmt.Errorf("dynamic limit: min %d: must be at most max, %d", o.Min, o.max())
	case o.Hold < 0:
		return fmt.Errorf("dynamic limit: hold of %d ticks: must not be negative", o.Hold)
	case o.Stall != 0 && (o.Stall < minStall || o.Stall > maxStall):
		return fmt.Errorf("dynamic limit: stall threshold of %d ticks: must be 0 or %d to %d", o.Stall, minStall, maxStall)
	}
	return nil
}

func (o LimitOptions) max() uint32 {
	if o.Max == 0 {
		return MaxLimit
	}
	return o.Max
}

// DynamicLimit finds how many units (bytes, as [Queue] uses it) must be
// outstanding at a device so that it never runs dry between two completions,
// and no more. The limit grows at once when the device ran dry although more
// was waiting, by as much as was queued and completed in the interval; it
// shrinks by the smallest excess seen during the hold time, once per hold
// time. The rules are those of Linux's dynamic queue limits (DQL) as byte
// queue limits use them, in their present form.
//
// There are two sides: the producer ([DynamicLimit.Queued],
// [DynamicLimit.Avail]) and the completer ([DynamicLimit.Completed]). Each is
// one goroutine; they may be different ones and run at the same time. Each
// side's fields have cache lines of their own. Gauges and counters may be read
// by anybody.
//
// Totals are 32 bit and wrap. The units queued and completed for an object
// must be equal.
type DynamicLimit struct {
	p producer
	_ [lineGap]byte
	c completer
	_ [lineGap]byte
}

// lineGap bytes between two fields keep them out of one 128-byte block (two
// cache lines that processors fetch together), wherever the struct starts.
const lineGap = 128

// producer is written by the producer, but for adj, which the completer
// publishes: the total up to which may be queued.
type producer struct {
	lastObj atomic.Uint32
	queued  atomic.Uint32
	adj     atomic.Uint32
	stall   uint32 // threshold in ticks, 0 is off; constant

	// Ticks at which something was queued, one bit per tick: word w of the
	// time lies at hist[w%4], head is the newest word.
	hist [histWords]atomic.Uint64
	head atomic.Int64
}

// completer is written by the completer.
type completer struct {
	limit       atomic.Uint32
	completed   uint32
	prevOver    uint32 // how far over the limit the interval before ended
	prevQueued  uint32
	prevLastObj uint32
	lowestSlack uint32 // slackUnset when no slack was seen since slackStart
	slackStart  int64
	min, max    uint32
	hold        int64
	lastReap    int64

	grown, cut atomic.Uint64
	stalls     atomic.Uint64
	stallMax   atomic.Int64
}

// NewDynamicLimit returns a limit with nothing outstanding at tick now.
func NewDynamicLimit(o LimitOptions, now int64) (*DynamicLimit, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	d := new(DynamicLimit)
	d.p.stall = uint32(o.Stall)
	d.c.min, d.c.max, d.c.hold = o.Min, o.max(), o.Hold
	d.Reset(now)
	return d, nil
}

// Queued tells that one object of n units goes out at tick now. Producer. It
// answers false, and has done nothing, if n is more than [MaxObject].
func (d *DynamicLimit) Queued(n uint32, now int64) bool { return d.p.queue(n, n, now) }

// QueuedBatch tells that several objects go out at tick now: total units in
// all, last units in the last one. It does what Queued for each of them would
// do; total must be at most [MaxObject] too. Producer.
func (d *DynamicLimit) QueuedBatch(total, last uint32, now int64) bool {
	return d.p.queue(total, last, now)
}

// Avail is how many units may still be queued; negative means stop. At 0 one
// more object may go, however large. Producer.
func (d *DynamicLimit) Avail() int32 { return int32(d.p.adj.Load() - d.p.queued.Load()) }

// Completed tells that n units, in the order that they were queued, are done
// at tick now. n of 0 is not without effect. Completer. It answers false, and
// has done nothing, if n is more than what is outstanding.
func (d *DynamicLimit) Completed(n uint32, now int64) bool { return d.c.complete(&d.p, n, now) }

// Reset forgets what is outstanding and starts anew at tick now; neither side
// may be inside. Unlike Linux it also withdraws what may be queued: the first
// object after a reset is alone until it completes.
func (d *DynamicLimit) Reset(now int64) {
	p, c := &d.p, &d.c
	p.lastObj.Store(0)
	p.queued.Store(0)
	p.adj.Store(0)
	for i := range p.hist {
		p.hist[i].Store(0)
	}
	p.head.Store(now / wordBits)
	c.limit.Store(0)
	c.completed, c.prevOver, c.prevQueued, c.prevLastObj = 0, 0, 0, 0
	c.lowestSlack = slackUnset
	c.slackStart, c.lastReap = now, now
}

// Limit is the limit now. Anybody.
func (d *DynamicLimit) Limit() uint32 { return d.c.limit.Load() }

// Grown and Cut are how often the limit was too low and was raised, and how
// often it was too high and was lowered. Anybody.
func (d *DynamicLimit) Grown() uint64 { return d.c.grown.Load() }

// Cut: see [DynamicLimit.Grown].
func (d *DynamicLimit) Cut() uint64 { return d.c.cut.Load() }

// Stalls is how often there was no completion for the threshold's time with
// work outstanding, and the longest such time in ticks. Anybody.
func (d *DynamicLimit) Stalls() (n uint64, longest int64) {
	return d.c.stalls.Load(), d.c.stallMax.Load()
}

func (p *producer) queue(total, last uint32, now int64) bool {
	if total > MaxObject || last > total {
		return false
	}
	// The first access to the line is a store, so that the processor asks for
	// it exclusively at once, instead of shared and then again exclusively.
	p.lastObj.Store(last)
	p.queued.Add(total)
	if p.stall != 0 {
		p.note(now)
	}
	return true
}

// note records that something was queued at tick now.
func (p *producer) note(now int64) {
	w, head := now/wordBits, p.head.Load()
	if w != head {
		for i := int64(0); i < histWords && w != head+i; i++ {
			p.hist[uint64(head+i+1)%histWords].Store(0)
		}
		p.head.Store(w)
	}
	word := &p.hist[uint64(w)%histWords]
	if bit := uint64(1) << (uint64(now) % wordBits); word.Load()&bit == 0 {
		word.Store(word.Load() | bit)
	}
}

// posdiff is a-b of totals that wrap, 0 if that is negative.
func posdiff(a, b uint32) uint32 {
	if int32(a-b) > 0 {
		return a - b
	}
	return 0
}

func (c *completer) complete(p *producer, n uint32, now int64) bool {
	queued := p.queued.Load() // once: it grows while we look
	lastObj := p.lastObj.Load()
	if n > queued-c.completed {
		return false
	}
	limit := c.limit.Load()
	done := c.completed + n
	over := posdiff(queued-c.completed, limit)
	inprog, prevInprog := queued-done, c.prevQueued-c.completed
	allPrev := int32(done-c.prevQueued) >= 0

	was := limit
	switch {
	case over != 0 && inprog == 0, c.prevOver != 0 && allPrev:
		// It ran dry although more was waiting: grow by what was both
		// queued and completed since, and by what was over the limit.
		limit += posdiff(done, c.prevQueued) + c.prevOver
		c.slackStart, c.lowestSlack = now, slackUnset
	case inprog != 0 && prevInprog != 0 && !allPrev:
		limit = c.slack(limit, n, now)
	}
	limit = min(max(limit, c.min), c.max)
	if limit != was {
		c.limit.Store(limit)
		over = 0
		if int32(limit-was) > 0 {
			c.grown.Add(1)
		} else {
			c.cut.Add(1)
		}
	}
	p.adj.Store(limit + done)
	c.prevOver, c.prevLastObj = over, lastObj
	c.completed, c.prevQueued = done, queued
	if p.stall != 0 {
		c.watch(p, now)
	}
	return true
}

// slack notes how much of the limit was not needed in this interval, and
// returns the limit, lowered by the least of the hold time if that is over.
func (c *completer) slack(limit, n uint32, now int64) uint32 {
	slack := posdiff(limit+c.prevOver, 2*n)
	if c.prevOver != 0 {
		slack = max(slack, posdiff(c.prevLastObj, c.prevOver))
	}
	c.lowestSlack = min(c.lowestSlack, slack)
	if now-c.slackStart > c.hold {
		limit = posdiff(limit, c.lowestSlack)
		c.slackStart, c.lowestSlack = now, slackUnset
	}
	return limit
}

// watch looks for something that was queued after the last completion and has
// waited for this one at least about the threshold's time.
func (c *completer) watch(p *producer, now int64) {
	thr := int64(p.stall)
	if now >= c.lastReap+thr {
		if t, ok := c.firstPost(p, now, thr); ok {
			c.stalls.Add(1)
			c.stallMax.Store(max(c.stallMax.Load(), now-t))
		}
	}
	c.lastReap = now
}

// firstPost returns the first tick after the last completion at which
// something was queued; what was queued in the last half of the threshold's
// time is no evidence.
func (c *completer) firstPost(p *producer, now, thr int64) (int64, bool) {
	for {
		head := p.head.Load()
		from := max((head-histWords+1)*wordBits, c.lastReap+1, 0)
		to := head*wordBits + wordBits - 1
		if now < to+thr/2 {
			to = now - thr/2
		}
		found, t := false, from
		for ; t <= to && !found; t++ {
			found = p.hist[uint64(t/wordBits)%histWords].Load()>>(uint64(t)%wordBits)&1 != 0
		}
		if p.head.Load() == head { // else the producer cleared words meanwhile
			return t - 1, found
		}
	}
}

// errUnits: the units given back for an object are not those that were taken.
var errUnits = errors.New("dynamic limit: units completed and queued differ")
