package poll

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// sleepCheck is the least time between status checks of a sleeping
	// worker, which would be woken for nothing else.
	sleepCheck = 100 * time.Millisecond
	// A worker that took more than its share of a tick lets others have the
	// core for a moment. If, contendStrikes times in a row with no more than
	// contendWindow between them, another program used that for contendTime,
	// the worker keeps to its share for strikeHold, and looks again.
	contendStrikes = 4
	contendWindow  = 15 * time.Millisecond
	contendTime    = 100 * time.Microsecond
	strikeHold     = 200 * time.Millisecond
	// And each censusWindow it counts who had the core. If others want more
	// of it, it is held for censusHold, until the next count and beyond.
	censusWindow = time.Second
	censusHold   = 1500 * time.Millisecond
	// Others that had less than rivalsFew percent of the core, which is what
	// the kernel's clock can tell, want nothing; if more than rivalsMany, they
	// may want more still.
	rivalsFew  = 4
	rivalsMany = 15
	// lingerTurn is how often a worker that is awake for nothing lets others
	// have the core.
	lingerTurn = time.Millisecond
	// maxNap is how late, at a low HZ, a worker may see that it is to stop.
	maxNap = 20 * time.Millisecond
)

// worker is one thread's loop. Fields below the gap are the thread's own.
type worker struct {
	mu      sync.Mutex // guards what Add, Remove and stop change
	want    []Handler
	adopted []chan struct{} // closed when the worker has taken over want
	running bool
	wakeFD  int
	changed atomic.Bool
	clock   Clock
	stats   workerStats

	sys      system
	mode     Mode
	ctl      *Controller
	pacer    pacer
	linger   linger
	handlers []Handler
	set      WaitSet
	owners   []int // for each descriptor in set, the handler's index; -1 is ours

	nextTick  time.Duration
	nextCheck time.Duration // while the controller is not used
	wokeAt    time.Duration // from the last sleep in poll(2)
	polling   bool          // the controller is used
	passCPU   time.Duration // our CPU time when this pass began or, between passes, when the last one ended
	charged   bool          // the next pass is charged with all CPU time since the last one
	turnAt    time.Duration // while awake for nothing: when others have their turn next

	// who else wants the core
	share      int           // percent of it that is ours
	tickAt     time.Duration // when tickCPU was taken, 0 if it was not
	tickCPU    time.Duration
	strikes    int           // in a row
	strikeAt   time.Duration // the last time that somebody took the core
	strikeWait time.Duration // how long we had waited then
	held       time.Duration // until then we keep to our share
	censusAt   time.Duration // when the next three were taken, 0 if they were not
	censusCPU  time.Duration
	censusIdle time.Duration
	censusKern time.Duration
	rivals     rivals
}

func newWorker(o Options, ctl *Controller) *worker {
	return &worker{wakeFD: -1, mode: o.Mode, ctl: ctl, share: 100 - ctl.cfg.UserFrac,
		pacer: newPacer(ctl.cfg.EachBurst, o.Delay), linger: linger{max: o.Linger}, rivals: rivals{share: 100 - ctl.cfg.UserFrac}}
}

// run is the loop. It returns the first handler's error, nil once stopping is
// set.
func (w *worker) run(sys system, stopping *atomic.Bool) error {
	w.sys = sys
	now := sys.now()
	w.nextTick, w.nextCheck = now+w.ctl.period, now
	w.ctl.Resume(now)
	for {
		if w.changed.Load() {
			w.adopt()
		}
		if stopping.Load() {
			return w.flush()
		}
		now = sys.now()
		w.clock.set(now)
		var err error
		if w.isPolling() {
			err = w.poll(now)
		} else {
			err = w.interrupt(now)
		}
		if err != nil {
			return err
		}
	}
}

// isPolling says whether the ticks count, and switches them on and off.
func (w *worker) isPolling() bool {
	on := w.mode == Tick || w.mode == Busy || w.mode == Adaptive && w.pacer.pacing
	if on == w.polling {
		return on
	}
	now := w.clock.Now()
	if on {
		w.nextTick = now + w.ctl.period
		w.ctl.Resume(now)
		w.tickAt = 0
	} else if w.ctl.Scheduled() {
		return true // finish the pass
	} else {
		w.nextCheck = now + w.checkPeriod()
	}
	w.polling, w.charged = on, false
	return on
}

func (w *worker) checkPeriod() time.Duration { return w.ctl.period * time.Duration(w.ctl.cfg.RegFrac) }

// poll is one round by the clock, and the sleep after it.
func (w *worker) poll(now time.Duration) error {
	w.ticks(now)
	if w.ctl.Scheduled() {
		return w.chunk(now)
	}
	switch {
	case w.mode == Tick || w.mode == Adaptive && now < w.held:
		w.nap(w.nextTick)
		return nil
	case len(w.handlers) == 0 && w.mode == Busy:
		w.nap(w.nextTick)
		return nil
	}
	w.charged = false
	done, full, err := w.round(now, w.ctl.cfg.EachBurst, false)
	if err != nil || w.mode == Busy {
		return err
	}
	w.observe(now, done, full)
	w.gap(now, full)
	return nil
}

// chunk does the next chunk of the controller's pass.
func (w *worker) chunk(now time.Duration) error {
	if w.ctl.fresh() && !w.charged {
		w.passCPU = w.sys.cpu()
	}
	budget, check := w.ctl.Begin(w.passCPU)
	done, full, err := w.round(now, budget, check)
	if err != nil {
		return err
	}
	if done == 0 {
		w.ctl.Skip()
	}
	if w.ctl.last() {
		start := w.passCPU
		w.passCPU = w.sys.cpu()
		w.ticks(w.sys.now())
		if (w.passCPU-start)*100 <= w.ctl.period*time.Duration(w.share) {
			w.ctl.Excuse()
		}
		// What we do besides the passes counts too, where we do nothing
		// besides them of our own will.
		w.charged = w.mode == Tick || w.mode == Adaptive && w.clock.Now() < w.held
	}
	last := w.ctl.End(w.passCPU)
	w.stats.controller(w.ctl)
	if w.mode == Adaptive {
		w.observe(now, done, full)
		if last && now >= w.held {
			w.gap(now, full)
		}
	}
	return nil
}

// observe lets those who decide about sleeping see the outcome of a round.
func (w *worker) observe(now time.Duration, done int, full bool) {
	if w.linger.round(now, done) {
		w.stats.caught.Add(1)
		w.pacer.woke() // it would have, had we slept
	}
	w.pacer.round(now, done, full)
}

func (w *worker) gap(now time.Duration, full bool) {
	if full || !w.pacer.pacing {
		return
	}
	until := min(now+w.pacer.gap(), w.nextTick)
	if until-w.sys.now() >= paceMinGap {
		w.nap(until)
	}
}

func (w *worker) nap(until time.Duration) {
	w.stats.naps.Add(1)
	w.sys.sleep(min(until, w.clock.Now()+maxNap))
}

// ticks tells the controller of the ticks up to now, and looks who wants the
// core. The schedule is absolute: what came too late is counted, not shifted.
func (w *worker) ticks(now time.Duration) {
	if now < w.nextTick {
		return
	}
	n := uint64((now-w.nextTick)/w.ctl.period) + 1
	w.nextTick += time.Duration(n) * w.ctl.period
	if len(w.handlers) == 0 {
		return
	}
	w.ctl.Ticks(now, n)
	w.stats.ticks.Add(n)
	if w.mode == Adaptive && w.share < 100 {
		w.contend(now)
	}
}

// interrupt is one round without the clock, and the wait after it. A wait is
// for when a round brought nothing: what was just sent may be answered by now,
// and the costly looks must not come before the answer.
func (w *worker) interrupt(now time.Duration) error {
	// Under traffic without a pause the looks must come some time.
	late := now-max(w.nextCheck, w.wokeAt) >= w.checkPeriod()
	done, full, err := w.round(now, w.ctl.cfg.EachBurst, late)
	if err != nil {
		return err
	}
	if late {
		w.nextCheck = now + w.checkPeriod()
	}
	if w.mode == Adaptive {
		w.observe(now, done, full)
		if w.pacer.pacing {
			return nil
		}
	}
	if done > 0 {
		return nil
	}
	if now >= w.nextCheck {
		w.nextCheck = now + w.checkPeriod()
		if err := w.check(now); err != nil {
			return err
		}
	}
	if w.mode == Adaptive && w.linger.awake(now) {
		w.turn(now)
		return nil
	}
	return w.wait(now)
}

// turn lets others have the core now and then while we are awake for nothing,
// and makes us sleep if one wanted it.
func (w *worker) turn(now time.Duration) {
	if now < w.turnAt || now-w.linger.since < lingerTurn || w.linger.due(now) {
		return
	}
	w.sys.yield()
	after := w.sys.now()
	w.turnAt = after + lingerTurn
	if after-now >= contendTime {
		w.linger.contended(after + strikeHold)
	}
}

// wait sleeps in poll(2).
func (w *worker) wait(now time.Duration) error {
	s := &w.set
	s.reset(now)
	defer s.release()
	s.FD(w.wakeFD, unix.POLLIN)
	w.owners = append(w.owners[:0], -1)
	for i, h := range w.handlers {
		if h.Arm(s) || s.ready {
			return nil
		}
		for len(w.owners) < len(s.fds) {
			w.owners = append(w.owners, i)
		}
	}
	s.Until(w.linger.alarm(now, max(w.nextCheck, now+sleepCheck)))
	w.stats.waits.Add(1)
	n, err := w.sys.wait(s.fds, s.until, w.linger.hot(now))
	w.wokeAt = w.sys.now()
	if err != nil || n == 0 {
		return err
	}
	w.stats.wakes.Add(1)
	w.pacer.woke()
	return w.woken()
}

// woken looks at what ended the wait for errors, and lets the handlers see to
// them.
func (w *worker) woken() error {
	s := &w.set
	if s.fds[0].Revents&unix.POLLIN != 0 {
		drain(w.wakeFD)
	}
	checked := -1
	for i, fd := range s.fds {
		if fd.Revents&pollErr == 0 || i == 0 {
			continue
		}
		now := w.sys.now()
		s.mute(fd.Fd, now+sleepCheck)
		w.stats.errors.Add(1)
		if o := w.owners[i]; o != checked {
			checked = o
			if err := w.handlers[o].Check(now); err != nil {
				return &HandlerError{w.handlers[o].Name(), "check", err}
			}
		}
	}
	return nil
}

// round gives every handler one chunk of budget packets, then flushes them
// all. full says that one of them may have more.
func (w *worker) round(now time.Duration, budget int, check bool) (done int, full bool, err error) {
	for _, h := range w.handlers {
		n, err := h.Poll(budget)
		if err != nil {
			return done, full, &HandlerError{h.Name(), "poll", err}
		}
		done += n
		full = full || n >= budget
	}
	if err := w.flush(); err != nil {
		return done, full, err
	}
	w.stats.round(done)
	if check { // after the packets, so that none waits for it
		err = w.check(now)
	}
	return done, full, err
}

// check lets the handlers do the costly looks.
func (w *worker) check(now time.Duration) error {
	w.stats.checks.Add(1)
	for _, h := range w.handlers {
		if err := h.Check(now); err != nil {
			return &HandlerError{h.Name(), "check", err}
		}
	}
	return nil
}

// flush ends a round.
func (w *worker) flush() error {
	for _, h := range w.handlers {
		if err := h.Flush(); err != nil {
			return &HandlerError{h.Name(), "flush", err}
		}
	}
	return nil
}

// adopt takes over the handlers that are wanted.
func (w *worker) adopt() {
	w.mu.Lock()
	w.changed.Store(false)
	w.handlers = slices.Clone(w.want)
	for _, c := range w.adopted {
		close(c)
	}
	w.adopted = nil
	w.mu.Unlock()
}
