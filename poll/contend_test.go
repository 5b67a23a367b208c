package poll

import (
	"testing"
	"time"
)

func TestRivals(t *testing.T) {
	type count struct {
		ours, theirs int // percent
		held         bool
		want         bool
	}
	for _, tc := range []struct {
		name   string
		share  int
		counts []count
	}{
		{"nobody", 20, []count{{95, 0, false, false}, {95, 3, false, false}, {19, 0, true, false}}},
		{"within our share", 50, []count{{49, 51, false, false}}},
		{"much", 50, []count{{60, 30, false, true}, {50, 30, true, true}}},
		// We go far before it: it gets little, and all that we leave.
		{"little and all", 20, []count{{91, 8, false, true}, {20, 79, true, true}, {20, 79, true, true}, {20, 0, true, false}}},
		{"little of what was left", 20, []count{{80, 6, false, false}}},
		// Something that wants little shows so when it can have more, and is
		// not given the core for it again.
		{"little and content", 20, []count{{93, 6, false, true}, {30, 6, true, false}, {20, 6, true, false}, {93, 6, false, false}, {94, 5, false, false}}},
		// But if it got less than that before, it is.
		{"little and not content", 20, []count{{94, 5, false, true}, {20, 12, true, false}, {20, 12, true, false}, {94, 6, false, true}}},
		// Something else has come that wants more, or the old one has gone.
		{"content, then another", 20, []count{{93, 6, false, true}, {20, 6, true, false}, {20, 6, true, false}, {91, 9, false, true}}},
		{"content, then gone, then another", 20, []count{{93, 6, false, true}, {20, 6, true, false}, {20, 6, true, false},
			{97, 0, false, false}, {93, 6, false, true}}},
		{"low fraction", 90, []count{{92, 8, false, true}, {90, 10, true, true}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := rivals{share: tc.share}
			for i, c := range tc.counts {
				const percent = 10 * time.Millisecond
				if got := r.want(100*percent, time.Duration(c.ours)*percent, time.Duration(c.theirs)*percent, c.held); got != c.want {
					t.Errorf("count %d (%+v): %v", i, c, got)
				}
			}
		})
	}
}

// A worker that goes far before everybody (nice -20) leaves a competitor next
// to nothing to be seen by, and keeps to its share all the same.
func TestWorkerShareFirst(t *testing.T) {
	for _, frac := range []int{20, 50, 80} {
		m := newSimulation(10*time.Second, 200_000)
		m.packetCost = 10 * time.Microsecond
		m.greed, m.polite, m.shy = true, true, 37
		w := m.run(t, Options{ControllerConfig: ControllerConfig{UserFrac: frac}})
		before := m.used
		m.end += 10 * time.Second // without the time that finding out took
		m.stop.Store(false)
		if err := w.run(m, m.stop); err != nil {
			t.Fatal(err)
		}
		if theirs := 100 - 100*float64(m.used-before)/float64(10*time.Second); theirs < float64(frac)-2 {
			t.Errorf("user_frac %d: they got %.1f %%, held for %d ticks", frac, theirs, w.stats.read().Held)
		}
		if theirs := 100 - 100*m.share(20*time.Second); theirs < float64(frac)-16 {
			t.Errorf("user_frac %d: they got %.1f %% from the start", frac, theirs)
		}
	}
}

// A core that is taken away now and then, by a hypervisor say, lowers what a
// worker in tick mode does by that time and no more.
func TestWorkerTickStolen(t *testing.T) {
	for _, frac := range []int{0, 50} {
		m := newSimulation(5*time.Second, 600_000)
		m.packetCost = 2 * time.Microsecond
		m.stealEvery, m.stealFor = 20*time.Millisecond, 1500*time.Microsecond
		w := m.run(t, Options{Mode: Tick, ControllerConfig: ControllerConfig{UserFrac: frac}})
		share := 100 * m.share(5*time.Second)
		if want := float64(100 - frac); share < want*0.82 || share > want {
			t.Errorf("user_frac %d: the worker used %.0f %% of the core, moved %d; %+v", frac, share, m.sources[0].moved, w.ctl.Counts())
		}
	}
}

// And burst_max is reached if the handlers are fast enough.
func TestWorkerTickBurstMax(t *testing.T) {
	m := newSimulation(time.Second, 1_000_000)
	m.packetCost = 100
	w := m.run(t, Options{Mode: Tick, ControllerConfig: ControllerConfig{BurstMax: 500}})
	if got := w.ctl.Counts().Burst; got != 500 {
		t.Errorf("burst is %d after a second, want burst_max 500", got)
	}
}

// An excuse keeps the burst and nothing else, and holds for one pass.
func TestControllerExcuse(t *testing.T) {
	c := mustController(t, ControllerConfig{HZ: 1000, Burst: 80, BurstMin: 8, BurstMax: 100, EachBurst: 100})
	pass := func(excuse bool) {
		c.Begin(0)
		if excuse {
			c.Excuse()
		}
		c.End(0)
	}
	c.Ticks(10*time.Millisecond, 4)
	for i, want := range []ControllerCounts{
		{Lost: 3, Suspect: 3, Pending: 3, Burst: 81}, {Lost: 3, Suspect: 3, Pending: 2, Burst: 72}, {Lost: 3, Suspect: 3, Pending: 1, Burst: 73},
	} {
		pass(i != 1)
		if got := c.Counts(); got != want {
			t.Errorf("after pass %d: %+v, want %+v", i, got, want)
		}
	}
}
