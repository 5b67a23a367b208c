package lagg

import (
	"reflect"
	"testing"
	"time"
)

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

// A member that is held is used all the same when there is no other.
func TestHoldDownOfTheLast(t *testing.T) {
	g := group(t, 2, Options{HoldDown: 100})
	g.SetLink(0, true, 1)
	g.SetLink(1, true, 1)
	g.SetLink(0, false, 10)
	g.SetLink(0, true, 11)
	if got := g.Live(); !reflect.DeepEqual(got, []int{1}) {
		t.Fatalf("live %v with 0 held", got)
	}
	if next := g.SetLink(1, false, 12); next != 111 || !reflect.DeepEqual(g.Live(), []int{0}) {
		t.Errorf("live %v, next tick at %d, with 0 held and 1 down", g.Live(), next)
	}
	g.SetLink(1, true, 13)
	if got := g.Live(); !reflect.DeepEqual(got, []int{0, 1}) {
		t.Errorf("live %v with both held", got)
	}
	g.Tick(111)
	if got := g.Live(); !reflect.DeepEqual(got, []int{0}) {
		t.Errorf("live %v with 1 held", got)
	}
	g.SetLink(7, true, 120) // no such member
	g.SetLink(-1, true, 120)
}

// An unchanged state makes no new snapshot: workers would start anew.
func TestSnapshotOnlyWhenChanged(t *testing.T) {
	g := group(t, 2, Options{})
	g.SetLink(0, true, 1)
	s := g.snap.Load()
	g.SetLink(0, true, 2)
	g.Tick(3)
	if g.snap.Load() != s {
		t.Error("a new snapshot without a change")
	}
}

func TestGrow(t *testing.T) {
	for _, c := range []struct {
		hold, most time.Duration
		times      uint
		want       time.Duration
	}{{1, 100, 0, 1}, {1, 100, 6, 64}, {1, 100, 7, 100}, {1, 100, 1 << 31, 100}, {1 << 61, 1<<63 - 1, 1, 1 << 62}} {
		if got := grow(c.hold, c.most, c.times); got != c.want {
			t.Errorf("%d doubled %d times, at most %d: %d, want %d", c.hold, c.times, c.most, got, c.want)
		}
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
