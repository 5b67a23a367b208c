package lagg

import (
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/netring/netring/ring"
)

// Vectors of mechanisms that others published: lagg(4)'s link_active over four
// ports, a row for each set of active ones.
func TestLinkActive(t *testing.T) {
	rows := []string{
		"0000 ----", "1000 0000", "0100 1111", "1100 0100", "0010 2222", "1010 0220", "0110 1121", "1110 0120",
		"0001 3333", "1001 0033", "0101 1133", "1101 0133", "0011 2223", "1011 0223", "0111 1123", "1111 0123",
	}
	for _, row := range rows {
		bits, want, _ := strings.Cut(row, " ")
		active := make([]bool, 4)
		for i := range active {
			active[i] = bits[i] == '1'
		}
		for p := range 4 {
			w := int(want[p]) - '0'
			if want[p] == '-' {
				w = -1
			}
			if got := LinkActive(active, p); got != w {
				t.Errorf("active %s, asked for %d: got %d, want %d", bits, p, got, w)
			}
		}
	}
	if got := LinkActive([]bool{false, true}, -1); got != 1 {
		t.Errorf("none asked for: got %d", got)
	}
}

func TestSequence(t *testing.T) {
	for _, c := range []struct {
		stride uint32
		live   int
		start  uint32
		want   []int
	}{
		{1, 3, 0, []int{0, 1, 2, 0, 1, 2}},
		{2, 3, 0, []int{0, 0, 1, 1, 2, 2, 0}},
		{4, 3, 0, []int{0, 0, 0, 0, 1, 1, 1, 1, 2}},
		{1, 3, 4294967293, []int{1, 2, 0, 0, 1}},
		{4, 3, 4294967291, []int{2, 0, 0, 0, 0, 0, 0}},
	} {
		var s Sequence
		s.Take(c.start)
		for i, want := range c.want {
			if got, _ := At(s.Take(1), c.stride, c.live); got != want {
				t.Errorf("stride %d from %d: place %d is %d, want %d", c.stride, c.start, i, got, want)
			}
		}
	}
	var s Sequence
	if a := s.Take(8); a != 0 {
		t.Fatal(a)
	}
	s.GiveBack(3)
	if a := s.Take(1); a != 5 {
		t.Errorf("after giving 3 of 8 back: place %d, want 5", a)
	}
}

func TestMixAndRendezvous(t *testing.T) {
	for in, want := range map[uint64]uint64{1: 0x5692161d100b05e5, 2: 0xdbd238973a2b148a, 0xdeadbeef: 0x4e062702ec929eea} {
		if got := Mix(in); got != want {
			t.Errorf("mix(%#x) = %#x, want %#x", in, got, want)
		}
	}
	for _, c := range []struct {
		live []int
		want []int
	}{
		{[]int{0, 1, 2, 3}, []int{2, 2, 2, 1, 2, 2, 2, 1, 1, 0, 3, 1, 0, 2, 3, 2}},
		{[]int{0, 1, 3}, []int{1, 3, 3, 1, 3, 0, 0, 1, 1, 0, 3, 1, 0, 0, 3, 3}},
	} {
		for flow, want := range c.want {
			if got := Rendezvous(uint64(flow), c.live, nil); got != want {
				t.Errorf("flow %d over %v: %d, want %d", flow, c.live, got, want)
			}
		}
	}
	if Rendezvous(1, nil, nil) != -1 {
		t.Error("a member out of none")
	}
}

// TestFailover is lagg(4)'s table: who sends, whose input is accepted.
func TestFailover(t *testing.T) {
	for _, c := range []struct {
		primary int
		active  string
		sender  int
		accept  string
	}{
		{0, "111", 0, "100"}, {0, "011", 1, "110"}, {0, "001", 2, "101"}, {1, "111", 1, "010"},
		{1, "101", 2, "011"}, {2, "110", 0, "101"}, {2, "010", 1, "011"}, {0, "000", -1, "111"},
	} {
		for _, rxAll := range []bool{false, true} {
			g := group(t, 3, Options{Primary: c.primary, RxAll: rxAll, HoldDown: -1})
			for i := range 3 {
				g.SetLink(i, c.active[i] == '1', 1)
			}
			if got := g.snap.Load().sender; got != c.sender {
				t.Errorf("primary %d active %s: sender %d, want %d", c.primary, c.active, got, c.sender)
			}
			for i := range 3 {
				if want := c.accept[i] == '1' || rxAll; g.Accepts(i) != want {
					t.Errorf("primary %d active %s rx-all %v: accepts %d %v", c.primary, c.active, rxAll, i, g.Accepts(i))
				}
			}
		}
	}
}

func TestHoldDown(t *testing.T) {
	g := group(t, 2, Options{HoldDown: 100, HoldDownMax: 350})
	check := func(when time.Duration, want ...int) {
		t.Helper()
		if got := g.Live(); !reflect.DeepEqual(got, want) && len(got)+len(want) != 0 {
			t.Errorf("at %d: live %v, want %v", when, got, want)
		}
	}
	g.SetLink(0, true, 1) // the first up is no flap
	g.SetLink(1, true, 1)
	check(1, 0, 1)
	now := time.Duration(10)
	for i, hold := range []time.Duration{100, 200, 350, 350} {
		g.SetLink(0, false, now)
		check(now, 1) // down at once
		if next := g.SetLink(0, true, now+1); next != now+1+hold {
			t.Errorf("flap %d: next tick at %d, want %d", i, next, now+1+hold)
		}
		g.Tick(now + hold)
		check(now+hold, 1)
		if next := g.Tick(now + hold + 1); next != 0 {
			t.Errorf("flap %d: another tick at %d", i, next)
		}
		check(now+hold+1, 0, 1)
		now += hold + 2
	}
	// A long time without a flap forgives them.
	now += 1000
	g.SetLink(0, false, now)
	if next := g.SetLink(0, true, now+1); next != now+101 {
		t.Errorf("after a calm time: next tick at %d, want %d", next, now+101)
	}
}

func group(t testing.TB, n int, o Options) *Group {
	t.Helper()
	g, err := New([]string{"a", "b", "c", "d", "e", "f"}[:n], o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// flows sends one frame of each of n flows through a table and returns where
// each went.
func flows(tb *table, n int, now uint32, s *snapshot, w []uint32, drained func(int) bool) []int {
	got := make([]int, n)
	for f := range got {
		got[f] = tb.member(Mix(uint64(f)), now, 0, s, w, drained)
	}
	return got
}

func TestSharesAndMoves(t *testing.T) {
	const n = 1000
	never := func(int) bool { return false }
	always := func(int) bool { return true }
	for seed := range 50 {
		g := group(t, 4, Options{Proto: LoadBalance, HoldDown: -1, Seed: uint64(seed) + 1})
		for i := range 4 {
			g.SetLink(i, true, 1)
		}
		tb := newTable()
		flow := func(f int) uint64 { return Mix(uint64(f) ^ g.opt.Seed) }
		pass := func(drained func(int) bool) (to [n]int, count [4]int) {
			for f := range n {
				to[f] = tb.member(flow(f), 1, 0, g.snap.Load(), nil, drained)
				count[to[f]]++
			}
			return to, count
		}
		before, count := pass(never)
		for m, c := range count {
			if c < n/4*95/100 || c > n/4*105/100 {
				t.Errorf("seed %d: member %d has %d of %d flows, not within 5 %% of its share", seed, m, c, n)
			}
		}
		g.SetLink(2, false, 2)
		during, _ := pass(never)
		for f := range n {
			if before[f] != 2 && during[f] != before[f] {
				t.Fatalf("seed %d: flow %d moved from healthy member %d to %d", seed, f, before[f], during[f])
			}
			if during[f] == 2 {
				t.Fatalf("seed %d: flow %d stays on a dead member", seed, f)
			}
		}
		g.SetLink(2, true, 3)
		if still, _ := pass(never); still != during {
			t.Fatalf("seed %d: flows moved back before the stand-in's queue drained", seed)
		}
		if after, _ := pass(always); after != before {
			t.Fatalf("seed %d: not exactly the old flows came back", seed)
		}
	}
}

func TestWeights(t *testing.T) {
	w := []uint32{3, 1}
	g := group(t, 2, Options{Proto: LoadBalance, Weights: w, HoldDown: -1, Seed: 7})
	g.SetLink(0, true, 1)
	g.SetLink(1, true, 1)
	count := [2]int{}
	for _, m := range flows(newTable(), 4000, 1, g.snap.Load(), w, func(int) bool { return false }) {
		count[m]++
	}
	if count[0] < 2850 || count[0] > 3150 {
		t.Errorf("weights 3 and 1: %v of 4000 flows", count)
	}
}

func TestFlowlet(t *testing.T) {
	g := group(t, 2, Options{Proto: LoadBalance, HoldDown: -1, Seed: 7})
	g.SetLink(0, true, 1)
	tb, never := newTable(), func(int) bool { return false }
	if m := tb.member(5, 100, 10, g.snap.Load(), nil, never); m != 0 {
		t.Fatal(m)
	}
	g.SetLink(0, false, 2)
	g.SetLink(1, true, 2)
	if m := tb.member(5, 101, 10, g.snap.Load(), nil, never); m != 1 {
		t.Fatal(m)
	}
	g.SetLink(0, true, 3)
	if m := tb.member(5, 110, 10, g.snap.Load(), nil, never); m != 1 {
		t.Errorf("moved after 9 ticks of silence, gap 10")
	}
	if m := tb.member(5, 120, 10, g.snap.Load(), nil, never); m != 0 {
		t.Errorf("not moved after 10 ticks of silence, gap 10")
	}
}

func TestAging(t *testing.T) {
	g := group(t, 2, Options{Proto: LoadBalance, HoldDown: -1, Seed: 7})
	g.SetLink(0, true, 1)
	tb := newTable()
	flows(tb, 100, 1, g.snap.Load(), nil, nil)
	for range buckets / 16 {
		tb.age(forget)
	}
	if tb.used == 0 {
		t.Error("flows forgotten too early")
	}
	for range buckets / 16 {
		tb.age(forget + 2)
	}
	if tb.used != 0 || tb.load[0] != 0 {
		t.Errorf("%d flows not forgotten", tb.used)
	}
}

func TestDeficit(t *testing.T) {
	var d Deficit
	var bytes [3]int
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 30000 {
		n := 60 + rnd.IntN(1454)
		bytes[d.Next(n, 6000, 3)] += n
	}
	for m, b := range bytes {
		if b < bytes[0]*98/100 || b > bytes[0]*102/100 {
			t.Errorf("member %d sent %d bytes, member 0 %d", m, b, bytes[0])
		}
	}
}

// udp builds a frame of a flow; v6, tags and fragments as asked for.
func udp(src, dst uint32, sp, dp uint16, tags int, frag uint16) []byte {
	b := []byte("\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01")
	for i := range tags {
		b = append(b, 0x81, 0, 0, byte(i+1))
	}
	b = append(b, 8, 0, 0x45, 0, 0, 28)
	b = append(b, 0, 0)
	b = binary.BigEndian.AppendUint16(b, frag)
	b = append(b, 64, 17, 0, 0)
	b = binary.BigEndian.AppendUint32(b, src)
	b = binary.BigEndian.AppendUint32(b, dst)
	b = binary.BigEndian.AppendUint16(b, sp)
	b = binary.BigEndian.AppendUint16(b, dp)
	return append(b, 0, 8, 0, 0)
}

func TestHash(t *testing.T) {
	h := Hasher{Fields: L3 | L4, Seed: 1}
	base := h.Hash(udp(1, 2, 3, 4, 0, 0))
	for name, c := range map[string]struct {
		h     Hasher
		frame []byte
		same  bool
	}{
		"other source":            {h, udp(9, 2, 3, 4, 0, 0), false},
		"other port":              {h, udp(1, 2, 3, 5, 0, 0), false},
		"reverse":                 {h, udp(2, 1, 4, 3, 0, 0), false},
		"tagged, no l2":           {h, udp(1, 2, 3, 4, 2, 0), true},
		"other seed":              {Hasher{Fields: L3 | L4, Seed: 2}, udp(1, 2, 3, 4, 0, 0), false},
		"first fragment":          {h, udp(1, 2, 3, 4, 0, 0x2000), false},
		"with l2":                 {Hasher{Fields: L2 | L3 | L4, Seed: 1}, udp(1, 2, 3, 4, 0, 0), false},
		"only l3 of a later part": {h, udp(1, 2, 0x1111, 0x2222, 0, 5), false},
	} {
		if got := c.h.Hash(c.frame); (got == base) != c.same {
			t.Errorf("%s: hash equal to the base's: %v", name, got == base)
		}
	}
	if h.Hash(udp(1, 2, 3, 4, 0, 0x2000)) != h.Hash(udp(1, 2, 7, 8, 0, 5)) {
		t.Error("fragments of one datagram hash differently")
	}
	for _, f := range []Fields{L2, L3, L4, L2 | L3, L3 | L4, L2 | L3 | L4} {
		s := Hasher{Fields: f, Seed: 1, Symmetric: true}
		fwd, back := udp(1, 2, 3, 4, 1, 0), udp(2, 1, 4, 3, 1, 0)
		copy(back, fwd[6:12])
		copy(back[6:], fwd[:6])
		if s.Hash(fwd) != s.Hash(back) {
			t.Errorf("symmetric hash over %v differs by direction", f)
		}
	}
}

func FuzzHash(f *testing.F) {
	f.Add(udp(1, 2, 3, 4, 2, 0), uint8(7))
	f.Add([]byte{}, uint8(1))
	f.Fuzz(func(t *testing.T, frame []byte, opts uint8) {
		h := Hasher{Fields: Fields(opts & 7), Seed: 3, Symmetric: opts&8 != 0, Inner: opts&16 != 0}
		if h.Hash(frame) != h.Hash(append([]byte(nil), frame...)) {
			t.Error("hash depends on more than the frame")
		}
	})
}

func TestParseSpec(t *testing.T) {
	for in, want := range map[string]string{
		"eth1+eth2":      "lagg:eth1+eth2@lagg:proto=failover",
		"lagg:eth1+eth2": "lagg:eth1+eth2@lagg:proto=failover",
		"eth2+eth3@lagg:proto=loadbalance,hash=l3+l4,seed=5,symmetric=on,weights=3+1": "lagg:eth2+eth3@lagg:proto=loadbalance,hash=l3+l4,seed=5,symmetric=on,weights=3+1",
		"a+b@lagg:proto=roundrobin,stride=32":                                         "lagg:a+b@lagg:proto=roundrobin,stride=32",
		"a+b@lagg:proto=roundrobin,stride_bytes=65536":                                "lagg:a+b@lagg:proto=roundrobin,stride-bytes=65536",
		"a+b@lagg:primary=b,rx-all=on,holddown=1s,holddown-max=3s":                    "lagg:a+b@lagg:proto=failover,holddown=1s,holddown-max=3s,primary=b,rx-all=on",
		"a+b@lagg:holddown=0s":                                                        "lagg:a+b@lagg:proto=failover,holddown=0s",
	} {
		sp, err := ParseSpec(in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if sp.String() != want {
			t.Errorf("%s: canonical %s, want %s", in, sp, want)
		}
		again, err := ParseSpec(sp.String())
		if err != nil || !reflect.DeepEqual(again, sp) {
			t.Errorf("%s: its canonical form means %+v, %v", in, again, err)
		}
	}
	for _, bad := range []string{
		"", "lagg:", "a+", "a+a", "a b", "a+b@foo", "a+b@lagg:", "a+b@lagg:proto", "a+b@lagg:proto=x", "a+b@lagg:stride=0",
		"a+b@lagg:proto=roundrobin,stride=1,stride-bytes=99", "a+b@lagg:stride=3", "a+b@lagg:proto=loadbalance,hash=l5",
		"a+b@lagg:proto=loadbalance,weights=1", "a+b@lagg:primary=c", "a+b@lagg:proto=broadcast,proto=broadcast", "a+b@lagg:seed=07",
		"a+b@lagg:nosuch=1", "a+b@lagg:proto=loadbalance,flowlet=1us", "a+b@lagg:holddown=5s,holddown-max=1s", "a+b@lagg:proto=loadbalance,flowid-shift=32",
	} {
		if sp, err := ParseSpec(bad); err == nil {
			t.Errorf("%q accepted: %v", bad, sp)
		}
	}
}

func FuzzParseSpec(f *testing.F) {
	f.Add("lagg:a+b@lagg:proto=loadbalance,hash=l3+l4,weights=3+1,flowlet=5ms")
	f.Add("a@lagg:primary=a,holddown=0s")
	f.Fuzz(func(t *testing.T, s string) {
		sp, err := ParseSpec(s)
		if err != nil {
			return
		}
		again, err := ParseSpec(sp.String())
		if err != nil || !reflect.DeepEqual(again, sp) {
			t.Errorf("%q: %q means %+v, %v; not %+v", s, sp.String(), again, err, sp)
		}
	})
}

// sink is an egress that notes the first byte of each frame that it takes.
type sink struct {
	got   []byte
	limit int // how many it takes, in all
}

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
		g, e, s := make3(Options{Proto: RoundRobin, StrideBytes: 120}, 99)
		up(g, 0, 1, 2)
		e.Move(frames(t, 8), 6)
		for i := range s {
			if len(s[i].got) != 2 {
				t.Errorf("member %d got %d frames of 60 bytes, stride 120", i, len(s[i].got))
			}
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
		e.Move(frames(t, 2), 2)
		g.SetLink(1, false, 2)
		e.Move(frames(t, 2), 2)
		if len(s[1].got) != 2 || len(s[0].got) != 2 {
			t.Errorf("primary %d, stand-in %d", len(s[1].got), len(s[0].got))
		}
	})
}

func BenchmarkSelect(b *testing.B) {
	for name, o := range map[string]Options{
		"failover": {}, "roundrobin": {Proto: RoundRobin, Stride: 8}, "bytes": {Proto: RoundRobin, StrideBytes: 16384},
		"loadbalance": {Proto: LoadBalance}, "loadbalance/l3l4": {Proto: LoadBalance, Hash: L3 | L4},
	} {
		b.Run(name, func(b *testing.B) {
			g := group(b, 4, o)
			var out []ring.Egress
			for i := range 4 {
				g.SetLink(i, true, 1)
				out = append(out, skipper{})
			}
			e, err := g.Egress(out, func() time.Duration { return 1 })
			if err != nil {
				b.Fatal(err)
			}
			src := frames(b, 256)
			b.ReportAllocs()
			for b.Loop() {
				e.Move(src, 256)
				src.Sync()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/pkt")
		})
	}
}

// skipper is an egress that costs nothing.
type skipper struct{}

func (skipper) Move(src *ring.Ring, n int) int { return ring.Skip(src, n) }
func (skipper) Copy(*ring.Ring, uint32)        {}
func (skipper) Flush() error                   { return nil }
