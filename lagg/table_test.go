package lagg

import (
	"math/rand/v2"
	"testing"
)

// pending is a member's backlog as a test wants it.
type pending int

func (p pending) Pending() int { return int(p) }

// asked is drains of n members that all have this backlog.
func asked(n int, backlog pending) *drains {
	d := &drains{of: make([]Pender, n)}
	for i := range d.of {
		d.of[i] = backlog
	}
	return d
}

func TestSharesAndMoves(t *testing.T) {
	const n = 1000
	busy, idle := asked(4, 1), asked(4, 0)
	for seed := range uint64(50) {
		g := group(t, 4, Options{Proto: LoadBalance, HoldDown: -1, Seed: seed + 1})
		for i := range 4 {
			g.SetLink(i, true, 1)
		}
		tb := newTable()
		pass := func(d *drains) (to [n]int, count [4]int) {
			for f := range n {
				to[f] = tb.member(Mix(uint64(f)^g.opt.Seed), 1, 0, g.snap.Load(), d)
				count[to[f]]++
			}
			return to, count
		}
		before, count := pass(busy)
		for m, c := range count {
			if c < n/4*95/100 || c > n/4*105/100 {
				t.Errorf("seed %d: member %d has %d of %d flows, not within 5 %% of its share", seed, m, c, n)
			}
		}
		g.SetLink(2, false, 2)
		during, count := pass(busy)
		for f := range n {
			if before[f] != 2 && during[f] != before[f] {
				t.Fatalf("seed %d: flow %d moved from healthy member %d to %d", seed, f, before[f], during[f])
			}
			if during[f] == 2 {
				t.Fatalf("seed %d: flow %d stays on a dead member", seed, f)
			}
		}
		for _, m := range []int{0, 1, 3} {
			if c := count[m]; c < n/3*95/100 || c > n/3*105/100 {
				t.Errorf("seed %d: member %d has %d of %d flows with another one down", seed, m, c, n)
			}
		}
		g.SetLink(2, true, 3)
		if still, _ := pass(busy); still != during {
			t.Fatalf("seed %d: flows moved back before the stand-in's queue drained", seed)
		}
		if after, _ := pass(idle); after != before {
			t.Fatalf("seed %d: not exactly the old flows came back", seed)
		}
	}
}

// A member that comes up after the flows have started gets its share of them.
func TestLateMember(t *testing.T) {
	const n = 1000
	g := group(t, 2, Options{Proto: LoadBalance, HoldDown: -1, Seed: 1})
	g.SetLink(0, true, 1)
	tb := newTable()
	var count [2]int
	for pass := range 2 {
		for f := range n {
			m := tb.member(Mix(uint64(f)), 1, 0, g.snap.Load(), asked(2, 0))
			count[m] += pass
		}
		g.SetLink(1, true, 2)
	}
	if count[1] < n/2*95/100 || count[1] > n/2*105/100 {
		t.Errorf("flows after the second member came up: %v", count)
	}
}

func TestWeights(t *testing.T) {
	g := group(t, 3, Options{Proto: LoadBalance, Weights: []uint32{3, 1, 4}, HoldDown: -1, Seed: 7})
	for i := range 3 {
		g.SetLink(i, true, 1)
	}
	tb := newTable()
	for f := range 4000 {
		tb.member(Mix(uint64(f)), 1, 0, g.snap.Load(), asked(3, 1))
	}
	// Flows that share a bucket go together: buckets are what is shared out.
	for m, w := range g.opt.Weights {
		want := tb.used * uint64(w) / 8
		if tb.homes[m] < want*97/100 || tb.homes[m] > want*103/100 {
			t.Errorf("weights 3, 1, 4: %v of %d flows", tb.homes[:3], tb.used)
		}
	}
}

func TestFlowlet(t *testing.T) {
	g := group(t, 2, Options{Proto: LoadBalance, HoldDown: -1, Seed: 7})
	g.SetLink(0, true, 1)
	g.SetLink(1, true, 1)
	tb, busy := newTable(), asked(2, 1)
	home := tb.member(5, 100, 10, g.snap.Load(), busy)
	g.SetLink(home, false, 2)
	for _, c := range []struct {
		tick uint32
		up   bool
		want int
	}{{101, false, 1 - home}, {110, true, 1 - home}, {119, true, 1 - home}, {129, true, home}} {
		g.SetLink(home, c.up, 3)
		if m := tb.member(5, c.tick, 10, g.snap.Load(), busy); m != c.want {
			t.Errorf("at tick %d, gap 10: member %d, want %d", c.tick, m, c.want)
		}
	}
}

func TestAging(t *testing.T) {
	g := group(t, 2, Options{Proto: LoadBalance, HoldDown: -1, Seed: 7})
	g.SetLink(0, true, 1)
	tb := newTable()
	for f := range 100 {
		tb.member(Mix(uint64(f)), 1, 0, g.snap.Load(), asked(2, 1))
	}
	for range buckets / 16 {
		tb.age(forget)
	}
	if tb.used == 0 {
		t.Error("flows forgotten too early")
	}
	for range buckets / 16 {
		tb.age(forget + 2)
	}
	if tb.used != 0 || tb.homes != [MaxMembers]uint64{} || tb.load != [MaxMembers]uint64{} {
		t.Errorf("%d flows not forgotten", tb.used)
	}
}

// slowTable is the table written again: flows in a map, loads counted anew
// each time.
type slowTable map[uint64]*slowFlow

type slowFlow struct {
	home, now int
	last      uint32
}

func (st slowTable) place(flow uint64, members []int, weights []uint32, load func(*slowFlow) int) int {
	total := uint64(0)
	for _, m := range members {
		total += uint64(weights[m])
	}
	rest := append([]int(nil), members...)
	for len(rest) > 0 {
		m := Rendezvous(flow, rest, weights)
		has := uint64(0)
		for _, f := range st {
			if load(f) == m {
				has++
			}
		}
		fair := uint64(len(st)+1) * uint64(weights[m])
		if has*total <= fair+fair/slack {
			return m
		}
		for i := range rest {
			if rest[i] == m {
				rest = append(rest[:i:i], rest[i+1:]...)
				break
			}
		}
	}
	return Rendezvous(flow, members, weights)
}

func (st slowTable) member(flow uint64, now, gap uint32, active []bool, weights []uint32, drained []bool) int {
	live := indexes(active)
	f := st[flow%buckets]
	if f == nil {
		if len(live) == 0 {
			return -1
		}
		all := make([]int, len(active))
		for i := range all {
			all[i] = i
		}
		home := st.place(flow, all, weights, func(f *slowFlow) int { return f.home })
		f = &slowFlow{home: home, now: home, last: now}
		st[flow%buckets] = f
	}
	silent := now - f.last
	f.last = now
	mayLeave := !active[f.now] || gap != 0 && silent >= gap || drained[f.now]
	switch {
	case active[f.home] && mayLeave:
		f.now = f.home
	case !active[f.now]:
		if len(live) == 0 {
			return -1
		}
		f.now = st.place(flow, live, weights, func(f *slowFlow) int { return f.now })
	}
	return f.now
}

// FuzzTable compares the table with its slow twin over random links, queues
// and flows.
func FuzzTable(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, uint8(seed), uint8(seed*5))
	}
	f.Fuzz(func(t *testing.T, seed uint64, members, gap uint8) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := 1 + int(members%6)
		o := Options{Proto: LoadBalance, HoldDown: -1, Seed: 1}
		for range n {
			o.Weights = append(o.Weights, 1+r.Uint32N(4))
		}
		g := group(t, n, o)
		tb, slow := newTable(), slowTable{}
		active, drained := make([]bool, n), make([]bool, n)
		now := uint32(1) << 31
		for step := range 600 {
			if r.IntN(8) == 0 {
				i := r.IntN(n)
				active[i] = !active[i]
				g.SetLink(i, active[i], 1)
			}
			d := &drains{of: make([]Pender, n)}
			for i := range drained {
				drained[i] = r.IntN(4) == 0
				d.of[i] = pending(1)
				if drained[i] {
					d.of[i] = pending(0)
				}
			}
			now += r.Uint32N(3)
			flow := Mix(uint64(r.IntN(150)))
			want := slow.member(flow, now, uint32(gap), active, o.Weights, drained)
			if got := tb.member(flow, now, uint32(gap), g.snap.Load(), d); got != want {
				t.Fatalf("step %d, active %v: member %d, want %d", step, active, got, want)
			}
		}
	})
}

// FuzzDeficit: two members never differ by more than a turn and a frame, and
// turns go round.
func FuzzDeficit(f *testing.F) {
	f.Add(uint64(1), uint8(3), uint32(6000))
	f.Add(uint64(2), uint8(31), uint32(1024))
	f.Add(uint64(3), uint8(0), uint32(1<<31-1))
	f.Fuzz(func(t *testing.T, seed uint64, members uint8, quantum uint32) {
		n, q := 1+int(members%MaxMembers), max(int64(quantum), minStrideBytes)
		r := rand.New(rand.NewPCG(seed, 1))
		var d Deficit
		sent := make([]int64, n)
		last, most := -1, int64(0)
		for range 3000 {
			size := 60 + r.IntN(1455)
			if r.IntN(10) == 0 {
				size = 1 + r.IntN(65000)
			}
			m := d.Next(size, q, n)
			if last < 0 && m != 0 {
				t.Fatalf("starts at %d", m)
			}
			if r.IntN(20) == 0 {
				d.GiveBack(m, size)
				size = 0
			}
			sent[m] += int64(size)
			last, most = m, max(most, int64(size))
			for i := range sent {
				if diff := sent[i] - sent[0]; diff > q+2*most || -diff > q+2*most {
					t.Fatalf("member %d has sent %d bytes, member 0 %d: quantum %d, largest frame %d", i, sent[i], sent[0], q, most)
				}
			}
		}
	})
}

func TestDeficitRuns(t *testing.T) {
	var d Deficit
	var got []int
	for _, size := range []int{1000, 1000, 1000, 3000, 1000, 1000, 1000, 1000} {
		got = append(got, d.Next(size, 2000, 2))
	}
	// Member 0 sends 2000, member 1 4000: its next turn is used up.
	for i, want := range []int{0, 0, 1, 1, 0, 0, 0, 0} {
		if got[i] != want {
			t.Fatalf("members %v", got)
		}
	}
	d.Reset()
	if d.Next(1, 2000, 2) != 0 {
		t.Error("not at the start after Reset")
	}
}
