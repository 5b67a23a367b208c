package poll

import (
	"fmt"
	"math"
	"time"
)

// ControllerConfig are the knobs of a [Controller]. A zero means the default
// that is given with it; UserFrac has none, 0 is 0.
type ControllerConfig struct {
	HZ        int // clock ticks a second, 1 to 100000; 1000
	Burst     int // where the burst starts; BurstMin
	BurstMin  int // floor of the burst, so BurstMin*HZ packets a second are promised to each handler; 16
	BurstMax  int // ceiling of the burst, up to 1<<20; 4096
	EachBurst int // packets that a handler may move in one call, at most BurstMax; 64
	UserFrac  int // percent of the CPU left to everybody else, 0 to 99
	RegFrac   int // ticks from one status check to the next, at most HZ; 20, or HZ if that is less
}

const (
	maxHZ    = 100_000
	maxBurst = 1 << 20
	// stallTicks outstanding ticks and more are a stall: the worker was
	// stopped, and working all of them off would be a flood.
	stallTicks = 100
)

func (c ControllerConfig) withDefaults() ControllerConfig {
	set := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	set(&c.HZ, 1000)
	set(&c.BurstMax, max(4096, c.BurstMin, c.Burst, c.EachBurst))
	set(&c.BurstMin, min(16, c.BurstMax))
	set(&c.Burst, c.BurstMin)
	set(&c.EachBurst, min(64, c.BurstMax))
	set(&c.RegFrac, min(20, max(c.HZ, 1)))
	return c
}

// Validate reports the first knob that is out of its range.
func (c ControllerConfig) Validate() error {
	c = c.withDefaults()
	for _, k := range []struct {
		name         string
		v, low, high int
	}{
		{"hz", c.HZ, 1, maxHZ},
		{"burst_max", c.BurstMax, 1, maxBurst},
		{"burst_min", c.BurstMin, 1, c.BurstMax},
		{"burst", c.Burst, c.BurstMin, c.BurstMax},
		{"each_burst", c.EachBurst, 1, c.BurstMax},
		{"user_frac", c.UserFrac, 0, 99},
		{"reg_frac", c.RegFrac, 1, c.HZ},
	} {
		if k.v < k.low || k.v > k.high {
			return fmt.Errorf("poll: %s is %d: must be between %d and %d", k.name, k.v, k.low, k.high)
		}
	}
	return nil
}

// Controller decides how many packets each handler may move in a tick, so that
// polling takes no more than its share of the CPU: the burst controller of
// FreeBSD's device polling (Rizzo, 2001), with that work's first promise kept,
// a floor under the burst.
//
// A tick schedules a pass. A pass hands out the burst in chunks of EachBurst:
// the caller asks [Controller.Begin] for a chunk, lets every handler move that
// many packets, and reports with [Controller.End]; it goes on until Begin
// gives no budget. The end of a pass compares what it took with the share and
// moves the burst by one packet, and by an eighth downwards for each tick that
// was missed meanwhile.
//
// It has no clock: all times are the caller's. Ticks and chunks may be timed
// by different clocks; time the chunks by the thread's CPU clock, and the time
// in which somebody else had the core is not taken for the handlers' work.
//
// One goroutine at a time.
type Controller struct {
	cfg    ControllerConfig
	period time.Duration // of a tick

	burst    int
	residual int // of this pass, not handed out yet
	regCount int
	pending  uint64 // ticks not worked off
	begun    bool   // the pass of the oldest pending tick has begun
	excused  bool   // the ticks that are pending at the end of this pass cost nothing
	prev     time.Duration
	start    time.Duration // of this pass
	load     int64         // percent of a tick that the last pass took
	count    ControllerCounts
}

// ControllerCounts are sums since the start, and two gauges.
type ControllerCounts struct {
	Short   uint64 // ticks less than half a period after the one before
	Lost    uint64 // ticks that came while an earlier one was not worked off
	Suspect uint64 // ticks that found an earlier pass scheduled and not begun
	Stalled uint64 // times that over 100 ticks were outstanding, and were forgotten
	Pending uint64 // gauge: ticks not worked off
	Burst   int    // gauge: packets for each handler and tick
}

// NewController returns a controller at rest. Its first tick is never short
// unless it comes within half a period of time 0.
func NewController(cfg ControllerConfig) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return &Controller{cfg: cfg, period: time.Second / time.Duration(cfg.HZ), burst: cfg.Burst}, nil
}

// Config returns the knobs, defaults filled in.
func (c *Controller) Config() ControllerConfig { return c.cfg }

// Period is the time from tick to tick.
func (c *Controller) Period() time.Duration { return c.period }

// Counts returns the counters.
func (c *Controller) Counts() ControllerCounts {
	n := c.count
	n.Pending, n.Burst = c.pending, c.burst
	return n
}

// Load returns what the last pass took, in percent of a tick.
func (c *Controller) Load() int64 { return c.load }

// Scheduled reports whether there is a pass to do or to finish.
func (c *Controller) Scheduled() bool { return c.pending != 0 }

// Tick is one tick of the clock at time now.
func (c *Controller) Tick(now time.Duration) {
	// Half a tick is exactly as many units on both sides; in 64 bits the
	// product lasts for 26 hours at the highest HZ.
	if d := now - c.prev; satMul(d, c.cfg.HZ) < int64(time.Second)/2 {
		c.count.Short++
	} else {
		c.prev = now
	}
	if c.pending > stallTicks {
		c.stall()
	}
	if c.pending != 0 {
		c.count.Lost++
		if !c.begun {
			c.count.Suspect++
		}
	}
	c.pending++
}

// Ticks is n ticks at once, the last of them at time now: what a caller does
// that was held up. More than 100 are a pause and no load: they count as one
// stall, and only the last of them is worked off.
func (c *Controller) Ticks(now time.Duration, n uint64) {
	if n > stallTicks {
		c.stall()
		c.prev = now - c.period
		n = 1
	}
	for ; n > 0; n-- {
		c.Tick(now - time.Duration(n-1)*c.period)
	}
}

// Resume says that the time until now was spent asleep, on purpose: the next
// tick counts from here.
func (c *Controller) Resume(now time.Duration) { c.prev = now }

// stall forgets the outstanding ticks.
func (c *Controller) stall() {
	c.count.Stalled++
	c.pending, c.begun = 0, false
}

// Begin starts the next chunk at time now: every handler may move budget
// packets, and looks after its status first if check is set. A budget of 0
// means that nothing is scheduled.
func (c *Controller) Begin(now time.Duration) (budget int, check bool) {
	if c.pending == 0 {
		return 0, false
	}
	if c.residual == 0 {
		c.start = now
		c.regCount++
		if c.regCount >= c.cfg.RegFrac {
			c.regCount, check = 0, true
		}
		c.residual = c.burst
	}
	c.begun = true
	budget = min(c.residual, c.cfg.EachBurst)
	c.residual -= budget
	return budget, check
}

// End ends the chunk that Begin started, at time now. It reports whether that
// was the last chunk of a pass.
func (c *Controller) End(now time.Duration) (last bool) {
	if c.residual > 0 {
		return false
	}
	c.load = satMul(now-c.start, c.cfg.HZ) / int64(time.Second/100)
	if c.load > int64(100-c.cfg.UserFrac) {
		c.burst--
	} else {
		c.burst++
	}
	c.clamp()
	if c.pending > 0 { // a stall meanwhile may have taken our tick away
		c.pending--
	}
	if c.pending == 0 {
		c.begun = false
	} else if !c.excused {
		c.burst -= c.burst / 8
		c.clamp()
	}
	c.excused = false
	return true
}

// Excuse says that the handlers are not to blame for the ticks that were
// missed during this pass: it would have been in time, had the worker had its
// core. They are worked off like others and do not lower the burst. This is
// ours: in the kernel, where the rule is from, nobody takes the core from a
// pass. A cut of an eighth for each time that somebody does and a step of one
// up for each tick leave a burst of 8*HZ/(times a second), whatever the
// handlers could do.
func (c *Controller) Excuse() { c.excused = true }

// Skip gives up the rest of the burst of the pass that is being done, for when
// no handler has anything left to do; the End of the current chunk is the last.
func (c *Controller) Skip() { c.residual = 0 }

// fresh reports whether the next Begin starts a pass; last, whether the next
// End ends one. Only then do they use their times.
func (c *Controller) fresh() bool { return c.residual == 0 }
func (c *Controller) last() bool  { return c.residual == 0 }

func (c *Controller) clamp() { c.burst = min(max(c.burst, c.cfg.BurstMin), c.cfg.BurstMax) }

// satMul is d*n in nanoseconds, saturated, for n > 0.
func satMul(d time.Duration, n int) int64 {
	if m := math.MaxInt64 / int64(n); int64(d) > m {
		return math.MaxInt64
	} else if int64(d) < -m {
		return math.MinInt64
	}
	return int64(d) * int64(n)
}
