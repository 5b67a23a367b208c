package forward

import (
	"errors"
	"fmt"
	"time"

	"github.com/netring/netring/internal/finish"
	"github.com/netring/netring/poll"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/sched"
)

// pendingWait bounds a sleep while frames wait for a transmit ring, whose
// descriptor is not watched.
const pendingWait = time.Millisecond

// downWait is pendingWait while the link is down: looking after them rings the
// doorbell, which nobody answers.
const downWait = 50 * time.Millisecond

// worker owns ring w of every link.
type worker struct {
	b        *Bridge
	id       int
	poll     *poll.Clock // of the scheduler's worker
	clock    sched.Clock // for the queues: the same, once a round
	stations []*station
	out      []ring.Egress // per bridge port
	groups   []*groupOut   // per bridge port, nil for one link
	ticked   time.Duration // when the switch was told the time
}

// newWorker builds worker id over ring id of every link; with an error it
// returns the worker as far as it has come.
func (b *Bridge) newWorker(id int) (*worker, error) {
	w := &worker{b: b, id: id, poll: b.sched.Clock(id)}
	w.now()
	for p, links := range b.links {
		members := make([]ring.Egress, 0, len(links))
		for _, l := range links {
			s, err := w.newStation(p, l)
			if err != nil {
				return w, fmt.Errorf("port %s: %w", l.port.Name(), err)
			}
			w.stations = append(w.stations, s)
			members = append(members, s.out)
		}
		out, group := members[0], (*groupOut)(nil)
		if g := links[0].group; g != nil {
			e, err := g.Egress(members, w.poll.Now)
			if err != nil {
				return w, fmt.Errorf("port %s: %w", b.ports[p].Name, err)
			}
			group = &groupOut{Egress: e}
			out = group
		}
		w.out, w.groups = append(w.out, out), append(w.groups, group)
	}
	return w, nil
}

// unfinished reports whether frames may come in that carry a virtio-net header.
func (b *Bridge) unfinished() bool {
	for _, p := range b.ports {
		for _, l := range p.Links {
			for _, r := range l.RxRings() {
				if r.VnetLen() != 0 {
					return true
				}
			}
		}
	}
	return false
}

func (w *worker) newStation(port int, l *link) (*station, error) {
	tx := l.port.TxRings()[w.id]
	o := w.b.opt.Queue
	if q := w.b.ports[port].Queue; q != nil {
		o = *q
	}
	o.Clock = &w.clock
	q, err := sched.NewQueue(tx, o)
	if err != nil {
		return nil, err
	}
	out := &outlet{Egress: q, queue: q, tx: tx, link: l}
	if tx.VnetLen() == 0 && w.b.unfinished() {
		if out.finish, err = finish.NewEgress(q, tx); err != nil {
			return nil, err
		}
		out.Egress = out.finish
	}
	return &station{w: w, link: l, port: port, rx: l.port.RxRings()[w.id], out: out}, nil
}

// now takes the scheduler's time over for the queues.
func (w *worker) now() time.Duration {
	t := w.poll.Now()
	w.clock.Set(int64(t))
	return t
}

// enter keeps the memory of all links for one turn, should somebody close a
// port meanwhile.
func (w *worker) enter() error {
	for i, s := range w.stations {
		if err := s.rx.Enter(); err != nil {
			for _, e := range w.stations[:i] {
				e.rx.Exit()
			}
			return err
		}
	}
	return nil
}

func (w *worker) exit() {
	for _, s := range w.stations {
		s.rx.Exit()
	}
}

// drainer forwards what had arrived when the bridge was stopped.
type drainer struct {
	stations []*station
	target   []uint64 // per station: frames that the kernel had stored by then
}

// drain passes on what had arrived, until it is gone or the deadline has
// passed, and counts the rest. The scheduler has ended: all rings are ours.
func (b *Bridge) drain() {
	var d drainer
	for _, w := range b.workers {
		for _, s := range w.stations {
			d.stations = append(d.stations, s)
			d.target = append(d.target, s.stored())
		}
	}
	for end := time.Now().Add(b.opt.Drain); ; {
		n := d.round(b.sched.Options().EachBurst)
		if n == 0 && d.done() || time.Now().After(end) {
			break
		}
		if n == 0 {
			time.Sleep(pendingWait)
		}
	}
	for _, s := range d.stations {
		s.settle()
	}
}

// round is one turn of everything. Errors are the business of those who
// stopped the bridge for them; a ring that has one brings nothing.
func (d *drainer) round(budget int) (n int) {
	for _, s := range d.stations {
		k, _ := s.Poll(budget)
		n += k
	}
	for _, s := range d.stations {
		_ = s.Flush()
	}
	return n
}

// done reports whether all that had arrived is passed on and sent.
func (d *drainer) done() bool {
	for i, s := range d.stations {
		if s.rx.Enter() != nil {
			continue // closed: there is nothing more
		}
		s.rx.Exit()
		if s.rx.Space() != 0 || s.seen() < d.target[i] && !s.link.down.Load() {
			return false
		}
		if s.out.Pending() != 0 && !s.link.down.Load() {
			return false
		}
	}
	return true
}

// seen is how many of the frames that the kernel stored have come out of the
// ring, be it as drops.
func (s *station) seen() uint64 { return s.rx.Stats.Packets.Load() + s.rx.Stats.Dropped() }

// stored asks the kernel how many frames it has stored for the ring in all.
func (s *station) stored() uint64 {
	_ = s.rx.Refresh() // without it the counts are those of the last time
	return s.rx.Stats.KernelPackets.Load() - s.rx.Stats.KernelDrops.Load()
}

// settle counts as closed what the drain left on the receive side.
func (s *station) settle() {
	left := &s.w.b.left[s.port]
	if stored, seen := s.stored(), s.seen(); stored > seen {
		left.untaken.Add(stored - seen)
	}
	if s.rx.Enter() == nil {
		left.abandoned.Add(uint64(ring.Skip(s.rx, s.rx.Space())))
		s.rx.Exit()
	}
}

// Close closes the ports and counts what was still to be sent. Not before Run
// has returned. The counters of [Bridge.Stats] are exact then. A second call
// does nothing.
func (b *Bridge) Close() error {
	if b.closed {
		return nil
	}
	b.closed = true
	errs := []error{b.closeGuards()}
	for _, links := range b.links {
		for _, l := range links {
			errs = append(errs, l.port.Close())
		}
	}
	errs = append(errs, b.closeFinishers())
	for _, w := range b.workers {
		for _, s := range w.stations {
			// The queue drops all that it has (cause closed) when the ring
			// tells it that the port is closed.
			if err := s.out.queue.Flush(); err != nil && !errors.Is(err, ring.ErrClosed) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

func (b *Bridge) closeFinishers() error {
	var errs []error
	for _, w := range b.workers {
		for _, s := range w.stations {
			if f := s.out.finish; f != nil {
				errs = append(errs, f.Close())
			}
		}
	}
	return errors.Join(errs...)
}
