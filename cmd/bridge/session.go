package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/netring/netring/internal/forward"
)

// heapLimit is when the collector runs at all: the data path allocates
// nothing, so a run rarely reaches it.
const heapLimit = 32 << 20

// quietRuntime leaves the collector idle until the heap has grown to the
// limit, and the runtime's monitor while workers are in system calls: it takes
// their processors away, every few microseconds, unless others are free.
func quietRuntime(workers int) {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(heapLimit)
	if n := workers + 2; runtime.GOMAXPROCS(0) < n {
		runtime.GOMAXPROCS(n)
	}
}

// bridge is the command proper: open, forward until ctx is done, report.
func bridge(ctx context.Context, c *config, stdout io.Writer, log *slog.Logger) (err error) {
	quietRuntime(c.poll.Workers)
	claimed, err := c.claim()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, claimed.release()) }()
	changed, err := prepareOffloads(c, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, changed.restore()) }()
	ports, err := openPorts(c, log)
	if err != nil {
		return err
	}
	modes := c.portModes(ports, log)
	b, err := forward.New(ports, c.options(log))
	if err != nil {
		return errors.Join(err, closePorts(ports))
	}
	watch, err := watchLinks(b, c)
	if err != nil {
		return errors.Join(err, b.Close())
	}
	defer watch.Close()
	log.Info("forwarding", "ports", c.interfaces, "workers", c.poll.Workers, "mode", c.poll.Mode)
	s := session{b: b, modes: modes, json: c.json, out: stdout, start: time.Now()}
	err = s.run(ctx, c.interval)
	// Closing sends what the drivers still have, and counts the rest: the
	// totals are exact after it.
	err = errors.Join(err, b.Close())
	if c.fdb {
		s.printFDB()
	}
	s.final()
	return err
}

// session reports on one bridge. A report that cannot be written ends the
// command and becomes its error by itself, see [cli.Run].
type session struct {
	b     *forward.Bridge
	modes []portMode // per port
	json  bool
	out   io.Writer
	start time.Time
	last  *report
	at    time.Time
}

func (s *session) run(ctx context.Context, interval time.Duration) error {
	done := make(chan error, 1)
	s.last, s.at = s.take("interval", s.start), s.start
	fdb, stop := fdbSignal(s.b.Table())
	defer stop()
	go func() { done <- s.b.Run(ctx) }()
	var tick <-chan time.Time
	if interval > 0 {
		t := time.NewTicker(interval)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case err := <-done:
			return err
		case <-fdb:
			s.printFDB()
		case now := <-tick:
			s.interval(now)
		}
	}
}

func (s *session) take(kind string, now time.Time) *report {
	st := s.b.Stats()
	r := newReport(&st, kind, now, now.Sub(s.start))
	for i, m := range s.modes {
		r.Ports[i].Driver, r.Ports[i].Mode = m.driver, m.mode
	}
	return r
}

func (s *session) interval(now time.Time) {
	r, d := s.take("interval", now), now.Sub(s.at)
	r.rates(s.last, d)
	if s.json {
		_ = r.json(s.out)
	} else {
		_ = r.text(s.out, s.last, d)
	}
	s.last, s.at = r, now
}

// final reports the whole run.
func (s *session) final() {
	now := time.Now()
	r, zero := s.take("final", now), &report{Ports: make([]portReport, len(s.last.Ports))}
	d := now.Sub(s.start)
	r.rates(zero, d)
	if s.json {
		_ = r.json(s.out)
		return
	}
	fmt.Fprintf(s.out, "total in %.1f s: received %d, forwarded %d, dropped %d%s\n", d.Seconds(),
		r.Received+r.Copied, r.Forwarded, r.Dropped, drops([]map[string]uint64{r.Drops}, []map[string]uint64{nil}))
}
