package lagg

import "github.com/netring/netring/ring"

// count returns how many whole frames src has, at most n.
func count(src *ring.Ring, n int) int {
	frames := 0
	for k := src.Head; k != src.Tail() && frames < n; k++ {
		if src.Slot(k).Flags&ring.SlotMoreFrag == 0 {
			frames++
		}
	}
	return frames
}

// next is the first slot behind the frame that starts at slot k.
func next(src *ring.Ring, k uint32) uint32 {
	for src.Slot(k).Flags&ring.SlotMoreFrag != 0 {
		k++
	}
	return k + 1
}

// frameLen is the length of the frame that starts at slot k.
func frameLen(src *ring.Ring, k uint32) (n int) {
	for end := next(src, k); k != end; k++ {
		n += int(src.Slot(k).Len)
	}
	return n
}

// hand gives n frames to member m.
func (e *Egress) hand(src *ring.Ring, m, n int) int {
	took := e.out[m].Move(src, n)
	e.tally[m] += uint64(took)
	return took
}

// choose is who sends in failover. One that is up but not asked for any more
// goes on until it has nothing left to send, lest its frames be overtaken.
func (e *Egress) choose(s *snapshot) int {
	now := ticks(e.clock())
	if e.sender != s.sender {
		gap := ticks(e.g.opt.FlowletGap)
		silent := gap != 0 && now-e.last >= gap
		if e.sender < 0 || !s.active[e.sender] || silent || e.drains.drained(e.sender) {
			if e.sender >= 0 {
				e.Stats.Moved.Add(1)
			}
			e.sender = s.sender
		} else {
			e.Stats.Kept.Add(1)
		}
	}
	e.last = now
	return e.sender
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
			e.copy(src, src.Head, m)
		}
		if e.hand(src, s.live[last], 1) == 0 {
			// The last one's queue pushes back, after the others have their
			// copies: they must not get a second one.
			e.copy(src, src.Head, s.live[last])
			ring.Skip(src, 1)
		}
	}
	return n
}

// decided chooses for each frame first and then hands over runs.
func (e *Egress) decided(src *ring.Ring, s *snapshot, n int) (took int) {
	if e.g.opt.Proto == RoundRobin {
		e.byBytes(src, s, n)
	} else {
		e.byFlow(src, s, n)
	}
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
	if took < n && e.g.opt.Proto == RoundRobin {
		e.undo(src, s, took, n)
	}
	return took
}

func (e *Egress) byFlow(src *ring.Ring, s *snapshot, n int) {
	tick, gap := ticks(e.clock()), ticks(e.g.opt.FlowletGap)
	k := src.Head
	for i := range n {
		e.dest[i] = int8(e.table.member(e.flow(src, k), tick, gap, s, &e.drains))
		k = next(src, k)
	}
}

func (e *Egress) byBytes(src *ring.Ring, s *snapshot, n int) {
	k := src.Head
	for i := range n {
		e.dest[i] = int8(s.live[e.deficit.Next(frameLen(src, k), int64(e.g.opt.StrideBytes), len(s.live))])
		k = next(src, k)
	}
}

// undo takes the turns back of the frames from..n of a batch, which are at the
// head of src still.
func (e *Egress) undo(src *ring.Ring, s *snapshot, from, n int) {
	k := src.Head
	for i := from; i < n; i++ {
		for at, m := range s.live {
			if m == int(e.dest[i]) {
				e.deficit.GiveBack(at, frameLen(src, k))
			}
		}
		k = next(src, k)
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
