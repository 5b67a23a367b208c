package forward

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/netring/netring/internal/finish"
	"github.com/netring/netring/poll"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/sched"
)

// station is one link as one worker sees it: the receive ring that it takes
// frames from and the way out. It is what the scheduler runs.
type station struct {
	w    *worker
	link *link
	port int // the bridge port that the link belongs to
	rx   *ring.Ring
	out  *outlet

	// For the guard, as of the last Check: how many frames have been taken out
	// of rx, and how many every round before had left there, at least.
	taken   atomic.Uint64
	waiting atomic.Int64
	least   int // since that Check
}

var _ poll.Handler = (*station)(nil)

// Name is the interface's.
func (s *station) Name() string { return s.link.port.Name() }

// Poll passes up to budget received frames on.
func (s *station) Poll(budget int) (int, error) {
	if err := s.w.enter(); err != nil {
		return 0, err
	}
	defer s.w.exit()
	s.w.tick(s.w.now())
	if err := s.link.report(s.rx.Sync()); err != nil {
		return 0, err
	}
	if s.rx.Space() == 0 {
		s.least = 0
		return 0, nil
	}
	if s.link.guard != nil {
		s.link.guard.meet(s.rx)
	}
	if g := s.link.group; g != nil && !g.Accepts(s.link.member) {
		n := ring.Skip(s.rx, budget)
		s.w.b.left[s.port].filtered.Add(uint64(n))
		return n, nil
	}
	n := s.w.b.pass(s.w, s, budget)
	s.least = min(s.least, s.rx.Space())
	return n, nil
}

// Flush rings the link's doorbell and takes back what is sent. The links of a
// group are flushed by the first of them.
func (s *station) Flush() error {
	var out ring.Egress = s.out
	if g := s.w.groups[s.port]; g != nil {
		if s.link.member != 0 {
			return nil
		}
		out = g
	}
	if err := s.w.enter(); err != nil {
		return err
	}
	defer s.w.exit()
	return out.Flush()
}

// Check brings the kernel's counters and the link's state up to date.
func (s *station) Check(now time.Duration) error {
	err := s.rx.Refresh()
	if g := s.link.group; g != nil && s.link.member == 0 && s.w.id == 0 {
		g.Tick(now)
	}
	if s.link.guard != nil {
		s.guarded(now)
	}
	if err == nil {
		s.link.refreshed()
	}
	if err := s.link.report(err); err != nil {
		return err
	}
	return s.link.gone()
}

// Arm prepares for a sleep.
func (s *station) Arm(w *poll.WaitSet) (ready bool) {
	s.rx.Arm()
	// What came before Arm does not signal.
	if err := s.rx.Sync(); err != nil && s.link.report(err) != nil {
		return true // the next Poll tells
	}
	w.Ring(s.rx)
	if s.out.Pending() != 0 {
		w.Until(s.w.now() + s.out.patience())
	}
	return s.rx.Space() != 0
}

// outlet is one worker's way out through one link: the queue before its
// transmit ring, left out while the link is down.
type outlet struct {
	ring.Egress // the queue, or what finishes frames before it
	queue       *sched.Queue
	finish      *finish.Egress // nil where nothing can need it
	tx          *ring.Ring
	link        *link
}

// Move is [ring.Egress.Move]; frames for a link that is down are dropped.
func (o *outlet) Move(src *ring.Ring, n int) int {
	if o.link.down.Load() {
		n = ring.Skip(src, n)
		o.tx.Stats.Drop(ring.DropLink, uint64(n))
		return n
	}
	return o.Egress.Move(src, n)
}

// Copy is [ring.Egress.Copy].
func (o *outlet) Copy(src *ring.Ring, k uint32) {
	if o.link.down.Load() {
		o.tx.Stats.Drop(ring.DropLink, 1)
		return
	}
	o.Egress.Copy(src, k)
}

// Flush is [ring.Egress.Flush] with errors left out that the bridge can live
// with: a link that is down, a ring that had to be made anew.
func (o *outlet) Flush() error {
	err := o.Egress.Flush()
	if errors.Is(err, sched.ErrStalled) {
		o.link.log.Warn("transmit ring stalled", "err", err)
		return nil
	}
	return o.link.report(err)
}

// patience is how long the worker may sleep on what is pending.
func (o *outlet) patience() time.Duration {
	if o.link.down.Load() {
		return downWait
	}
	return pendingWait
}

// Pending is what is on its way through this outlet.
func (o *outlet) Pending() int {
	n := o.tx.Pending() + o.queue.Waiting()
	if o.finish != nil {
		n += o.finish.Pending()
	}
	return n
}
