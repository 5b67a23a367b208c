package lagg

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/netring/netring/ring"
)

// batch is how many frames are decided on at once.
const batch = 256

// Drainer is an egress that can tell that it has nothing left to send: no frame
// waits and none is in the device's hands.
type Drainer interface{ Drained() bool }

// Counters of an [Egress]; read them at any time.
type Counters struct {
	Frames [MaxMembers]atomic.Uint64 // handed to each member, copies of broadcasts included
	NoLink atomic.Uint64             // dropped, as no member could send
}

// Egress sends a worker's frames through a group. Like any [ring.Egress] it
// belongs to one worker.
type Egress struct {
	g       *Group
	out     []ring.Egress
	drains  []Drainer // of each member, nil if it cannot tell
	clock   func() time.Duration
	table   *table
	deficit Deficit
	dest    [batch]int8

	Stats Counters
}

var _ ring.Egress = (*Egress)(nil)

// Egress makes a worker's way out through the group, over its way out through
// each member in the group's order. clock tells the worker's time, coarse: it
// is called once per batch.
func (g *Group) Egress(members []ring.Egress, clock func() time.Duration) (*Egress, error) {
	if len(members) != len(g.names) {
		return nil, errors.New("lagg: one egress for each member is needed")
	}
	e := &Egress{g: g, out: members, clock: clock, drains: make([]Drainer, len(members))}
	for i, m := range members {
		e.drains[i], _ = m.(Drainer)
	}
	if g.opt.Proto == LoadBalance {
		e.table = newTable()
	}
	return e, nil
}

// Move is [ring.Egress.Move]. A member that takes fewer frames than it is given
// holds the whole up: the frames behind stay where they are, in order.
func (e *Egress) Move(src *ring.Ring, n int) int {
	done := 0
	for done < n {
		s := e.g.snap.Load()
		k := e.count(src, min(n-done, batch))
		if k == 0 {
			break
		}
		var took int
		switch {
		case len(s.live) == 0:
			took = ring.Skip(src, k)
			e.Stats.NoLink.Add(uint64(took))
		case e.g.opt.Proto == Failover:
			took = e.hand(src, s.sender, k)
		case e.g.opt.Proto == Broadcast:
			took = e.broadcast(src, s, k)
		case e.g.opt.Proto == RoundRobin && e.g.opt.StrideBytes == 0:
			took = e.roundRobin(src, s, k)
		default:
			took = e.decided(src, s, k)
		}
		done += took
		if took < k {
			break
		}
	}
	return done
}

// count returns how many whole frames src has, at most n.
func (e *Egress) count(src *ring.Ring, n int) int {
	frames := 0
	for k := src.Head; k != src.Tail() && frames < n; k++ {
		if src.Slot(k).Flags&ring.SlotMoreFrag == 0 {
			frames++
		}
	}
	return frames
}

// hand gives n frames to member m.
func (e *Egress) hand(src *ring.Ring, m, n int) int {
	took := e.out[m].Move(src, n)
	e.Stats.Frames[m].Add(uint64(took))
	return took
}

func (e *Egress) roundRobin(src *ring.Ring, s *snapshot, n int) (took int) {
	at := e.g.seq.Take(uint32(n))
	for took < n {
		i, run := At(at+uint32(took), e.g.opt.Stride, len(s.live))
		want := min(n-took, int(run))
		got := e.hand(src, s.live[i], want)
		took += got
		if got < want {
			break
		}
	}
	e.g.seq.GiveBack(uint32(n - took))
	return took
}

func (e *Egress) broadcast(src *ring.Ring, s *snapshot, n int) int {
	last := len(s.live) - 1
	for range n {
		for _, m := range s.live[:last] {
			e.out[m].Copy(src, src.Head)
			e.Stats.Frames[m].Add(1)
		}
		if e.hand(src, s.live[last], 1) == 0 {
			// The last one's queue pushes back, after the others have their
			// copies: they must not get a second one.
			e.out[s.live[last]].Copy(src, src.Head)
			e.Stats.Frames[s.live[last]].Add(1)
			ring.Skip(src, 1)
		}
	}
	return n
}

// decided chooses for each frame first and then hands over runs.
func (e *Egress) decided(src *ring.Ring, s *snapshot, n int) (took int) {
	e.decide(src, s, n)
	for took < n {
		m, run := e.dest[took], 1
		for took+run < n && e.dest[took+run] == m {
			run++
		}
		got := e.hand(src, int(m), run)
		took += got
		if got < run {
			break
		}
	}
	return took
}

func (e *Egress) decide(src *ring.Ring, s *snapshot, n int) {
	o := &e.g.opt
	tick, gap := ticks(e.clock()), ticks(o.FlowletGap)
	k := src.Head
	for i := range n {
		if o.Proto == RoundRobin {
			e.dest[i] = int8(s.live[e.deficit.Next(frameLen(src, k), int64(o.StrideBytes), len(s.live))])
		} else {
			e.dest[i] = int8(e.table.member(e.flow(src, k), tick, gap, s, o.Weights, e.drained))
		}
		for src.Slot(k).Flags&ring.SlotMoreFrag != 0 {
			k++
		}
		k++
	}
}

func (e *Egress) drained(m int) bool { return e.drains[m] != nil && e.drains[m].Drained() }

// frameLen is the length of the frame that starts at slot k.
func frameLen(src *ring.Ring, k uint32) (n int) {
	for {
		s := src.Slot(k)
		n += int(s.Len)
		if s.Flags&ring.SlotMoreFrag == 0 {
			return n
		}
		k++
	}
}

// flow is the flow hash of the frame at slot k.
func (e *Egress) flow(src *ring.Ring, k uint32) uint64 {
	if e.g.opt.FlowID {
		var m ring.Meta
		if src.Meta(k, &m) && m.Hash != 0 {
			return Mix(uint64(m.Hash>>e.g.opt.FlowIDShift) ^ e.g.opt.Seed)
		}
	}
	return e.g.hash.Hash(src.Frame(k))
}

// Copy is [ring.Egress.Copy].
func (e *Egress) Copy(src *ring.Ring, k uint32) {
	s := e.g.snap.Load()
	switch {
	case len(s.live) == 0:
		e.Stats.NoLink.Add(1)
	case e.g.opt.Proto == Broadcast:
		for _, m := range s.live {
			e.copy(src, k, m)
		}
	case e.g.opt.Proto == Failover:
		e.copy(src, k, s.sender)
	case e.g.opt.Proto == RoundRobin && e.g.opt.StrideBytes != 0:
		e.copy(src, k, s.live[e.deficit.Next(frameLen(src, k), int64(e.g.opt.StrideBytes), len(s.live))])
	case e.g.opt.Proto == RoundRobin:
		i, _ := At(e.g.seq.Take(1), e.g.opt.Stride, len(s.live))
		e.copy(src, k, s.live[i])
	default:
		m := e.table.member(e.flow(src, k), ticks(e.clock()), ticks(e.g.opt.FlowletGap), s, e.g.opt.Weights, e.drained)
		e.copy(src, k, m)
	}
}

func (e *Egress) copy(src *ring.Ring, k uint32, m int) {
	e.out[m].Copy(src, k)
	e.Stats.Frames[m].Add(1)
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
