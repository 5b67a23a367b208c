package poll

import (
	"fmt"
	"time"
)

// Gate limits what the kernel receives for one worker. The budget holds for
// each window of time anew.
type Gate interface {
	SetBudget(packets int, window time.Duration) error
}

// GateConfig are the knobs of a [GatePolicy]; a zero means the default that is
// given with it.
type GateConfig struct {
	Window time.Duration // of budgets, 100 us to 100 ms; 1 ms
	Floor  int           // least budget of a window; 16
	Calm   time.Duration // with next to nothing refused, until the gate comes off; 2 s
}

func (c GateConfig) withDefaults() GateConfig {
	if c.Window == 0 {
		c.Window = time.Millisecond
	}
	if c.Floor == 0 {
		c.Floor = 16
	}
	if c.Calm == 0 {
		c.Calm = 2 * time.Second
	}
	return c
}

// Validate reports the first knob that is out of its range.
func (c GateConfig) Validate() error {
	c = c.withDefaults()
	switch {
	case c.Window < 100*time.Microsecond || c.Window > 100*time.Millisecond:
		return fmt.Errorf("poll: gate window %v: must be between 100us and 100ms", c.Window)
	case c.Floor < 1 || c.Floor > maxBurst:
		return fmt.Errorf("poll: gate floor %d: must be between 1 and %d", c.Floor, maxBurst)
	case c.Calm < 10*time.Millisecond || c.Calm > time.Hour:
		return fmt.Errorf("poll: gate calm time %v: must be between 10ms and 1h", c.Calm)
	}
	return nil
}

// GateSample is what a [GatePolicy] looks at, about one interface and the
// worker that serves it, or the workers. Waiting and Slots are gauges, the
// others sums since some start.
type GateSample struct {
	Now       time.Duration
	Delivered uint64 // packets that the worker took from the interface
	Sent      uint64 // packets that it sent, on any interface
	Drops     uint64 // packets that found the ring full
	Backlog   uint64 // packets that found the backlog of the worker's core full, of any interface
	OnCore    uint64 // packets that the kernel received on the worker's core, of any interface
	Super     uint64 // segmentation super-frames among the delivered
	Passed    uint64 // by the gate
	Refused   uint64 // by the gate
	Waiting   int    // packets in the ring, the least since the sample before
	Slots     int    // of the ring
}

// GateAction is what is to be done with a gate.
type GateAction uint8

const (
	GateKeep   GateAction = iota // as it is; if it is on, with the verdict's budget
	GateAttach                   // put it up, with the verdict's budget
	GateDetach                   // take it off
)

// GateVerdict is an answer of a [GatePolicy].
type GateVerdict struct {
	Action GateAction
	Budget int    // packets in a window, while the gate is on
	Why    string // for people, with every attach and detach
}

// GatePolicy decides when a gate is needed, and how much it lets through. The
// gate is worth having when the kernel receives on the worker's own core: then
// each packet that it receives in vain takes time from the worker, which so
// takes fewer, until nothing but receiving goes on (receive livelock; Mogul
// and Ramakrishnan, 1997). It is of no use when the kernel receives elsewhere,
// and harmful to TCP, whose super-frames it takes away.
//
// So it puts the gate up when for some time the kernel has dropped packets,
// and received on this core more than can be explained by what the worker
// sent. It takes it off when after a fair trial no more is delivered than
// before, or when the gate has had next to nothing to refuse for a while.
//
// In between it keeps a short queue in the ring. A queue that does not run
// empty tells that the worker had something to do all the time; what it then
// delivered is what it can deliver, and the budget is that, and a little more
// or less as the queue is shorter or longer than it should be. An empty queue
// tells that there is room for a larger budget. So nothing has to be dropped
// behind the gate to find out what the worker is capable of, and the ring is
// never full, which would be long to wait in and cold to the cache.
//
// It has no clock and does nothing itself. One goroutine at a time.
type GatePolicy struct {
	cfg  GateConfig
	last GateSample
	seen bool

	on      bool
	since   time.Duration // of the last change
	starved int           // samples of livelock, less those without
	before  mean          // delivered without the gate, starved
	tcp     time.Duration // no gate before this: there were super-frames
	hold    time.Duration // nor before since+hold

	budget float64       // packets a window
	able   float64       // packets that the worker is able to forward in a window
	rising bool          // no queue has been seen yet
	quiet  time.Duration // the last time that the gate refused enough to matter
	calm   time.Duration // grows when the gate comes off too early
	trial  time.Duration // under load, still to go until it must have helped
	with   mean          // delivered meanwhile
}

// mean is a mean rate.
type mean struct {
	packets uint64
	time    time.Duration
}

func (m *mean) add(n uint64, d time.Duration) { m.packets, m.time = m.packets+n, m.time+d }

// rate is per second.
func (m *mean) rate() float64 { return float64(m.packets) / max(m.time, 1).Seconds() }

const (
	gateStarved = 10                     // samples that tell livelock
	gateSettled = 5                      // of them, those in which it develops
	gateDrops   = 1000                   // drops a second that matter
	gateTrial   = time.Second            // to show that it helps
	gateIgnored = 200 * time.Millisecond // of that, while it finds its budget
	gateGain    = 1.03                   // by so much
	gateHoldMin = 5 * time.Second        // after a trial that failed, doubled each time
	gateHoldMax = 10 * time.Minute       //
	gateQueue   = time.Millisecond       // of packets shall always wait in the ring, and a window's at least
	gateHorizon = 25 * time.Millisecond  // in which the queue is put right
	gateTCP     = 10 * time.Second       // after the last super-frame
	gateSoon    = 10 * time.Second       // from detach to attach: it came off too early
	gateCalmMax = time.Minute
)

// NewGatePolicy returns a policy with the gate off.
func NewGatePolicy(cfg GateConfig) (*GatePolicy, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return &GatePolicy{cfg: cfg, calm: cfg.Calm, since: -gateHoldMax}, nil
}

// Window is what the verdicts' budgets are for.
func (p *GatePolicy) Window() time.Duration { return p.cfg.Window }

// On reports whether the gate is to be on.
func (p *GatePolicy) On() bool { return p.on }

// Failed tells the policy that the gate could not be put up: not to try again
// for a while.
func (p *GatePolicy) Failed(now time.Duration) {
	p.on, p.since = false, now
	p.backOff()
}

func (p *GatePolicy) backOff() { p.hold = min(max(2*p.hold, gateHoldMin), gateHoldMax) }

// Step looks at a sample, some 20 to 100 ms after the one before.
func (p *GatePolicy) Step(s GateSample) GateVerdict {
	d := delta(s, p.last)
	first := !p.seen
	p.last, p.seen = s, true
	if first || d.Now <= 0 {
		return GateVerdict{Budget: int(p.budget)}
	}
	if d.Super > 0 {
		p.tcp = s.Now + gateTCP
	}
	if p.on {
		return p.stepOn(s.Now, d)
	}
	return p.stepOff(s.Now, d)
}

// delta is what happened between two samples, and the gauges of the later one.
// Counters that went back (a new source) count as nothing.
func delta(a, b GateSample) GateSample {
	sub := func(x, y uint64) uint64 {
		if x < y {
			return 0
		}
		return x - y
	}
	return GateSample{
		Now: a.Now - b.Now, Delivered: sub(a.Delivered, b.Delivered), Sent: sub(a.Sent, b.Sent),
		Drops: sub(a.Drops, b.Drops), Backlog: sub(a.Backlog, b.Backlog), OnCore: sub(a.OnCore, b.OnCore),
		Super: sub(a.Super, b.Super), Passed: sub(a.Passed, b.Passed), Refused: sub(a.Refused, b.Refused),
		Waiting: a.Waiting, Slots: a.Slots,
	}
}

func (p *GatePolicy) stepOff(now time.Duration, d GateSample) GateVerdict {
	lost := d.Drops + d.Backlog
	drops := float64(lost) / d.Now.Seconds()
	lossy := drops >= gateDrops && lost*50 > d.Delivered+lost // 2 %
	// What the worker sent may come in again at the other end of a veth, on
	// this core: that is not receiving for the worker.
	// The tenth is for frames that were sent in this sample and received in
	// the next.
	here := d.OnCore > d.Sent+d.Delivered/10 && 2*(d.OnCore-d.Sent) > lost
	switch {
	case d.Super > 0:
		p.starved = 0
	case !lossy || !here:
		p.starved = max(p.starved-1, 0)
	default:
		p.starved = min(p.starved+1, gateStarved)
	}
	if p.starved <= gateSettled {
		p.before = mean{}
	}
	p.before.add(d.Delivered, d.Now)
	if p.starved < gateStarved || now < p.tcp || now-p.since < p.hold {
		return GateVerdict{}
	}
	if now-p.since < gateSoon {
		p.calm = min(2*p.calm, gateCalmMax)
	} else {
		p.calm = p.cfg.Calm
	}
	p.on, p.since, p.quiet, p.starved = true, now, now, 0
	p.trial, p.with, p.rising = gateTrial, mean{}, true
	p.able = p.before.rate() * p.cfg.Window.Seconds()
	p.budget = max(p.able, float64(p.cfg.Floor))
	return GateVerdict{GateAttach, int(p.budget), fmt.Sprintf(
		"receive livelock: %.0f packets a second delivered, %.0f dropped after they were received on the worker's core", p.before.rate(), drops)}
}

func (p *GatePolicy) stepOn(now time.Duration, d GateSample) GateVerdict {
	judge := false
	// Now and then a frame is refused to TCP as well, which keeps to what the
	// gate lets through. With the gate there it cannot send super-frames, by
	// which it would be known.
	if d.Refused*50 > d.Passed { // 2 %
		p.quiet = now
		if p.trial <= gateTrial-gateIgnored {
			p.with.add(d.Delivered, d.Now)
		}
		judge = p.trial > 0 && p.trial <= d.Now
		p.trial -= d.Now
	}
	switch {
	case now-p.quiet >= p.calm:
		p.hold = 0
		return p.off(now, fmt.Sprintf("next to nothing to refuse for %v", p.calm))
	case p.tcp > now:
		return p.off(now, "segmentation super-frames: TCP is faster without it")
	case judge && p.with.rate() < gateGain*p.before.rate():
		p.backOff()
		return p.off(now, fmt.Sprintf("it does not help: %.0f packets a second delivered with it, %.0f without", p.with.rate(), p.before.rate()))
	}
	p.steer(d)
	return GateVerdict{GateKeep, int(p.budget), ""}
}

func (p *GatePolicy) off(now time.Duration, why string) GateVerdict {
	p.on, p.since, p.starved = false, now, 0
	return GateVerdict{Action: GateDetach, Why: why}
}

// steer moves the budget. What the backlog drops behind the gate is not looked
// at: it costs the sender's core, not the worker's.
func (p *GatePolicy) steer(d GateSample) {
	if d.Passed == 0 {
		return // it is not up yet
	}
	windows := float64(d.Now) / float64(p.cfg.Window)
	passed, served := float64(d.Passed)/windows, float64(d.Delivered)/windows
	// With few coming in, more goes out than could for long: not what counts.
	p.able = max(p.able, min(passed, served))
	shall := min(p.able*float64(max(gateQueue, p.cfg.Window))/float64(p.cfg.Window), float64(d.Slots)/4)
	waiting := float64(d.Waiting)
	if d.Drops*100 > d.Delivered {
		waiting = max(waiting, float64(d.Slots)) // it was full
	}
	switch {
	case waiting >= shall/4:
		p.rising = false
		p.able += (min(served, p.able) - p.able) / 10
		want := min(served, p.able) + (shall-waiting)*float64(p.cfg.Window)/float64(gateHorizon)
		p.budget += (max(want, p.able/2) - p.budget) / 2
	case d.Refused == 0: // the budget is not what limits
	case p.rising:
		p.budget *= 1.25
	default:
		p.budget = max(p.budget*1.03, p.able)
	}
	p.budget = min(max(p.budget, float64(p.cfg.Floor)), maxBurst)
}
