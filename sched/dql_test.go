package sched

import (
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

func newLimit(t testing.TB, o LimitOptions, now int64) *DynamicLimit {
	t.Helper()
	d, err := NewDynamicLimit(o, now)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// slowLimit is the limit's rule over totals that do not wrap, by looking back
// through a log of everything that happened.
type slowLimit struct {
	o         LimitOptions
	queued    []int64 // total after each object
	last      []int64 // its size
	done      int64
	limit     int64
	over      int64 // of the interval before
	seen      int   // objects that the completion before had seen
	slacks    []int64
	slackFrom int64
	adj       int64
	posts     map[int64]bool
	newest    int64 // newest word of posts
	reaped    int64
	stalls    uint64
	longest   int64
}

func (s *slowLimit) total(n int) int64 {
	if n == 0 {
		return 0
	}
	return s.queued[n-1]
}

func (s *slowLimit) Queued(n, now int64) {
	s.queued = append(s.queued, s.total(len(s.queued))+n)
	s.last = append(s.last, n)
	s.posts[now] = true
	s.newest = max(s.newest, now/64)
}

func (s *slowLimit) Completed(n, now int64) {
	q, before := s.total(len(s.queued)), s.total(s.seen)
	done := s.done + n
	over := max(q-s.done-s.limit, 0)
	limit := s.limit
	ranDry := q == done && over > 0
	overAndAll := s.over > 0 && done >= before
	if ranDry || overAndAll {
		limit += max(done-before, 0) + s.over
		s.slacks, s.slackFrom = nil, now
	} else if q > done && before > s.done && done < before {
		slack := max(limit+s.over-2*n, 0)
		if s.over > 0 {
			slack = max(slack, s.last[s.seen-1]-s.over)
		}
		s.slacks = append(s.slacks, slack)
		if now > s.slackFrom+s.o.Hold {
			least := s.slacks[0]
			for _, v := range s.slacks {
				least = min(least, v)
			}
			limit = max(limit-least, 0)
			s.slacks, s.slackFrom = nil, now
		}
	}
	limit = min(max(limit, int64(s.o.Min)), int64(s.o.max()))
	if limit != s.limit {
		over = 0
	}
	s.limit, s.over, s.done, s.seen = limit, over, done, len(s.queued)
	s.adj = limit + done
	s.stall(now)
}

func (s *slowLimit) stall(now int64) {
	thr := int64(s.o.Stall)
	if thr == 0 {
		return
	}
	if now >= s.reaped+thr {
		for t := s.reaped + 1; t <= now-thr/2; t++ {
			if s.posts[t] && t/64 > s.newest-4 {
				s.stalls++
				s.longest = max(s.longest, now-t)
				break
			}
		}
	}
	s.reaped = now
}

func (s *slowLimit) state(start uint32) dqlState {
	lowest := int64(slackUnset)
	for _, v := range s.slacks {
		lowest = min(lowest, v)
	}
	q := s.total(len(s.queued))
	return dqlState{
		uint32(s.limit), int32(s.adj - q), start + uint32(q), start + uint32(s.done), uint32(s.over), uint32(lowest), s.slackFrom,
	}
}

// FuzzDynamicLimit compares with the slow implementation, over the wrap of the
// totals. Two bytes are one step.
func FuzzDynamicLimit(f *testing.F) {
	f.Add(uint32(0), uint16(10), uint16(0), uint16(0), uint8(0), []byte("\x10\x20\x81\xff\x10\x20\x11\x40\x83\x80\x10\x01\x84\x10"))
	f.Add(uint32(4294960000), uint16(0), uint16(3000), uint16(9000), uint8(4), []byte("\x4f\xff\x4f\xff\x81\x10\x8f\x01\x4f\xff\xff\xff\x8f\x00"))
	f.Add(uint32(1), uint16(100), uint16(0), uint16(60), uint8(20), []byte("\x7f\xff\xff\xff\x7f\xff\xff\x80\x7f\xff\xff\x80\x7f\xff\xff\x80"))
	f.Fuzz(func(t *testing.T, start uint32, hold, lo, hi uint16, stall uint8, steps []byte) {
		o := LimitOptions{Min: uint32(lo), Max: uint32(hi), Hold: int64(hold), Stall: int(stall)}
		if o.Validate() != nil {
			return
		}
		d := newLimit(t, o, 0)
		d.startAt(start)
		s := &slowLimit{o: o, posts: map[int64]bool{}}
		now := int64(0)
		for i := 0; i+1 < len(steps); i += 2 {
			op, arg := steps[i], int64(steps[i+1])
			now += int64(op & 0x3f)
			if op&0x80 == 0 {
				n := arg * 257
				if op&0x40 == 0 {
					n = arg
				}
				s.Queued(n, now)
				if !d.Queued(uint32(n), now) {
					t.Fatalf("step %d: queued(%d) refused", i/2, n)
				}
			} else {
				n := (s.total(len(s.queued)) - s.done) * arg / 255
				s.Completed(n, now)
				if !d.Completed(uint32(n), now) {
					t.Fatalf("step %d: completed(%d) refused", i/2, n)
				}
			}
			// The start total is what counts as allowed at first, too.
			if got, want := dqlStateOf(d), s.state(start); got != want {
				t.Fatalf("step %d:\n got %+v\nwant %+v", i/2, got, want)
			}
			if n, longest := d.Stalls(); n != s.stalls || longest != s.longest {
				t.Fatalf("step %d: stalls %d, %d; want %d, %d", i/2, n, longest, s.stalls, s.longest)
			}
		}
	})
}

func TestLimitBounds(t *testing.T) {
	for _, o := range []LimitOptions{
		{Max: MaxLimit + 1}, {Min: 2, Max: 1}, {Min: MaxLimit + 1}, {Hold: -1}, {Stall: 3}, {Stall: 129}, {Stall: -1},
	} {
		if _, err := NewDynamicLimit(o, 0); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	d := newLimit(t, LimitOptions{}, 0)
	if d.Queued(MaxObject+1, 0) || d.Avail() != 0 {
		t.Errorf("an object above the largest was taken; avail %d", d.Avail())
	}
	if d.QueuedBatch(10, 11, 0) {
		t.Error("a last object larger than its batch was taken")
	}
	if d.Completed(1, 0) {
		t.Error("a completion of more than is outstanding was taken")
	}
	if !d.Queued(MaxObject, 0) || d.Avail() != -MaxObject {
		t.Errorf("the largest object was not taken; avail %d", d.Avail())
	}
}

// A batch is the same as its objects one by one.
func TestLimitBatch(t *testing.T) {
	a, b := newLimit(t, LimitOptions{Hold: 3}, 0), newLimit(t, LimitOptions{Hold: 3}, 0)
	for now := int64(1); now < 40; now++ {
		var sum uint32
		for i := range uint32(3) {
			n := 100 + uint32(now)*7%50 + i
			a.Queued(n, now)
			sum += n
			if i == 2 {
				b.QueuedBatch(sum, n, now)
			}
		}
		n := min(sum, a.p.queued.Load()-a.c.completed) - uint32(now)%90
		a.Completed(n, now)
		b.Completed(n, now)
		if x, y := dqlStateOf(a), dqlStateOf(b); x != y {
			t.Fatalf("tick %d: one by one %+v, batch %+v", now, x, y)
		}
	}
}

func TestLimitReset(t *testing.T) {
	d := newLimit(t, LimitOptions{Hold: 1000}, 0)
	d.Queued(5000, 0)
	d.Completed(5000, 1)
	d.Queued(2000, 1)
	d.Reset(2)
	if got, want := dqlStateOf(d), (dqlState{Lowest: slackUnset, Start: 2}); got != want {
		t.Fatalf("after reset %+v, want %+v", got, want)
	}
	d.Queued(6000, 2)
	if d.Avail() != -6000 {
		t.Fatalf("avail after reset and one object: %d", d.Avail())
	}
	d.Completed(6000, 3)
	if d.Limit() != 6000 {
		t.Fatalf("limit after the first completion: %d", d.Limit())
	}
	if d.Grown() != 2 || d.Cut() != 0 {
		t.Fatalf("grown %d, cut %d", d.Grown(), d.Cut())
	}
}

func TestLimitStall(t *testing.T) {
	type step struct {
		t         int64
		completed bool
		n         uint32
		stalls    uint64
		longest   int64
	}
	for name, steps := range map[string][]step{
		"waits for 28":     {{1002, false, 100, 0, 0}, {1030, true, 100, 1, 28}},
		"in the last half": {{1021, false, 100, 0, 0}, {1030, true, 100, 0, 0}},
		"at the half":      {{1020, false, 100, 0, 0}, {1030, true, 100, 1, 10}},
		"often enough":     {{1001, false, 100, 0, 0}, {1019, true, 50, 0, 0}, {1038, true, 50, 0, 0}},
	} {
		d := newLimit(t, LimitOptions{Stall: 20}, 1000)
		for i, s := range steps {
			if s.completed {
				d.Completed(s.n, s.t)
			} else {
				d.Queued(s.n, s.t)
			}
			if n, longest := d.Stalls(); n != s.stalls || longest != s.longest {
				t.Errorf("%s: step %d: %d stalls, longest %d; want %d, %d", name, i, n, longest, s.stalls, s.longest)
			}
		}
	}
}

// The two sides run on two goroutines. With a producer that stops when told,
// what is outstanding is never more than the limit at its highest and one
// object.
func TestLimitTwoSides(t *testing.T) {
	const object, objects = 1000, 200_000
	d := newLimit(t, LimitOptions{Max: 20 * object, Stall: 8}, 0)
	handed := make(chan uint32, objects)
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		now, total := int64(0), uint32(0)
		for n := range handed {
			total += n
			now++
			if !d.Completed(n, now) {
				t.Error("a completion was refused")
				return
			}
			if out := d.p.queued.Load() - total; int32(out) > 21*object+20*object {
				t.Errorf("%d outstanding", out)
				return
			}
		}
	}()
	for sent := 0; sent < objects; {
		if d.Avail() >= 0 {
			d.Queued(object, int64(sent/10))
			handed <- object
			sent++
		}
	}
	close(handed)
	wg.Wait()
	if d.p.queued.Load() != d.c.completed {
		t.Fatalf("queued %d, completed %d", d.p.queued.Load(), d.c.completed)
	}
}

// No 128-byte block holds fields of both sides, wherever the struct starts.
func TestLimitLayout(t *testing.T) {
	ty := reflect.TypeFor[DynamicLimit]()
	p, _ := ty.FieldByName("p")
	c, _ := ty.FieldByName("c")
	if gap := c.Offset - p.Offset - p.Type.Size(); gap < 127 {
		t.Errorf("%d bytes between the sides", gap)
	}
	if rest := ty.Size() - c.Offset - c.Type.Size(); rest < 127 {
		t.Errorf("%d bytes after the completer's side", rest)
	}
}

// packedLimit is what DynamicLimit would be with its sides on one line.
type packedLimit struct {
	p producer
	c completer
}

// BenchmarkLimitLayout runs the two sides on two cores: the producer counts
// one object after the other, the completer finishes what is outstanding after
// each pause (in turns of an empty loop). Measured is the producer's time per
// object.
func BenchmarkLimitLayout(b *testing.B) {
	if runtime.GOMAXPROCS(0) < 2 {
		b.Skip("needs two processors")
	}
	for _, pause := range []int{0, 200, 2000} {
		b.Run(fmt.Sprintf("pause=%d/separate", pause), func(b *testing.B) {
			d := newLimit(b, LimitOptions{}, 0)
			benchSides(b, &d.p, &d.c, pause)
		})
		b.Run(fmt.Sprintf("pause=%d/packed", pause), func(b *testing.B) {
			d := new(packedLimit)
			d.c.max, d.c.lowestSlack = MaxLimit, slackUnset
			benchSides(b, &d.p, &d.c, pause)
		})
	}
}

func benchSides(b *testing.B, p *producer, c *completer, pause int) {
	b.ReportAllocs()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var turns atomic.Uint64
	wg.Add(1)
	go func() {
		defer wg.Done()
		n := uint64(0)
		for now := int64(0); ; now++ {
			select {
			case <-stop:
				turns.Store(n)
				return
			default:
			}
			for range 16 {
				c.complete(p, p.queued.Load()-c.completed, now)
				n++
				for range pause {
					spin++
				}
			}
		}
	}()
	stops := 0
	for b.Loop() {
		p.queue(60, 60, 0)
		if int32(p.adj.Load()-p.queued.Load()) < 0 {
			stops++ // a producer would wait here
		}
	}
	close(stop)
	wg.Wait()
	b.ReportMetric(float64(b.N)/float64(turns.Load()), "objects/completion")
	b.ReportMetric(float64(stops)/float64(b.N), "stops/object")
}

// spin is the completer's work between completions.
var spin int

func BenchmarkLimit(b *testing.B) {
	d := newLimit(b, LimitOptions{Hold: 1000}, 0)
	b.ReportAllocs()
	now := int64(0)
	for b.Loop() {
		now++
		d.QueuedBatch(64*60, 60, now)
		if !d.Completed(64*60, now) {
			b.Fatal("a completion was refused")
		}
	}
}
