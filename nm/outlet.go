package nm

import (
	"errors"
	"sync/atomic"

	"github.com/netring/netring/internal/finish"
	"github.com/netring/netring/poll"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/sched"
)

// outlet is the way from the switch to a port: a queue before each of its
// transmit rings. Frames go to the ring of the number that they came in by,
// modulo the number of rings, as in netmap. A port that only sends has none.
//
// Its methods are for the switch's goroutine, but for finish and count.
type outlet struct {
	ways []way
	lost *ring.Ring // counts what a port without ways, or without link, does not get
	down bool       // of an interface: there is no link
}

// way is one transmit ring.
type way struct {
	queue *sched.Queue
	tx    *ring.Ring
	// finisher finishes frames before the queue, nil as long as none can
	// come that need it.
	finisher atomic.Pointer[finish.Egress]
	taps     taps   // of those who monitor what the port receives
	blocked  bool   // it took fewer frames than it was given,
	tail     uint32 // when this was the ring's tail
}

var (
	_ ring.Egress = (*outlet)(nil)
	_ ring.Egress = (*way)(nil)
)

// newWays makes the queues before the transmit rings.
func newWays(rings []*ring.Ring, o sched.Options) ([]way, error) {
	ways := make([]way, len(rings))
	for i, tx := range rings {
		q, err := sched.NewQueue(tx, o)
		if err != nil {
			return nil, err
		}
		ways[i].queue, ways[i].tx = q, tx
	}
	return ways, nil
}

// finish makes the outlet ready for frames that are unfinished: they will come.
func (o *outlet) finish() error {
	for i := range o.ways {
		w := &o.ways[i]
		if w.tx.VnetLen() != 0 || w.finisher.Load() != nil {
			continue
		}
		f, err := finish.NewEgress(w, w.tx)
		if err != nil {
			return err
		}
		w.finisher.Store(f)
	}
	return nil
}

// close gives back what finish has taken. The goroutine has left.
func (o *outlet) close() error {
	var errs []error
	for i := range o.ways {
		if f := o.ways[i].finisher.Load(); f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// egress is the way in front of which frames may need finishing.
func (w *way) egress() ring.Egress {
	if f := w.finisher.Load(); f != nil {
		return f
	}
	return w
}

// way is the one that frames from src take, nil if they are dropped; cause says
// why.
func (o *outlet) way(src *ring.Ring) (w *way, cause ring.Cause) {
	switch {
	case len(o.ways) == 0:
		return nil, ring.DropFilter
	case o.down:
		return nil, ring.DropLink
	}
	return &o.ways[src.Index()%len(o.ways)], 0
}

// Move is [ring.Egress.Move].
func (o *outlet) Move(src *ring.Ring, n int) int {
	w, cause := o.way(src)
	if w == nil {
		n = ring.Skip(src, n)
		o.lost.Stats.Drop(cause, uint64(n))
		return n
	}
	return w.egress().Move(src, n)
}

// Copy is [ring.Egress.Copy].
func (o *outlet) Copy(src *ring.Ring, k uint32) {
	w, cause := o.way(src)
	if w == nil {
		o.lost.Stats.Drop(cause, 1)
		return
	}
	w.egress().Copy(src, k)
}

// Flush is [ring.Egress.Flush].
func (o *outlet) Flush() error {
	var first error
	for i := range o.ways {
		if err := o.ways[i].egress().Flush(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// pending reports whether frames are on their way.
func (o *outlet) pending() bool {
	for i := range o.ways {
		w := &o.ways[i]
		if w.tx.Pending() != 0 || w.queue.Waiting() != 0 {
			return true
		}
	}
	return false
}

// arm prepares for a sleep that ends when there is room for those that wait for
// it, and reports whether there is already.
func (o *outlet) arm(w *poll.WaitSet) (ready bool) {
	for i := range o.ways {
		y := &o.ways[i]
		if !y.blocked {
			continue
		}
		y.tx.Arm()
		if err := y.tx.Sync(); err != nil || y.tx.Tail() != y.tail {
			y.blocked, ready = false, true
			continue
		}
		w.Ring(y.tx)
	}
	return ready
}

// count adds the counters of the transmit rings to those of the port.
func (o *outlet) count(p *SwitchPort) {
	add := func(c *ring.Counters) {
		for i := range c.Drops {
			p.Dropped[i] += c.Drops[i].Load()
		}
		p.Sent += c.Packets.Load()
	}
	if len(o.ways) == 0 {
		add(&o.lost.Stats)
	}
	for i := range o.ways {
		w := &o.ways[i]
		add(&w.tx.Stats)
		if f := w.finisher.Load(); f != nil {
			drops := f.Drops()
			for c := range drops {
				p.Dropped[c] += drops[c].Load()
			}
		}
	}
}

// Move is [ring.Egress.Move] of one ring, of frames that need no finishing.
func (w *way) Move(src *ring.Ring, n int) int {
	done := 0
	if !w.taps.any() {
		done = w.queue.Move(src, n)
		w.taps.skip(w.tx.Head)
	} else {
		// One by one: a frame lies in the ring, not handed over, when the
		// monitors get their copies. Only room for the next one hands it over.
		for done < n && w.queue.Move(src, 1) == 1 {
			w.taps.see(w.tx, w.tx.Head)
			done++
		}
	}
	w.blocked = done < n && src.Space() != 0
	w.tail = w.tx.Tail()
	return done
}

// Copy is [ring.Egress.Copy] of one ring.
func (w *way) Copy(src *ring.Ring, k uint32) {
	w.queue.Copy(src, k)
	w.taps.see(w.tx, w.tx.Head)
}

// Flush is [ring.Egress.Flush] of one ring.
func (w *way) Flush() error { return w.queue.Flush() }
