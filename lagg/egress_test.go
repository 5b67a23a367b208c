package lagg

import (
	"testing"
	"time"

	"github.com/netring/netring/ring"
)

// sink is an egress that notes the first byte of each frame that it takes.
type sink struct {
	got   []byte
	limit int // how many it takes, in all

	backlog int
}

func (s *sink) Pending() int { return s.backlog }

func (s *sink) Move(src *ring.Ring, n int) int {
	took := 0
	for ; took < n && src.Space() > 0 && len(s.got) < s.limit; took++ {
		s.got = append(s.got, src.Frame(src.Head)[0])
		ring.Skip(src, 1)
	}
	return took
}
func (s *sink) Copy(src *ring.Ring, k uint32) { s.got = append(s.got, src.Frame(k)[0]) }
func (s *sink) Flush() error                  { return nil }

// source is a receive ring whose Sync brings all its frames.
type source struct{ n uint32 }

func (s source) Sync(r *ring.Ring, from, to uint32) (uint32, uint32, error) {
	return to, to + s.n, nil
}

func frames(t testing.TB, n int) *ring.Ring {
	t.Helper()
	region, err := ring.NewRegion(make([]byte, n*64), 64)
	if err != nil {
		t.Fatal(err)
	}
	r, err := ring.New(ring.Config{Port: "test", Slots: n, Region: region, Life: ring.NewLife(), Driver: source{uint32(n)}})
	if err != nil {
		t.Fatal(err)
	}
	for k := range uint32(n) {
		*r.Slot(k) = ring.Slot{Buf: k, Len: 60}
		f := r.Frame(k)
		copy(f, udp(k, 2, 3, 4, 0, 0))
		f[0] = byte(k)
	}
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestEgress(t *testing.T) {
	clock := func() time.Duration { return 1 }
	make3 := func(o Options, limit int) (*Group, *Egress, []*sink) {
		o.HoldDown = -1
		g := group(t, 3, o)
		s := []*sink{{limit: limit}, {limit: limit}, {limit: limit}}
		e, err := g.Egress([]ring.Egress{s[0], s[1], s[2]}, clock)
		if err != nil {
			t.Fatal(err)
		}
		return g, e, s
	}
	up := func(g *Group, which ...int) {
		for _, i := range which {
			g.SetLink(i, true, 1)
		}
	}
	t.Run("no link", func(t *testing.T) {
		_, e, _ := make3(Options{Proto: RoundRobin}, 99)
		if n := e.Move(frames(t, 8), 8); n != 8 || e.Stats.NoLink.Load() != 8 {
			t.Errorf("took %d, counted %d", n, e.Stats.NoLink.Load())
		}
	})
	t.Run("roundrobin", func(t *testing.T) {
		g, e, s := make3(Options{Proto: RoundRobin, Stride: 2}, 99)
		up(g, 0, 2)
		e.Move(frames(t, 8), 8)
		if string(s[0].got) != "\x00\x01\x04\x05" || string(s[2].got) != "\x02\x03\x06\x07" || len(s[1].got) != 0 {
			t.Errorf("got % x | % x | % x", s[0].got, s[1].got, s[2].got)
		}
	})
	t.Run("roundrobin held up", func(t *testing.T) {
		g, e, s := make3(Options{Proto: RoundRobin, Stride: 2}, 3)
		up(g, 0, 1)
		src := frames(t, 8)
		// Member 0 takes 0, 1, then 4 and no more; the rest keeps its place.
		if n := e.Move(src, 8); n != 5 || src.Space() != 3 {
			t.Errorf("took %d, left %d", n, src.Space())
		}
		s[0].limit = 99
		if n := e.Move(src, 8); n != 2 {
			t.Errorf("took %d then", n)
		}
		if string(s[0].got) != "\x00\x01\x04\x05" || string(s[1].got) != "\x02\x03\x06" {
			t.Errorf("got % x | % x", s[0].got, s[1].got)
		}
	})
	t.Run("bytes", func(t *testing.T) {
		g, e, s := make3(Options{Proto: RoundRobin, StrideBytes: 1200}, 99)
		up(g, 0, 1, 2)
		e.Move(frames(t, 64), 60)
		for i := range s {
			if len(s[i].got) != 20 || s[i].got[0] != byte(20*i) {
				t.Errorf("member %d got % x: want 20 frames of 60 bytes, stride 1200", i, s[i].got)
			}
		}
	})
	t.Run("bytes held up", func(t *testing.T) {
		g, e, s := make3(Options{Proto: RoundRobin, StrideBytes: 1200}, 10)
		up(g, 0, 1)
		src := frames(t, 64)
		if n := e.Move(src, 64); n != 10 {
			t.Errorf("took %d", n)
		}
		s[0].limit, s[1].limit = 99, 99
		e.Move(src, 54)
		if a, b := len(s[0].got), len(s[1].got); a+b != 64 || a-b > 20 || b-a > 20 {
			t.Errorf("members got %d and %d frames", a, b)
		}
	})
	t.Run("broadcast", func(t *testing.T) {
		g, e, s := make3(Options{Proto: Broadcast}, 2)
		up(g, 0, 2)
		if n := e.Move(frames(t, 4), 4); n != 4 {
			t.Errorf("took %d", n)
		}
		if string(s[0].got) != "\x00\x01\x02\x03" || string(s[2].got) != "\x00\x01\x02\x03" {
			t.Errorf("got % x | % x", s[0].got, s[2].got)
		}
	})
	t.Run("loadbalance", func(t *testing.T) {
		g, e, s := make3(Options{Proto: LoadBalance, Hash: L3, Seed: 3}, 99)
		up(g, 0, 1, 2)
		src := frames(t, 64)
		e.Move(src, 64)
		first := [3]string{string(s[0].got), string(s[1].got), string(s[2].got)}
		if len(first[0])+len(first[1])+len(first[2]) != 64 {
			t.Fatalf("lost: %q", first)
		}
		for i := range s {
			s[i].got = nil
		}
		e.Move(frames(t, 64), 64)
		if now := [3]string{string(s[0].got), string(s[1].got), string(s[2].got)}; now != first {
			t.Errorf("the same flows went elsewhere: %q, %q", first, now)
		}
	})
	t.Run("failover", func(t *testing.T) {
		g, e, s := make3(Options{Primary: 1}, 99)
		up(g, 0, 1)
		want := func(stage string, standIn, primary int) {
			t.Helper()
			e.Move(frames(t, 2), 2)
			if len(s[0].got) != standIn || len(s[1].got) != primary {
				t.Errorf("%s: stand-in has %d frames, primary %d", stage, len(s[0].got), len(s[1].got))
			}
		}
		want("both up", 0, 2)
		s[1].backlog = 1 // is lost with the link: nothing to wait for
		g.SetLink(1, false, 2)
		want("primary down", 2, 2)
		s[0].backlog = 1
		g.SetLink(1, true, 3)
		want("primary back, stand-in busy", 4, 2)
		s[0].backlog = 0
		want("stand-in drained", 4, 4)
		if m, k := e.Stats.Moved.Load(), e.Stats.Kept.Load(); m != 2 || k != 1 {
			t.Errorf("moved %d times, kept %d batches", m, k)
		}
	})
	t.Run("failover flowlet", func(t *testing.T) {
		now := time.Duration(0)
		g := group(t, 2, Options{FlowletGap: time.Millisecond, HoldDown: -1})
		s := []*sink{{limit: 99, backlog: 1}, {limit: 99, backlog: 1}}
		e, err := g.Egress([]ring.Egress{s[0], s[1]}, func() time.Duration { return now })
		if err != nil {
			t.Fatal(err)
		}
		up(g, 1)
		e.Move(frames(t, 2), 2)
		up(g, 0)
		now += 900 * time.Microsecond
		e.Move(frames(t, 2), 2)
		now += 1100 * time.Microsecond
		e.Move(frames(t, 2), 2)
		if len(s[0].got) != 2 || len(s[1].got) != 4 {
			t.Errorf("primary has %d frames, stand-in %d", len(s[0].got), len(s[1].got))
		}
	})
}

// deaf is an egress that cannot tell what it has not sent.
type deaf struct{ ring.Egress }

func TestEgressNeedsPending(t *testing.T) {
	clock := func() time.Duration { return 1 }
	two := []ring.Egress{&sink{}, deaf{&sink{}}}
	for name, c := range map[string]struct {
		o  Options
		ok bool
	}{
		"failover": {Options{}, false}, "loadbalance": {Options{Proto: LoadBalance}, false},
		"flowlet":    {Options{Proto: LoadBalance, FlowletGap: time.Millisecond}, true},
		"roundrobin": {Options{Proto: RoundRobin}, true}, "broadcast": {Options{Proto: Broadcast}, true},
	} {
		if _, err := group(t, 2, c.o).Egress(two, clock); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := group(t, 3, Options{}).Egress(two, clock); err == nil {
		t.Error("two egresses for three members")
	}
}

func TestStatus(t *testing.T) {
	g := group(t, 2, Options{Primary: 1, HoldDown: -1})
	a, b := &sink{limit: 99}, &sink{limit: 99}
	e, err := g.Egress([]ring.Egress{a, b}, func() time.Duration { return 1 })
	if err != nil {
		t.Fatal(err)
	}
	e.Move(frames(t, 2), 2)
	g.SetLink(0, true, 1)
	e.Move(frames(t, 4), 3)
	e.Copy(frames(t, 1), 0)
	g.SetLink(1, true, 2)
	g.SetLink(0, false, 3)
	st := g.Status()
	want := []MemberStatus{
		{Name: "a", Downs: 1, Frames: 4},
		{Name: "b", Link: true, Active: true, Sends: true, Accepts: true},
	}
	if st.Proto != "failover" || st.NoLink != 2 || st.Members[0] != want[0] || st.Members[1] != want[1] {
		t.Errorf("%+v", st)
	}
}
