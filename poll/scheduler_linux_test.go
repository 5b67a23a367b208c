package poll

import (
	"context"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// counter is a handler whose packets are the units of a semaphore eventfd.
type counter struct {
	name   string
	fd     int
	moved  atomic.Int64
	inside atomic.Int32
	checks atomic.Int64
	armed  chan struct{} // gets a word at each Arm, if there is room
	failed atomic.Pointer[error]
	mute   bool // does not read its descriptor
	onPoll func()
	in     [8]byte
	out    [8]byte
}

func newCounter(t testing.TB, name string) *counter {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_SEMAPHORE|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return &counter{name: name, fd: fd, armed: make(chan struct{}, 1)}
}

func (c *counter) Name() string { return c.name }

func (c *counter) Poll(budget int) (n int, err error) {
	if c.inside.Add(1) != 1 {
		return 0, errors.New("two callers at once")
	}
	defer c.inside.Add(-1)
	if e := c.failed.Load(); e != nil {
		return 0, *e
	}
	if c.onPoll != nil {
		c.onPoll()
	}
	for n < budget && !c.mute {
		if _, err := unix.Read(c.fd, c.in[:]); err != nil {
			break
		}
		n++
	}
	c.moved.Add(int64(n))
	return n, nil
}

func (c *counter) Flush() error { return nil }

func (c *counter) Check(time.Duration) error { c.checks.Add(1); return nil }

func (c *counter) Arm(w *WaitSet) bool {
	w.FD(c.fd, unix.POLLIN)
	select {
	case c.armed <- struct{}{}:
	default:
	}
	return false
}

func (c *counter) send(t testing.TB, n byte) {
	t.Helper()
	binary.NativeEndian.PutUint64(c.out[:], uint64(n))
	if _, err := unix.Write(c.fd, c.out[:]); err != nil {
		t.Fatal(err)
	}
}

// eventually waits for what another goroutine is about to do.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	end := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-end:
			t.Fatalf("timed out: %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

// start runs s and returns what stops it and gives Run's error.
func start(t testing.TB, s *Scheduler) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(20 * time.Second):
			t.Error("Run does not return")
			return nil
		}
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func mustNew(t testing.TB, o Options) *Scheduler {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSchedulerModes(t *testing.T) {
	for mode := range numModes {
		t.Run(mode.String(), func(t *testing.T) {
			s := mustNew(t, Options{Mode: mode, Workers: 2})
			a, b := newCounter(t, "a"), newCounter(t, "b")
			if err := s.Add(0, a); err != nil {
				t.Fatal(err)
			}
			stop := start(t, s)
			a.send(t, 200)
			eventually(t, "200 units from a", func() bool { return a.moved.Load() == 200 })
			if err := s.Add(1, b); err != nil {
				t.Fatal(err)
			}
			b.send(t, 100)
			a.send(t, 7)
			eventually(t, "units from both", func() bool { return a.moved.Load() == 207 && b.moved.Load() == 100 })
			if err := s.Remove(a); err != nil {
				t.Fatal(err)
			}
			a.send(t, 1)
			b.send(t, 1)
			eventually(t, "one more from b", func() bool { return b.moved.Load() == 101 })
			if err := stop(); err != nil {
				t.Errorf("Run: %v", err)
			}
			if got := a.moved.Load(); got != 207 {
				t.Errorf("a was called after Remove: %d units", got)
			}
			if st := s.Stats(); st[0].Packets != 207 || st[1].Packets != 101 {
				t.Errorf("counters say %d and %d packets, want 207 and 101", st[0].Packets, st[1].Packets)
			}
		})
	}
}

func TestSchedulerRunsAgain(t *testing.T) {
	s := mustNew(t, Options{})
	a := newCounter(t, "a")
	if err := s.Add(0, a); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		stop := start(t, s)
		a.send(t, 1)
		eventually(t, "a unit", func() bool { return a.moved.Load() == int64(i+1) })
		if err := s.Run(context.Background()); err == nil {
			t.Error("a second Run at the same time was allowed")
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSchedulerAddRemoveRefused(t *testing.T) {
	s := mustNew(t, Options{})
	a := newCounter(t, "a")
	if err := s.Add(1, a); err == nil {
		t.Error("added to a worker that is not there")
	}
	if err := s.Add(0, a); err != nil {
		t.Fatal(err)
	}
	if err := s.Add(0, a); !errors.Is(err, ErrHandler) {
		t.Errorf("added twice: %v", err)
	}
	if err := s.Remove(a); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(a); !errors.Is(err, ErrHandler) {
		t.Errorf("removed twice: %v", err)
	}
}

func TestSchedulerFirstError(t *testing.T) {
	s := mustNew(t, Options{Workers: 2})
	good, bad := newCounter(t, "good"), newCounter(t, "bad")
	cause := errors.New("cable eaten")
	bad.failed.Store(&cause)
	if err := errors.Join(s.Add(0, good), s.Add(1, bad)); err != nil {
		t.Fatal(err)
	}
	err := s.Run(context.Background())
	var he *HandlerError
	if !errors.As(err, &he) || he.Handler != "bad" || !errors.Is(err, cause) {
		t.Errorf("Run returned %v, want the error of bad", err)
	}
}

// Handlers come and go while others work; run it with the race detector.
func TestSchedulerChurn(t *testing.T) {
	s := mustNew(t, Options{Workers: 2, ControllerConfig: ControllerConfig{HZ: 10000}})
	stop := start(t, s)
	done := make(chan error, 4)
	for g := range 4 {
		c := newCounter(t, string(rune('a'+g)))
		go func() {
			for range 50 {
				if err := s.Add(g%2, c); err != nil {
					done <- err
					return
				}
				before := c.moved.Load()
				c.send(t, 3)
				for c.moved.Load() < before+3 {
					time.Sleep(10 * time.Microsecond)
				}
				if err := s.Remove(c); err != nil {
					done <- err
					return
				}
				if c.inside.Load() != 0 {
					done <- errors.New("inside after Remove")
					return
				}
			}
			done <- nil
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A descriptor that signals an error which nobody clears must not make the
// worker spin.
func TestSchedulerHangUp(t *testing.T) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	c := newCounter(t, "pipe")
	c.fd, c.mute = p[0], true
	defer unix.Close(p[0])
	s := mustNew(t, Options{Mode: Interrupt})
	if err := s.Add(0, c); err != nil {
		t.Fatal(err)
	}
	_ = start(t, s)
	<-c.armed
	_ = unix.Close(p[1])
	eventually(t, "error seen", func() bool { return s.Stats()[0].Errors > 0 })
	eventually(t, "handler told", func() bool { return c.checks.Load() > 0 })
	before := s.Stats()[0]
	time.Sleep(300 * time.Millisecond) // the span that is measured
	if d := s.Stats()[0].Rounds - before.Rounds; d > 30 {
		t.Errorf("%d rounds in 300 ms for a descriptor that hung up", d)
	}
}

func TestSchedulerPins(t *testing.T) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !all.IsSet(cpu) {
		cpu++
	}
	s := mustNew(t, Options{Mode: Tick, CPUs: []int{cpu}})
	c := newCounter(t, "a")
	var got atomic.Pointer[unix.CPUSet]
	c.onPoll = func() {
		var set unix.CPUSet
		if unix.SchedGetaffinity(0, &set) == nil {
			got.Store(&set)
		}
	}
	if err := s.Add(0, c); err != nil {
		t.Fatal(err)
	}
	stop := start(t, s)
	eventually(t, "a call", func() bool { return got.Load() != nil })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if set := got.Load(); set.Count() != 1 || !set.IsSet(cpu) {
		t.Errorf("worker runs on %v, want CPU %d alone", set, cpu)
	}
	s = mustNew(t, Options{CPUs: []int{1023}})
	if err := s.Run(context.Background()); err == nil {
		t.Error("pinning to CPU 1023 went well")
	}
}

// Nothing is allocated in a round, nor in a sleep.
func TestSchedulerNoAllocs(t *testing.T) {
	for _, mode := range []Mode{Interrupt, Adaptive} {
		s := mustNew(t, Options{Mode: mode})
		c := newCounter(t, "a")
		if err := s.Add(0, c); err != nil {
			t.Fatal(err)
		}
		stop := start(t, s)
		allocs := testing.AllocsPerRun(200, func() {
			before := c.moved.Load()
			c.send(t, 5)
			for c.moved.Load() < before+5 {
			}
		})
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if allocs > 0 {
			t.Errorf("%v: %v allocations per wake-up", mode, allocs)
		}
	}
}

// From the write to the call of Poll on another thread, while the worker
// sleeps in poll(2).
func BenchmarkWakeUp(b *testing.B) {
	s := mustNew(b, Options{Mode: Interrupt})
	c := newCounter(b, "a")
	if err := s.Add(0, c); err != nil {
		b.Fatal(err)
	}
	_ = start(b, s)
	b.ReportAllocs()
	for b.Loop() {
		before := c.moved.Load()
		<-c.armed
		c.send(b, 1)
		for c.moved.Load() == before {
		}
	}
}

// An empty round of one handler.
func BenchmarkRound(b *testing.B) {
	s := mustNew(b, Options{Mode: Busy})
	c := newCounter(b, "a")
	c.mute = true
	if err := s.Add(0, c); err != nil {
		b.Fatal(err)
	}
	_ = start(b, s)
	var end uint64
	b.ReportAllocs()
	for b.Loop() {
		end++
		for s.workers[0].stats.rounds.Load() < end {
		}
	}
}
