package poll

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// simulation is a machine with one core, a worker, arrivals at a fixed rate
// and perhaps a program that always wants the core. It is the system of the
// worker under test; all time is virtual.
type simulation struct {
	t     time.Duration // now
	used  time.Duration // CPU time of the worker
	lost  time.Duration
	end   time.Duration
	stop  *atomic.Bool
	greed bool // another program always wants the core
	// polite: the other program gets the core only while the worker sleeps
	polite bool
	slice  time.Duration
	// shy: a yield gives the other program the core only one time in that many,
	// for 3 ms, and nothing else does but sleeping: we go far before it
	shy, yields int
	// the machine takes the core away for a time, each so often
	stealEvery, stealFor, stolen time.Duration

	wakeCost, roundCost, packetCost time.Duration

	naps, waits int
	hot, cold   time.Duration // waited
	sources     []*source
}

// source is a handler with arrivals of its own.
type source struct {
	sim     *simulation
	name    string
	every   time.Duration // between arrivals; 0 is none
	arrived int           // at the time seen
	next    time.Duration
	moved   int
	ring    int // capacity
	dropped int
	checks  []time.Duration
	onCheck func()
	flushes int
	fail    error
	order   *[]string
	budgets []int
}

func (s *source) arrivals() {
	for s.every > 0 && s.next <= s.sim.t {
		if s.arrived < s.ring {
			s.arrived++
		} else {
			s.dropped++
		}
		s.next += s.every
	}
}

func (s *source) Name() string { return s.name }

func (s *source) Poll(budget int) (int, error) {
	if s.order != nil {
		*s.order = append(*s.order, s.name)
		s.budgets = append(s.budgets, budget)
	}
	s.arrivals()
	n := min(budget, s.arrived)
	s.arrived -= n
	s.moved += n
	s.sim.work(s.sim.roundCost + time.Duration(n)*s.sim.packetCost)
	return n, s.fail
}

func (s *source) Flush() error { s.flushes++; return nil }

func (s *source) Check(now time.Duration) error {
	s.checks = append(s.checks, now)
	if s.onCheck != nil {
		s.onCheck()
	}
	return nil
}

func (s *source) Arm(w *WaitSet) bool {
	s.arrivals()
	return s.arrived > 0
}

// work passes d of the worker's CPU time, and with a greedy neighbour as much
// again of real time, by slices.
func (m *simulation) work(d time.Duration) {
	m.t += d
	m.used += d
	if m.stealEvery > 0 && m.t-m.stolen >= m.stealEvery {
		m.lose(m.stealFor)
		m.stolen = m.t
	}
	if m.greed && !m.polite {
		m.slice += d
		if m.slice > 3*time.Millisecond {
			m.lose(m.slice)
			m.slice = 0
		}
	}
	if m.t >= m.end {
		m.stop.Store(true)
	}
}

func (m *simulation) lose(d time.Duration) {
	m.t += d
	m.lost += d
}

func (m *simulation) now() time.Duration    { m.t += 20; return m.t }
func (m *simulation) cpu() time.Duration    { return m.used }
func (m *simulation) waited() time.Duration { return m.lost }

func (m *simulation) others() (idle, kern time.Duration, ok bool) {
	if m.greed {
		return 0, 0, true
	}
	return m.t - m.used, 0, true
}

func (m *simulation) sleep(until time.Duration) {
	m.naps++
	m.t = max(m.t, until)
	m.slice = 0
	m.work(m.wakeCost)
}

func (m *simulation) yield() {
	if m.yields++; m.shy > 0 {
		if m.yields%m.shy == 0 {
			m.lose(3 * time.Millisecond)
		}
		return
	}
	if m.greed && !m.polite {
		m.lose(time.Millisecond)
	}
}

func (m *simulation) wait(fds []unix.PollFd, until time.Duration, hot bool) (int, error) {
	m.waits++
	if until == 0 {
		until = m.end
	}
	first := until
	for _, s := range m.sources {
		if s.every > 0 {
			first = min(first, s.next)
		}
	}
	before := m.t
	m.t = max(m.t, min(first, m.end))
	if hot {
		m.hot += m.t - before
	} else {
		m.cold += m.t - before
	}
	m.slice = 0
	m.work(m.wakeCost)
	if first < until {
		return 1, nil
	}
	return 0, nil
}

func newSimulation(d time.Duration, rates ...int) *simulation {
	m := &simulation{end: time.Second + d, t: time.Second, stop: new(atomic.Bool),
		wakeCost: 5 * time.Microsecond, roundCost: 300, packetCost: time.Microsecond}
	for i, pps := range rates {
		s := &source{sim: m, name: string(rune('a' + i)), ring: 4096, next: m.t}
		if pps > 0 {
			s.every = time.Second / time.Duration(pps)
		}
		m.sources = append(m.sources, s)
	}
	return m
}

// simWorker is a worker for a simulation, which never looks at descriptors.
func simWorker(t *testing.T, o Options) *worker {
	t.Helper()
	w := newWorker(o, mustController(t, o.ControllerConfig))
	w.wakeFD = 1 << 20
	return w
}

func (m *simulation) run(t *testing.T, o Options) *worker {
	t.Helper()
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	o = o.withDefaults()
	w := simWorker(t, o)
	for _, s := range m.sources {
		w.want = append(w.want, s)
	}
	w.changed.Store(true)
	w.clock.set(m.t)
	if err := w.run(m, m.stop); err != nil {
		t.Fatal(err)
	}
	return w
}

func (m *simulation) share(d time.Duration) float64 { return float64(m.used) / float64(d) }

func TestWorkerAdaptiveIdle(t *testing.T) {
	m := newSimulation(10*time.Second, 0, 0)
	m.run(t, Options{})
	if s := m.share(10 * time.Second); s > 0.002 {
		t.Errorf("idle worker takes %.2f %% of a core", s*100)
	}
	if n := len(m.sources[0].checks); n < 95 || n > 110 {
		t.Errorf("%d status checks in 10 s of idling, want one each 100 ms", n)
	}
}

func TestWorkerAdaptiveLight(t *testing.T) {
	m := newSimulation(2*time.Second, 1000)
	w := m.run(t, Options{})
	if m.naps != 0 || w.pacer.pacing {
		t.Errorf("1000 packets a second: %d sleeps by the clock, want none", m.naps)
	}
	if m.sources[0].moved < 1990 {
		t.Errorf("moved %d of 2000", m.sources[0].moved)
	}
}

// Under load the worker leaves poll(2); under more than it can do it does not
// sleep at all, and when the load is gone it goes back.
func TestWorkerAdaptiveRises(t *testing.T) {
	m := newSimulation(time.Second, 400_000)
	w := m.run(t, Options{})
	if !w.pacer.pacing || m.waits > 200 {
		t.Errorf("400 kpps: pacing %v after %d waits in poll(2)", w.pacer.pacing, m.waits)
	}
	if m.sources[0].dropped != 0 {
		t.Errorf("400 kpps: %d dropped", m.sources[0].dropped)
	}
	if s := m.share(time.Second); s > 0.60 {
		t.Errorf("400 kpps of 1 us each take %.0f %% of the core", s*100)
	}
	m.end, m.sources[0].every = m.t+time.Second, 0
	m.stop.Store(false)
	before, naps := m.used, m.naps
	w.ctl.Resume(m.t)
	if err := w.run(m, m.stop); err != nil {
		t.Fatal(err)
	}
	if w.pacer.pacing || m.naps-naps > 100 || m.used-before > 10*time.Millisecond {
		t.Errorf("after the load: pacing %v, %d naps, %v of CPU time", w.pacer.pacing, m.naps-naps, m.used-before)
	}

	m = newSimulation(time.Second, 2_000_000)
	m.run(t, Options{ControllerConfig: ControllerConfig{UserFrac: 50}})
	if m.naps > 10 || m.waits > 10 {
		t.Errorf("saturated: %d naps, %d waits", m.naps, m.waits)
	}
	if got := m.sources[0].moved; got < 950_000 {
		t.Errorf("saturated, alone on the core: moved %d of the million that it can", got)
	}
}

// A request that waits for its answer gathers no batch: pacing would only add
// latency, and must not last.
func TestWorkerAdaptivePingPong(t *testing.T) {
	p := newPacer(64, 100*time.Microsecond)
	var now, paced time.Duration
	for now = time.Second; now < 11*time.Second; {
		if p.pacing {
			now += p.gap()
			paced += p.gap()
		} else {
			now += 40 * time.Microsecond
			p.woke()
		}
		p.round(now, 1, false)
	}
	if paced > 500*time.Millisecond {
		t.Errorf("paced for %v of 10 s", paced)
	}
}

// With somebody else on the core and more traffic than it can do, the worker
// keeps to its share and does at least the floor.
func TestWorkerShare(t *testing.T) {
	for _, frac := range []int{20, 50, 80, 95} {
		m := newSimulation(5*time.Second, 2_000_000)
		m.greed = true
		w := m.run(t, Options{ControllerConfig: ControllerConfig{UserFrac: frac, BurstMin: 20}})
		theirs := 100 * (1 - m.share(5*time.Second))
		if theirs < float64(frac)-5 {
			t.Errorf("user_frac %d: they got %.1f %%", frac, theirs)
		}
		if got := m.sources[0].moved; got < 5*20*1000 {
			t.Errorf("user_frac %d: moved %d, less than the floor", frac, got)
		}
		if frac > 50 && w.stats.read().Held < 4000 {
			t.Errorf("user_frac %d: held for %d ticks only", frac, w.stats.read().Held)
		}
	}
}

// Somebody who runs only while we nap, as we go first, wants the core too.
func TestWorkerShareNapping(t *testing.T) {
	m := newSimulation(30*time.Second, 600_000)
	m.greed, m.polite = true, true
	w := m.run(t, Options{ControllerConfig: ControllerConfig{UserFrac: 80}})
	if theirs := 100 * (1 - m.share(30*time.Second)); theirs < 75 {
		t.Errorf("user_frac 80: they got %.1f %%, held for %d ticks", theirs, w.stats.read().Held)
	}
	m = newSimulation(10*time.Second, 600_000)
	w = m.run(t, Options{ControllerConfig: ControllerConfig{UserFrac: 80}})
	if n := w.stats.read().Held; n != 0 || m.sources[0].dropped != 0 {
		t.Errorf("alone on the core: held for %d ticks, %d dropped", n, m.sources[0].dropped)
	}
}

// tick mode hands out the burst in chunks, in turn, and flushes after each.
func TestWorkerTickOrder(t *testing.T) {
	m := newSimulation(2500*time.Microsecond, 0, 0)
	var order []string
	for _, s := range m.sources {
		s.order, s.arrived = &order, 100
	}
	m.run(t, Options{Mode: Tick, ControllerConfig: ControllerConfig{HZ: 1000, Burst: 12, BurstMin: 1, EachBurst: 5, RegFrac: 2}})
	if got, want := m.sources[0].budgets, []int{5, 5, 2, 5, 5, 3}; !equal(got, want) {
		t.Errorf("chunks %v, want %v", got, want)
	}
	for i, n := range order {
		if want := m.sources[i%2].name; n != want {
			t.Fatalf("call %d was for %s, want %s: %v", i, n, want, order)
		}
	}
	if got := len(m.sources[0].checks); got != 1 {
		t.Errorf("%d status checks in two ticks, want one", got)
	}
	if m.sources[0].flushes < 6 {
		t.Errorf("%d flushes, want one a round", m.sources[0].flushes)
	}
}

func equal(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// A worker that was stopped for long does not make up for it.
func TestWorkerTickPause(t *testing.T) {
	m := newSimulation(10*time.Second, 1000)
	o := Options{Mode: Tick}.withDefaults()
	w := simWorker(t, o)
	w.want = []Handler{&pauser{source: m.sources[0], at: 50}}
	w.changed.Store(true)
	if err := w.run(m, m.stop); err != nil {
		t.Fatal(err)
	}
	c := w.ctl.Counts()
	if c.Stalled != 1 || c.Lost > 3 {
		t.Errorf("after a pause of 5000 ticks: %+v, want one stall and hardly anything lost", c)
	}
	if got := w.stats.read().Ticks; got < 9990 || got > 10010 {
		t.Errorf("%d ticks counted in 10 s at 1000 HZ", got)
	}
}

type pauser struct {
	*source
	at int
}

func (p *pauser) Poll(n int) (int, error) {
	if p.at--; p.at == 0 {
		p.sim.t += 5 * time.Second
	}
	return p.source.Poll(n)
}

func TestWorkerErrorNamesHandler(t *testing.T) {
	m := newSimulation(time.Second, 1000, 1000)
	cause := errors.New("broken")
	m.sources[1].fail = cause
	o := Options{}.withDefaults()
	w := simWorker(t, o)
	w.want = []Handler{m.sources[0], m.sources[1]}
	w.changed.Store(true)
	err := w.run(m, m.stop)
	var he *HandlerError
	if !errors.As(err, &he) || he.Handler != "b" || he.Op != "poll" || !errors.Is(err, cause) {
		t.Errorf("error %v, want poll of b: broken", err)
	}
}
