package poll

import (
	"testing"
	"time"
)

func TestLinger(t *testing.T) {
	const ms = time.Millisecond
	type step struct {
		at     time.Duration
		done   int
		caught bool // the packet found us awake
		awake  bool // after it
	}
	for _, tc := range []struct {
		name  string
		max   time.Duration
		steps []step
	}{
		{"off", 0, []step{{0, 1, false, false}, {1, 0, false, false}, {2, 1, false, false}, {3, 0, false, false}}},
		{"steady", 20 * ms, []step{
			{1 * ms, 1, false, false}, {2 * ms, 0, false, false}, // nothing known yet: sleep
			{12 * ms, 1, false, false}, {13 * ms, 0, false, true}, // a silence of 10 ms: the next is awaited
			{20 * ms, 0, false, true}, {22 * ms, 1, true, false}, {23 * ms, 0, false, true},
			{43 * ms, 0, false, true}, {44 * ms, 0, false, false}, // in vain
			{60 * ms, 1, false, false}, {61 * ms, 0, false, false}, // and that was too long
		}},
		{"sparse", 20 * ms, []step{
			{0, 1, false, false}, {1 * ms, 0, false, false}, {100 * ms, 1, false, false}, {101 * ms, 0, false, false},
			{200 * ms, 1, false, false}, {201 * ms, 0, false, false},
		}},
		// An answer that follows at once is no silence, and tells nothing
		// about when the next request comes.
		{"answers", 20 * ms, []step{
			{0, 1, false, false}, {1, 1, false, false}, {2, 0, false, false},
			{100 * ms, 1, false, false}, {100*ms + 1, 1, false, false}, {101 * ms, 0, false, false},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := linger{max: tc.max}
			for i, s := range tc.steps {
				if got := l.round(s.at, s.done); got != s.caught {
					t.Errorf("step %d at %v: caught %v, want %v", i, s.at, got, s.caught)
				}
				if got := l.awake(s.at); got != s.awake {
					t.Errorf("step %d at %v: awake %v, want %v", i, s.at, got, s.awake)
				}
			}
		})
	}
}

func TestLingerContended(t *testing.T) {
	l := linger{max: time.Second}
	l.round(1, 1)
	l.round(2, 0)
	l.round(3, 1)
	l.round(4, 0)
	if !l.awake(4) {
		t.Fatal("asleep after a silence of nothing")
	}
	l.contended(100)
	for at := time.Duration(5); at+1 < 100; at += 2 {
		l.round(at, 1)
		l.round(at+1, 0)
		if l.awake(at + 1) {
			t.Fatalf("awake at %v, though somebody wants the core until 100", at+1)
		}
	}
	l.round(100, 1)
	l.round(101, 0)
	if !l.awake(101) {
		t.Error("still asleep when that was over")
	}
}

// Steady light traffic finds the worker awake, and no other traffic makes it
// burn the core.
func TestWorkerLinger(t *testing.T) {
	for _, tc := range []struct {
		name    string
		pps     int
		linger  time.Duration
		greed   bool
		waits   int     // at most
		share   float64 // of the core, at most
		atLeast float64
	}{
		{"100 pps awaited", 100, 20 * time.Millisecond, false, 3, 1, 0.9},
		{"100 pps foreseen", 100, 0, false, 205, 0.03, 0},
		{"10 pps", 10, 20 * time.Millisecond, false, 50, 0.01, 0},
		{"somebody wants the core", 100, 20 * time.Millisecond, true, 205, 0.10, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newSimulation(time.Second, tc.pps)
			m.greed, m.roundCost = tc.greed, 5*time.Microsecond
			w := m.run(t, Options{Linger: tc.linger})
			if m.waits > tc.waits {
				t.Errorf("%d sleeps, want at most %d", m.waits, tc.waits)
			}
			if s := m.share(time.Second); s > tc.share || s < tc.atLeast {
				t.Errorf("%.1f %% of the core, want %.0f to %.0f", 100*s, 100*tc.atLeast, 100*tc.share)
			}
			if got := m.sources[0].moved; got < tc.pps-2 {
				t.Errorf("moved %d of %d", got, tc.pps)
			}
			if w.pacer.pacing {
				t.Error("pacing under light load")
			}
		})
	}
}

// Packets that come in a steady rhythm find the worker awake, and others wake
// it up.
func TestWorkerRhythm(t *testing.T) {
	for _, tc := range []struct {
		pps       int
		low, high uint64 // wake-ups spared
	}{{100, 180, 200}, {20, 30, 40}, {1000, 0, 0}} {
		m := newSimulation(2*time.Second, tc.pps)
		w := m.run(t, Options{})
		s := w.stats.read()
		if s.Caught < tc.low || s.Caught > tc.high || s.Wakes+s.Caught < uint64(2*tc.pps)-5 {
			t.Errorf("%d pps: %d wake-ups and %d spared, want %d to %d of these", tc.pps, s.Wakes, s.Caught, tc.low, tc.high)
		}
	}
}

// The wake-up that costs something while it waits is for traffic only.
func TestWorkerHotWaits(t *testing.T) {
	for _, tc := range []struct {
		pps       int
		low, high float64 // share of the time waited that is hot
	}{{0, 0, 0}, {100, 0.95, 1}, {12, 0.95, 1}, {5, 0, 0.02}} {
		m := newSimulation(10*time.Second, tc.pps)
		m.run(t, Options{})
		if s := float64(m.hot) / float64(m.hot+m.cold); s < tc.low || s > tc.high {
			t.Errorf("%d pps: %.0f %% of the time waited is hot, want %.0f to %.0f", tc.pps, 100*s, 100*tc.low, 100*tc.high)
		}
	}
}

// answerer is a source that gets a packet whenever another one has sent.
type answerer struct{ *source }

func (a answerer) Flush() error {
	if other := a.sim.sources[0]; other.moved > a.moved+a.arrived {
		a.arrived++
	}
	return a.source.Flush()
}

// The costly looks do not come between a request and its answer.
func TestWorkerAnswersBeforeChecks(t *testing.T) {
	m := newSimulation(5*time.Second, 20) // a status check is due at each request
	m.sources = append(m.sources, &source{sim: m, name: "answers", ring: 1})
	request, answer := m.sources[0], answerer{m.sources[1]}
	w := simWorker(t, Options{}.withDefaults())
	w.want = []Handler{answer, request} // so that an answer takes a second round
	w.changed.Store(true)
	w.clock.set(m.t)
	request.onCheck = func() {
		if request.moved != answer.moved {
			t.Fatalf("status check with %d requests and %d answers moved", request.moved, answer.moved)
		}
	}
	if err := w.run(m, m.stop); err != nil {
		t.Fatal(err)
	}
	if n := len(request.checks); n < 40 || answer.moved < 98 {
		t.Errorf("%d checks, %d answers in 5 s", n, answer.moved)
	}
}
