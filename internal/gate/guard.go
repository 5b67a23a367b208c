package gate

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/poll"
)

// Guard runs a gate before one interface as a [poll.GatePolicy] says. The
// worker that serves the interface calls Sample with every status check; a
// goroutine of the Guard's own attaches and detaches, which takes the kernel
// milliseconds.
type Guard struct {
	name    string
	ifindex int
	log     *slog.Logger
	policy  *poll.GatePolicy
	gate    *XDP
	core    *softnet

	orders chan order // cap 1
	failed atomic.Bool
	done   sync.WaitGroup
	closed bool

	on       atomic.Bool
	budget   atomic.Int64
	attaches atomic.Uint64
	refusals atomic.Uint64 // attaches that failed
	drops    atomic.Uint64 // by the backlogs of the workers' cores
	counts   struct{ passed, dropped, control atomic.Uint64 }
}

// order is what the Guard's goroutine is to do.
type order struct {
	on  bool
	why string
}

// GuardCounts are a Guard's counters since it was made.
type GuardCounts struct {
	On       bool   // gauge
	Mode     string // "native", "generic" or "off"
	Budget   int    // gauge: packets in a window
	Attaches uint64
	Refusals uint64 // attaches that were refused
	Backlog  uint64 // packets dropped as the backlog of a worker's core was full, of any interface
	Counts
}

// NewGuard returns a guard of the interface, with the gate off, for workers on
// the given cores. The error is a [*PrivilegeError] where the process may not
// load programs: run on without. The interface and the process must be in the
// same network namespace.
func NewGuard(name string, ifindex int, cpus []int, cfg poll.GateConfig, log *slog.Logger) (*Guard, error) {
	p, err := poll.NewGatePolicy(cfg)
	if err != nil {
		return nil, err
	}
	core, err := openSoftnet(cpus)
	if err != nil {
		return nil, err
	}
	x, err := LoadXDP()
	if err != nil {
		return nil, errors.Join(err, core.close())
	}
	g := &Guard{name: name, ifindex: ifindex, log: log, policy: p, gate: x, core: core, orders: make(chan order, 1)}
	g.done.Go(g.run)
	return g, nil
}

// Sample looks at how the interface does: s needs Now, Delivered, Sent, Drops,
// Super, Waiting and Slots, over all workers. One goroutine at a time; it
// allocates nothing but when it attaches or detaches.
func (g *Guard) Sample(s poll.GateSample) error {
	if err := g.core.read(); err != nil {
		return err
	}
	g.drops.Store(g.core.dropped)
	s.OnCore, s.Backlog = g.core.processed, g.core.dropped
	if g.on.Load() {
		if err := g.refresh(); err != nil {
			return err
		}
	}
	s.Passed, s.Refused = g.counts.passed.Load(), g.counts.dropped.Load()
	if g.failed.Swap(false) {
		g.policy.Failed(s.Now)
	}
	v := g.policy.Step(s)
	switch v.Action {
	case poll.GateAttach, poll.GateDetach:
		g.order(order{v.Action == poll.GateAttach, v.Why})
	}
	if !g.policy.On() || int64(v.Budget) == g.budget.Load() {
		return nil
	}
	g.budget.Store(int64(v.Budget))
	return g.gate.SetBudget(v.Budget, g.policy.Window())
}

// order gives the goroutine an order, in place of one that it has not begun.
func (g *Guard) order(o order) {
	select {
	case <-g.orders:
	default:
	}
	g.orders <- o
}

// refresh takes over the gate's counters.
func (g *Guard) refresh() error {
	c, err := g.gate.Counts()
	if err != nil {
		return err
	}
	g.counts.passed.Store(c.Passed)
	g.counts.dropped.Store(c.Dropped)
	g.counts.control.Store(c.Control)
	return nil
}

// run carries out orders.
func (g *Guard) run() {
	for o := range g.orders {
		if o.on == g.on.Load() {
			continue
		}
		if !o.on {
			g.on.Store(false)
			if err := errors.Join(g.gate.Detach(), g.refresh()); err != nil {
				g.log.Warn("gate", "port", g.name, "err", err)
			}
			g.log.Info("gate off", "port", g.name, "why", o.why)
			continue
		}
		start := time.Now()
		if err := g.gate.Attach(g.ifindex); err != nil {
			g.refusals.Add(1)
			g.failed.Store(true)
			g.log.Warn("gate stays off", "port", g.name, "err", err)
			continue
		}
		g.attaches.Add(1)
		g.on.Store(true)
		g.log.Info("gate on", "port", g.name, "mode", g.gate.Mode(), "why", o.why, "took", time.Since(start))
	}
}

// Counts may be called by any goroutine.
func (g *Guard) Counts() GuardCounts {
	return GuardCounts{On: g.on.Load(), Mode: g.gate.Mode(), Budget: int(g.budget.Load()), Attaches: g.attaches.Load(),
		Refusals: g.refusals.Load(), Backlog: g.drops.Load(),
		Counts: Counts{Passed: g.counts.passed.Load(), Dropped: g.counts.dropped.Load(), Control: g.counts.control.Load()}}
}

// Close takes the gate off and ends the Guard. Not while Sample is in
// progress, and no Sample after it. A second call does nothing.
func (g *Guard) Close() error {
	if g.closed {
		return nil
	}
	g.closed = true
	close(g.orders)
	g.done.Wait()
	// The counters are final once the program is off.
	return errors.Join(g.gate.Detach(), g.refresh(), g.gate.Close(), g.core.close())
}

// softnet reads what the kernel has received on some cores.
type softnet struct {
	fd   int
	cpus []int
	buf  []byte

	processed, dropped uint64 // sums over the cores since opening
	last               []struct{ processed, dropped uint32 }
}

const softnetPath = "/proc/net/softnet_stat"

func openSoftnet(cpus []int) (*softnet, error) {
	fd, err := unix.Open(softnetPath, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("gate: open %s: %w", softnetPath, err)
	}
	s := &softnet{fd: fd, cpus: cpus, buf: make([]byte, 64<<10), last: make([]struct{ processed, dropped uint32 }, len(cpus))}
	if err := s.read(); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	s.processed, s.dropped = 0, 0
	return s, nil
}

func (s *softnet) close() error { return unix.Close(s.fd) }

func (s *softnet) read() error {
	n := 0
	for n < len(s.buf) {
		k, err := unix.Pread(s.fd, s.buf[n:], int64(n))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("gate: read %s: %w", softnetPath, err)
		}
		if k == 0 {
			break
		}
		n += k
	}
	s.parse(s.buf[:n])
	return nil
}

// The columns of a line that matter: hexadecimal numbers of 32 bits, which
// wrap. Older kernels have no column for the core: there the lines are those
// of the cores in order, which is right as long as none is offline.
const (
	softnetProcessed = 0
	softnetDropped   = 1
	softnetCPU       = 12
)

func (s *softnet) parse(b []byte) {
	for line := 0; len(b) > 0; line++ {
		cpu := line
		var processed, dropped uint32
		for col := 0; ; col++ {
			v, rest, end := hexField(b)
			b = rest
			switch col {
			case softnetProcessed:
				processed = v
			case softnetDropped:
				dropped = v
			case softnetCPU:
				cpu = int(v)
			}
			if end {
				break
			}
		}
		for i, c := range s.cpus {
			if c == cpu {
				l := &s.last[i]
				s.processed += uint64(processed - l.processed)
				s.dropped += uint64(dropped - l.dropped)
				l.processed, l.dropped = processed, dropped
			}
		}
	}
}

// hexField reads a number and what separates it from the next one; end says
// that it was the last of its line.
func hexField(b []byte) (v uint32, rest []byte, end bool) {
	i := 0
	for ; i < len(b); i++ {
		switch c := b[i]; {
		case c >= '0' && c <= '9':
			v = v<<4 | uint32(c-'0')
		case c >= 'a' && c <= 'f':
			v = v<<4 | uint32(c-'a'+10)
		case c == '\n':
			return v, b[i+1:], true
		default:
			return v, b[i+1:], false
		}
	}
	return v, nil, true
}
