package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/gen"
	"github.com/netring/netring/nm"
	"github.com/netring/netring/ring"
)

// clock is CLOCK_MONOTONIC, which all processes of the machine share, read the
// cheap way.
type clock struct {
	base  time.Duration
	start time.Time
}

func newClock() (clock, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return clock{}, fmt.Errorf("monotonic clock: %w", err)
	}
	return clock{time.Duration(ts.Nano()), time.Now()}, nil
}

// now is the time since the machine started.
func (c clock) now() time.Duration { return c.base + time.Since(c.start) }

// since is the time since the clock was made.
func (c clock) since() time.Duration { return time.Since(c.start) }

// worker is one thread's work. run returns when it is done or ctx ends.
type worker interface {
	run(ctx context.Context) error
}

// job is everything that a run has in common.
type job struct {
	*plan
	clock  clock
	counts []*counts
	extra  func(l *line, final bool)
}

// run opens the port, runs the threads and reports.
func (p *plan) run(ctx context.Context) (err error) {
	j := &job{plan: p}
	if j.clock, err = newClock(); err != nil {
		return err
	}
	if p.frames.SrcMAC == [6]byte{} {
		if p.frames.SrcMAC, err = sourceMAC(&p.spec); err != nil {
			return err
		}
	}
	if p.engine == "gso" {
		if err := p.segmentation(); err != nil {
			return err
		}
	}
	if p.bench.on() {
		return j.measure(ctx)
	}
	workers, closeAll, err := j.workers(ctx)
	if err != nil {
		return err
	}
	runErr := j.drive(ctx, workers)
	return errors.Join(runErr, closeAll())
}

// workers makes the threads' work and what closes their ports.
func (j *job) workers(ctx context.Context) (w []worker, closeAll func() error, err error) {
	if j.engine == "xdp" {
		x, err := newLive(j)
		if err != nil {
			return nil, nil, err
		}
		return []worker{x}, x.close, nil
	}
	d, err := j.open(ctx, j.port, j.function)
	if err != nil {
		return nil, nil, err
	}
	fail := func(err error) ([]worker, func() error, error) { return nil, nil, errors.Join(err, d.Close()) }
	switch j.function {
	case "tx", "txseq":
		for i := range j.threads {
			t, err := j.sender(d.TxRings()[i], i)
			if err != nil {
				return fail(err)
			}
			w = append(w, t)
		}
	case "rx", "rxseq":
		w, err = j.receivers(d)
	case "ping":
		w, err = j.ping(d)
	case "pong":
		w, err = j.pong(d)
	case "replay":
		w, err = j.replayers(d)
	}
	if err != nil {
		return fail(err)
	}
	return w, d.Close, nil
}

// open opens a port for a function, with a ring for each thread, and waits for
// the link.
func (j *job) open(ctx context.Context, port, function string) (*nm.Desc, error) {
	var o nm.Options
	o.TPACKET.RxQueues, o.TPACKET.TxQueues = 1, 1
	o.TPACKET.NoVnet, o.TPACKET.VnetLen = j.vnet == 0, max(j.vnet, 0)
	switch function {
	case "tx", "txseq", "replay":
		o.TPACKET.RxQueues, o.TPACKET.TxQueues = -1, j.threads
		o.XDP.TXOnly = true
	case "rx", "rxseq":
		o.TPACKET.RxQueues, o.TPACKET.TxQueues = j.threads, -1
	}
	d, err := nm.Open(port, o)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(j.wait)
	for said := false; ; said = true {
		err = errors.Join(refresh(d.RxRings()), refresh(d.TxRings()))
		if !errors.Is(err, ring.ErrLinkDown) {
			break
		}
		if time.Now().After(deadline) {
			err = fmt.Errorf("%w after %v; set it and its other end up (ip link set ... up), or wait longer with -w", err, j.wait)
			break
		}
		if !said {
			j.log.Info("waiting for the link", "port", port)
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), d.Close())
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func refresh(rings []*ring.Ring) error {
	for _, r := range rings {
		if err := r.Refresh(); err != nil {
			return err
		}
	}
	return nil
}

// drive runs the workers, each on a thread of its own, and prints reports until
// all are done. The first one runs on the calling thread, which keeps its
// network namespace.
func (j *job) drive(ctx context.Context, workers []worker) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if j.seconds != 0 {
		ctx, cancel = context.WithTimeout(ctx, j.seconds)
		defer cancel()
	}
	errs := make([]error, len(workers))
	work := func(i int) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		unpin, err := j.pin(i)
		if err == nil {
			err = errors.Join(workers[i].run(ctx), unpin())
		}
		if errs[i] = err; err != nil {
			cancel()
		}
	}
	j.log.Debug("started", "port", j.spec.String(), "function", j.function)
	if j.started != nil {
		j.started()
	}
	r := &reporter{p: j.plan, all: j.counts, clock: j.clock.since, extra: j.extra}
	done, reported := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(reported)
		r.loop(j.report, done)
	}()
	var wg sync.WaitGroup
	for i := range workers[1:] {
		wg.Go(func() { work(1 + i) })
	}
	work(0)
	wg.Wait()
	end := j.clock.since()
	close(done)
	<-reported
	r.final(end)
	return errors.Join(errs...)
}

// pin ties the calling thread to its CPU, if CPUs were named, and returns what
// sets it free again.
func (j *job) pin(thread int) (unpin func() error, err error) {
	if len(j.cpus) == 0 {
		return func() error { return nil }, nil
	}
	var was, set unix.CPUSet
	cpu := j.cpus[thread%len(j.cpus)]
	set.Set(cpu)
	if err := errors.Join(unix.SchedGetaffinity(0, &was), unix.SchedSetaffinity(0, &set)); err != nil {
		return nil, fmt.Errorf("pin thread %d to CPU %d: %w", thread, cpu, err)
	}
	return func() error { return unix.SchedSetaffinity(0, &was) }, nil
}

// share is thread i's part of n: parts differ by one at most.
func share(n uint64, i, of int) uint64 {
	s := n / uint64(of)
	if uint64(i) < n%uint64(of) {
		s++
	}
	return s
}

// cost is what a frame of n bytes takes of the rate.
func (r *rate) cost(n int) uint64 {
	if !r.bits {
		return 1
	}
	return uint64(n+r.extra) * 8
}

// schedule is thread i's part of the rate.
func (j *job) schedule(i int) *gen.Schedule {
	per := share(j.rates.per, i, j.threads)
	if j.rates.per != 0 && per == 0 {
		per = 1
	}
	most := j.rates.cost(j.frames.Sizes.Max())
	return gen.NewSchedule(per, most, j.clock.now())
}
