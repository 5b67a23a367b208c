package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netring/netring/ring"
)

// Options of a [Bridge]. The zero value is valid.
type Options struct {
	// Workers is the number of threads, 0 for one. Every link must have that
	// many receive and transmit rings.
	Workers int
	// CPUs pins worker i to CPUs[i]; empty leaves them to the scheduler.
	CPUs []int
	// Budget is how many frames a worker takes from one ring before it goes
	// on to the next; 0 for 256.
	Budget int
	// Hold leaves frames that do not fit into a full transmit ring where they
	// came from (back-pressure), instead of dropping them.
	Hold bool
	// Drain is how long Run goes on forwarding what had arrived when it was
	// told to stop; 0 for one second.
	Drain time.Duration
	// Log takes what is worth saying once, such as links going down; nil for
	// slog's default.
	Log *slog.Logger
}

// Validate reports the first value that is out of range.
func (o *Options) Validate() error {
	switch {
	case o.Workers < 0 || o.Workers > 256:
		return fmt.Errorf("%d workers: must be between 1 and 256", o.Workers)
	case len(o.CPUs) != 0 && len(o.CPUs) != max(o.Workers, 1):
		return fmt.Errorf("%d cpus for %d workers: must be one for each", len(o.CPUs), max(o.Workers, 1))
	case o.Budget < 0:
		return fmt.Errorf("budget of %d frames: must not be negative", o.Budget)
	case o.Drain < 0:
		return fmt.Errorf("drain for %v: must not be negative", o.Drain)
	}
	for _, c := range o.CPUs {
		if c < 0 || c > 1023 {
			return fmt.Errorf("cpu %d: must be between 0 and 1023", c)
		}
	}
	return nil
}

func (o *Options) defaults() {
	if o.Workers == 0 {
		o.Workers = 1
	}
	if o.Budget == 0 {
		o.Budget = 256
	}
	if o.Drain == 0 {
		o.Drain = time.Second
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
}

// Port is one side of a bridge.
type Port struct {
	Name string
	// Links are the interfaces of the port: one, or the members of a group.
	Links []ring.Port
}

// Bridge forwards between ports. Make one with [New], call Run once.
type Bridge struct {
	opt      Options
	ports    []Port
	links    [][]*link // per port
	workers  []*worker
	left     []leftover // per port
	pass     func(w *worker, in *inlet, budget int) int
	stopping atomic.Bool
}

// leftover counts frames of one port that a stopped bridge did not pass on:
// those that the kernel had stored and nobody took, and those taken.
type leftover struct{ untaken, abandoned atomic.Uint64 }

// New builds a bridge over open ports, which stay the caller's to close.
func New(ports []Port, o Options) (*Bridge, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.defaults()
	if len(ports) < 2 {
		return nil, fmt.Errorf("a bridge of %d ports: needs at least two", len(ports))
	}
	b := &Bridge{opt: o, ports: ports, left: make([]leftover, len(ports)), pass: wire}
	if len(ports) > 2 {
		return nil, errors.New("a bridge of more than two ports is not built yet")
	}
	for _, p := range ports {
		var links []*link
		for _, rp := range p.Links {
			if len(rp.RxRings()) < o.Workers || len(rp.TxRings()) < o.Workers {
				return nil, fmt.Errorf("port %s has %d receive and %d transmit rings: %d workers need one of each",
					rp.Name(), len(rp.RxRings()), len(rp.TxRings()), o.Workers)
			}
			links = append(links, &link{port: rp, log: o.Log})
		}
		b.links = append(b.links, links)
	}
	for i := range o.Workers {
		w, err := b.newWorker(i)
		if err != nil {
			b.release()
			return nil, err
		}
		b.workers = append(b.workers, w)
	}
	return b, nil
}

func (b *Bridge) newWorker(id int) (*worker, error) {
	w := &worker{b: b, id: id, cpu: -1}
	if len(b.opt.CPUs) != 0 {
		w.cpu = b.opt.CPUs[id]
	}
	for p, links := range b.links {
		for _, l := range links {
			w.in = append(w.in, inlet{rx: l.port.RxRings()[id], link: l, port: p})
			tx := l.port.TxRings()[id]
			o := &outlet{Egress: &direct{tx: tx, hold: b.opt.Hold}, tx: tx, link: l}
			w.outs = append(w.outs, o)
			w.out = append(w.out, o)
		}
	}
	var err error
	w.wait, err = newWaiter(len(w.in))
	return w, err
}

func (b *Bridge) release() {
	for _, w := range b.workers {
		w.wait.close()
	}
}

// wire passes everything to the other port.
func wire(w *worker, in *inlet, budget int) int {
	return w.out[1-in.port].Move(in.rx, budget)
}

// Run forwards until ctx is done, drains, and returns; or returns the first
// error that a worker cannot go on after. Afterwards the caller closes the
// ports: what their drivers still have is sent or counted then.
func (b *Bridge) Run(ctx context.Context) error {
	defer b.release()
	ended, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-ctx.Done():
			b.stop()
		case <-ended:
		}
	}()
	errs := make([]error, len(b.workers))
	var all sync.WaitGroup
	for i, w := range b.workers {
		all.Go(func() {
			if errs[i] = w.run(); errs[i] != nil {
				b.stop()
			}
		})
	}
	all.Wait()
	close(ended)
	<-watched
	return errors.Join(errs...)
}

func (b *Bridge) stop() {
	b.stopping.Store(true)
	for _, w := range b.workers {
		w.wait.wake()
	}
}
