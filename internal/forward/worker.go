package forward

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/ring"
)

const (
	// idleRounds is how many rounds in a row must bring nothing before the
	// worker sleeps.
	idleRounds = 64
	// checkEvery is the time between looks at links and kernel counters, and
	// checkRounds how many busy rounds pass between looks at the clock.
	checkEvery  = 250 * time.Millisecond
	checkRounds = 256
	// pendingWait bounds a sleep while frames wait for room in a transmit
	// ring, whose descriptor is not watched.
	pendingWait = time.Millisecond
)

// inlet is one receive ring of a worker.
type inlet struct {
	rx   *ring.Ring
	link *link
	port int // the bridge port it belongs to
}

// worker owns ring w of every link.
type worker struct {
	b    *Bridge
	id   int
	cpu  int // -1: not pinned
	in   []inlet
	out  []ring.Egress // per bridge port
	outs []*outlet     // per link
	wait waiter

	rounds, sleeps uint64
}

// run is the worker's goroutine. It leaves its thread locked, so that a pinned
// one is not used again.
func (w *worker) run() error {
	runtime.LockOSThread()
	if w.cpu >= 0 {
		var set unix.CPUSet
		set.Set(w.cpu)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			return fmt.Errorf("pin worker %d to cpu %d: %w", w.id, w.cpu, err)
		}
	}
	if err := w.loop(); err != nil {
		return err
	}
	return w.drain()
}

// loop forwards until the bridge stops.
func (w *worker) loop() error {
	idle, next := 0, 0
	last := time.Now()
	for !w.b.stopping.Load() {
		n, err := w.round()
		if err != nil {
			return err
		}
		if n != 0 {
			idle = 0
		} else {
			idle++
		}
		if idle >= idleRounds {
			if err := w.sleep(checkEvery); err != nil {
				return err
			}
			idle, next = 0, checkRounds
		}
		if next++; next >= checkRounds {
			next = 0
			if now := time.Now(); now.Sub(last) >= checkEvery {
				last = now
				if err := w.check(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// round visits each receive ring once and flushes; it returns the number of
// frames passed on.
func (w *worker) round() (n int, err error) {
	if err := w.enter(); err != nil {
		return 0, err
	}
	defer w.exit()
	w.rounds++
	for i := range w.in {
		k, err := w.serve(&w.in[i], w.b.opt.Budget)
		n += k
		if err != nil {
			return n, err
		}
	}
	return n, w.flush()
}

// serve takes up to budget frames from one receive ring.
func (w *worker) serve(in *inlet, budget int) (int, error) {
	if err := in.link.report(in.rx.Sync()); err != nil {
		return 0, err
	}
	if in.rx.Space() == 0 {
		return 0, nil
	}
	return w.b.pass(w, in, budget), nil
}

func (w *worker) flush() error {
	var first error
	for _, e := range w.out {
		if err := e.Flush(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// enter keeps the memory of all links for one round, should somebody close a
// port meanwhile.
func (w *worker) enter() error {
	for i, o := range w.outs {
		if err := o.tx.Enter(); err != nil {
			for _, e := range w.outs[:i] {
				e.tx.Exit()
			}
			return err
		}
	}
	return nil
}

func (w *worker) exit() {
	for _, o := range w.outs {
		o.tx.Exit()
	}
}

// sleep waits until a receive ring is ready, the bridge or a port wakes the
// worker, or limit has passed.
func (w *worker) sleep(limit time.Duration) error {
	for i := range w.in {
		w.in[i].rx.Arm()
	}
	// What came before Arm does not signal.
	if n, err := w.round(); n != 0 || err != nil {
		return err
	}
	if w.b.stopping.Load() {
		return nil
	}
	for _, o := range w.outs {
		if o.tx.Pending() != 0 {
			limit = pendingWait
		}
	}
	w.sleeps++
	return w.wait.wait(w.in, limit)
}

// check brings kernel counters and link states up to date.
func (w *worker) check() error {
	for i := range w.in {
		in := &w.in[i]
		err := in.rx.Refresh()
		if err == nil {
			in.link.setDown(false)
		}
		if err := in.link.report(err); err != nil {
			return err
		}
	}
	return nil
}

// drain forwards what had arrived when the bridge was stopped, until it is
// gone or the deadline has passed, and counts the rest.
func (w *worker) drain() error {
	target := make([]uint64, len(w.in))
	for i := range w.in {
		target[i] = w.arrived(&w.in[i])
	}
	deadline := time.Now().Add(w.b.opt.Drain)
	for {
		n, err := w.round()
		if err != nil && !errors.Is(err, ring.ErrGone) {
			return err
		}
		if n == 0 && w.drained(target) || time.Now().After(deadline) {
			break
		}
		if n == 0 {
			if err := w.wait.wait(nil, pendingWait); err != nil {
				return err
			}
		}
	}
	w.settle()
	return nil
}

// arrived asks the kernel how many frames it has stored for a ring in all.
func (w *worker) arrived(in *inlet) uint64 {
	_ = in.rx.Refresh() // a link that is down or gone brings nothing more
	return in.rx.Stats.KernelPackets.Load() - in.rx.Stats.KernelDrops.Load()
}

// drained reports whether all that had arrived is passed on and sent.
func (w *worker) drained(target []uint64) bool {
	for i := range w.in {
		s := &w.in[i].rx.Stats
		if w.in[i].rx.Space() != 0 || s.Packets.Load()+s.Dropped() < target[i] && !w.in[i].link.down.Load() {
			return false
		}
	}
	for _, o := range w.outs {
		if o.tx.Pending() != 0 && !o.link.down.Load() {
			return false
		}
	}
	return true
}

// settle counts as closed what the drain left: frames that the kernel stored
// and nobody took, frames taken and not passed on, and frames queued and not
// handed to the device.
func (w *worker) settle() {
	for i := range w.in {
		rx := w.in[i].rx
		stored := w.arrived(&w.in[i])
		if seen := rx.Stats.Packets.Load() + rx.Stats.Dropped(); stored > seen {
			w.b.left[w.in[i].port].untaken.Add(stored - seen)
		}
		if n := ring.Skip(rx, rx.Space()); n != 0 {
			w.b.left[w.in[i].port].abandoned.Add(uint64(n))
		}
	}
	for _, o := range w.outs {
		if l, ok := o.Egress.(interface{ left() }); ok {
			l.left()
		}
	}
}
