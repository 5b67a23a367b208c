package lagg

import (
	"errors"
	"fmt"
	"time"

	"github.com/netring/netring/ring"
)

// batch is how many frames are decided on at once.
const batch = 256

// Pender is an egress that can tell what it has not sent: frames that wait, and
// slots in the device's hands. 0 means that nothing can be overtaken.
type Pender interface{ Pending() int }

// Egress sends a worker's frames through a group. Like any [ring.Egress] it
// belongs to one worker.
type Egress struct {
	g       *Group
	out     []ring.Egress
	drains  drains
	clock   func() time.Duration
	table   *table // of loadbalance
	deficit Deficit
	seen    *snapshot // of the last batch
	sender  int       // of failover: who sent the last batch, -1 if nobody has
	last    uint32    // and when, in ticks
	dest    [batch]int8
	tally   [MaxMembers]uint64

	Stats Counters
}

var _ ring.Egress = (*Egress)(nil)

// drains asks members whether they have drained, once per batch at most.
type drains struct {
	of         []Pender
	known, yes uint32 // by member
}

func (d *drains) drained(m int) bool {
	if d.known>>m&1 == 0 {
		d.known |= 1 << m
		if d.of[m] != nil && d.of[m].Pending() == 0 {
			d.yes |= 1 << m
		}
	}
	return d.yes>>m&1 != 0
}

func (d *drains) forget() { d.known, d.yes = 0, 0 }

// Egress makes a worker's way out through the group, over its way out through
// each member in the group's order. In loadbalance and failover, members must
// be a [Pender], or the group must have a flowlet gap: flows could never
// return. clock tells the worker's time, coarse and on any monotonic clock; it
// is called once per batch.
func (g *Group) Egress(members []ring.Egress, clock func() time.Duration) (*Egress, error) {
	if len(members) != len(g.names) {
		return nil, fmt.Errorf("lagg: %d egresses for %d members: give one for each", len(members), len(g.names))
	}
	e := &Egress{g: g, out: members, clock: clock, sender: -1}
	e.drains.of = make([]Pender, len(members))
	flows := g.opt.Proto == LoadBalance || g.opt.Proto == Failover
	for i, m := range members {
		p, ok := m.(Pender)
		if !ok && flows && g.opt.FlowletGap == 0 && len(members) > 1 {
			return nil, fmt.Errorf("lagg: member %s cannot tell when its queue has drained: set a flowlet gap, such as flowlet=5ms", g.names[i])
		}
		e.drains.of[i] = p
	}
	if g.opt.Proto == LoadBalance {
		e.table = newTable()
	}
	g.mu.Lock()
	g.egresses = append(g.egresses, e)
	g.mu.Unlock()
	return e, nil
}

// Move is [ring.Egress.Move]. A member that takes fewer frames than it is given
// holds the whole up: the frames behind stay where they are, in order.
func (e *Egress) Move(src *ring.Ring, n int) int {
	done := 0
	for done < n {
		s := e.begin()
		k := count(src, min(n-done, batch))
		if k == 0 {
			break
		}
		var took int
		switch {
		case len(s.live) == 0:
			took = ring.Skip(src, k)
			e.Stats.NoLink.Add(uint64(took))
		case e.g.opt.Proto == Failover:
			took = e.hand(src, e.choose(s), k)
		case e.g.opt.Proto == Broadcast:
			took = e.broadcast(src, s, k)
		case e.g.opt.Proto == RoundRobin && e.g.opt.StrideBytes == 0:
			took = e.roundRobin(src, s, k)
		default:
			took = e.decided(src, s, k)
		}
		e.publish()
		done += took
		if took < k {
			break
		}
	}
	return done
}

// begin starts a batch: the links are as they are now until its end.
func (e *Egress) begin() *snapshot {
	s := e.g.snap.Load()
	if s != e.seen {
		e.seen = s
		e.deficit.Reset()
	}
	e.drains.forget()
	return s
}

// publish adds what was counted to the counters that others read.
func (e *Egress) publish() {
	for m := range e.out {
		if n := e.tally[m]; n != 0 {
			e.Stats.Frames[m].Add(n)
			e.tally[m] = 0
		}
	}
	if t := e.table; t != nil && t.moved|t.kept != 0 {
		e.Stats.Moved.Add(t.moved)
		e.Stats.Kept.Add(t.kept)
		t.moved, t.kept = 0, 0
	}
}

// Copy is [ring.Egress.Copy].
func (e *Egress) Copy(src *ring.Ring, k uint32) {
	s := e.begin()
	o := &e.g.opt
	switch {
	case len(s.live) == 0:
		e.Stats.NoLink.Add(1)
	case o.Proto == Broadcast:
		for _, m := range s.live {
			e.copy(src, k, m)
		}
	case o.Proto == Failover:
		e.copy(src, k, e.choose(s))
	case o.Proto == RoundRobin && o.StrideBytes == 0:
		i, _ := At(e.g.seq.Take(1), o.Stride, len(s.live))
		e.copy(src, k, s.live[i])
	case o.Proto == RoundRobin:
		e.copy(src, k, s.live[e.deficit.Next(frameLen(src, k), int64(o.StrideBytes), len(s.live))])
	default:
		e.copy(src, k, e.table.member(e.flow(src, k), ticks(e.clock()), ticks(o.FlowletGap), s, &e.drains))
	}
	e.publish()
}

func (e *Egress) copy(src *ring.Ring, k uint32, m int) {
	e.out[m].Copy(src, k)
	e.tally[m]++
}

// Pending is [Pender]: over all members, as far as they can tell.
func (e *Egress) Pending() (n int) {
	for _, p := range e.drains.of {
		if p != nil {
			n += p.Pending()
		}
	}
	return n
}

// Flush is [ring.Egress.Flush]: all members are flushed, whoever is in use.
func (e *Egress) Flush() error {
	if e.table != nil {
		e.table.age(ticks(e.clock()))
	}
	var errs []error
	for _, m := range e.out {
		if err := m.Flush(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
