package poll

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Scheduler runs handlers on its workers. Add, Remove, Stats and Clock may be
// called at any time, by any goroutine; Add and Remove not from inside a
// handler.
type Scheduler struct {
	opts    Options
	workers []*worker
	mono    monotime

	mu      sync.Mutex
	running bool
}

// ErrHandler: a handler is registered already, or is not.
var ErrHandler = errors.New("poll: handler")

// New returns a scheduler that does nothing until Run.
func New(o Options) (*Scheduler, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	m, err := newMonotime()
	if err != nil {
		return nil, err
	}
	s := &Scheduler{opts: o, mono: m}
	for range o.Workers {
		ctl, err := NewController(o.ControllerConfig)
		if err != nil {
			return nil, err
		}
		w := newWorker(o, ctl)
		w.clock.set(m.now())
		s.workers = append(s.workers, w)
	}
	return s, nil
}

// Options returns the options, defaults filled in.
func (s *Scheduler) Options() Options { return s.opts }

// Clock returns the coarse clock of a worker.
func (s *Scheduler) Clock(worker int) *Clock { return &s.workers[worker].clock }

// Stats returns the counters of all workers.
func (s *Scheduler) Stats() []WorkerStats {
	out := make([]WorkerStats, len(s.workers))
	for i, w := range s.workers {
		out[i] = w.stats.read()
	}
	return out
}

// Add registers h with a worker, after the handlers that are there.
func (s *Scheduler) Add(worker int, h Handler) error {
	if worker < 0 || worker >= len(s.workers) {
		return fmt.Errorf("poll: add %s to worker %d: there are %d", h.Name(), worker, len(s.workers))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.find(h) != nil {
		return fmt.Errorf("%w %s is registered already", ErrHandler, h.Name())
	}
	s.workers[worker].change(func(hs []Handler) []Handler { return append(hs, h) })
	return nil
}

// Remove takes h away. When it returns, h is not inside of a call and will not
// be called again.
func (s *Scheduler) Remove(h Handler) error {
	s.mu.Lock()
	w := s.find(h)
	if w == nil {
		s.mu.Unlock()
		return fmt.Errorf("%w %s is not registered", ErrHandler, h.Name())
	}
	done := w.change(func(hs []Handler) []Handler {
		i := slices.Index(hs, h)
		return slices.Delete(slices.Clone(hs), i, i+1)
	})
	s.mu.Unlock()
	<-done
	return nil
}

// find returns the worker that has h.
func (s *Scheduler) find(h Handler) *worker {
	for _, w := range s.workers {
		w.mu.Lock()
		has := slices.Contains(w.want, h)
		w.mu.Unlock()
		if has {
			return w
		}
	}
	return nil
}

// change sets the wanted handlers to what f makes of them; the channel is
// closed when the worker has taken them over.
func (w *worker) change(f func([]Handler) []Handler) <-chan struct{} {
	done := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.want = f(w.want)
	if !w.running {
		close(done)
		return done
	}
	w.adopted = append(w.adopted, done)
	w.changed.Store(true)
	w.kick()
	return done
}

// kick ends the worker's sleep in poll(2). The caller holds mu.
func (w *worker) kick() {
	if w.wakeFD >= 0 {
		kick(w.wakeFD)
	}
}

// kick makes an eventfd readable, drain takes that back.
func kick(fd int) {
	// One that is full is readable, which is all that we want.
	_, _ = unix.Write(fd, []byte{1, 1, 1, 1, 1, 1, 1, 1})
}

func drain(fd int) {
	var b [8]byte
	_, _ = unix.Read(fd, b[:])
}

// Run runs the workers until ctx ends, then returns nil, or until a handler or
// a worker fails, then returns the first such error: an [*HandlerError] for a
// handler's. Every worker has left its handlers when Run returns. It may be
// called again.
func (s *Scheduler) Run(ctx context.Context) error {
	s.mu.Lock()
	if s.running {
		s.mu.Unlock()
		return errors.New("poll: scheduler is running already")
	}
	s.running = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.running = false
		s.mu.Unlock()
	}()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	errs := make(chan error, len(s.workers))
	for i, w := range s.workers {
		wg.Go(func() {
			if err := s.runWorker(ctx, i, w); err != nil {
				errs <- err
				cancel(err)
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// runWorker is the life of one worker's goroutine and thread.
func (s *Scheduler) runWorker(ctx context.Context, i int, w *worker) error {
	t, err := s.newThread(i)
	if err != nil {
		return fmt.Errorf("poll: worker %d: %w", i, err)
	}
	defer t.close()
	if err := w.start(); err != nil {
		return fmt.Errorf("poll: worker %d: %w", i, err)
	}
	defer w.finish()
	var stopping atomic.Bool
	unhook := context.AfterFunc(ctx, func() {
		stopping.Store(true)
		w.mu.Lock()
		w.kick()
		w.mu.Unlock()
	})
	defer unhook()
	return w.run(t, &stopping)
}

func (s *Scheduler) newThread(i int) (*thread, error) {
	cpu := -1
	if s.opts.CPUs != nil {
		cpu = s.opts.CPUs[i]
	}
	slice := min(max(s.workers[i].ctl.period/2, 100*time.Microsecond), 3*time.Millisecond)
	t, err := newThread(s.mono, cpu, s.opts.Nice, slice)
	if err != nil && s.opts.NiceTry && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)) {
		t, err = newThread(s.mono, cpu, 0, slice)
	}
	if err != nil {
		return nil, err
	}
	t.hold = runtime.GOMAXPROCS(0) >= len(s.workers)+spareProcs
	return t, nil
}

func (w *worker) start() error {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("make an eventfd: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wakeFD, w.running = fd, true
	w.changed.Store(true)
	return nil
}

// finish lets go of the handlers.
func (w *worker) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = false
	w.handlers = nil
	_ = unix.Close(w.wakeFD)
	w.wakeFD = -1
	for _, c := range w.adopted {
		close(c)
	}
	w.adopted = nil
}
