package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/netring/netring/lagg"
	"github.com/netring/netring/nm/vale"
	"github.com/netring/netring/poll"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/sched"
)

// Options of a [Bridge]. The zero value is valid.
type Options struct {
	// Poll is how the workers run; every link must have a receive and a
	// transmit ring for each.
	Poll poll.Options
	// Queue is how each worker's queue before a transmit ring works; its
	// Clock is set by New.
	Queue sched.Options
	// Drain is how long Run goes on forwarding what had arrived when it was
	// told to stop; 0 for one second.
	Drain time.Duration
	// Guarded puts a gate before a link while the kernel receives so much on
	// a worker's core that the worker starves: see package gate. Gate are its
	// knobs. It needs pinned workers, and privileges; without, the bridge runs
	// ungated.
	Guarded bool
	Gate    poll.GateConfig
	// Table is the address table's, with more than two ports.
	Table vale.TableOptions
	// Log takes what is worth saying once, such as links going down; nil for
	// slog's default.
	Log *slog.Logger
}

// Validate reports the first value that is out of range.
func (o *Options) Validate() error {
	if o.Drain < 0 {
		return fmt.Errorf("drain for %v: must not be negative", o.Drain)
	}
	if err := o.Gate.Validate(); err != nil {
		return err
	}
	if err := o.Table.Validate(); err != nil {
		return err
	}
	return o.Poll.Validate()
}

func (o *Options) defaults() {
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
	// Group says how several links share the port's traffic; nil for one.
	Group *lagg.Options
	// Queue is in place of the bridge's options for the queues before this
	// port; nil for those.
	Queue *sched.Options
}

// Bridge forwards between ports. Make one with [New], call Run once, then Close.
type Bridge struct {
	opt     Options
	ports   []Port
	links   [][]*link // per port
	sched   *poll.Scheduler
	workers []*worker
	left    []leftover // per port
	pass    func(w *worker, s *station, budget int) int
	sw      *vale.Switch // nil for a wire
	closed  bool
}

// leftover counts frames of one port that were not passed on: by a stopped
// bridge those that the kernel had stored and nobody took, and those taken;
// and those that came by a link which may not deliver.
type leftover struct{ untaken, abandoned, filtered atomic.Uint64 }

// New builds a bridge over open ports, which are the bridge's from then on;
// if there is an error they stay the caller's.
func New(ports []Port, o Options) (*Bridge, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.defaults()
	if len(ports) < 2 {
		return nil, fmt.Errorf("a bridge of %d ports: needs at least two", len(ports))
	}
	s, err := poll.New(o.Poll)
	if err != nil {
		return nil, err
	}
	b := &Bridge{opt: o, ports: ports, sched: s, left: make([]leftover, len(ports)), pass: wire}
	workers := s.Options().Workers
	for i := range ports {
		p := &ports[i]
		if len(p.Links) != 1 && p.Group == nil {
			return nil, fmt.Errorf("port %s has %d links: without a group it must have one", p.Name, len(p.Links))
		}
		var links []*link
		for _, rp := range p.Links {
			if len(rp.RxRings()) < workers || len(rp.TxRings()) < workers {
				return nil, fmt.Errorf("port %s has %d receive and %d transmit rings: %d workers need one of each",
					rp.Name(), len(rp.RxRings()), len(rp.TxRings()), workers)
			}
			links = append(links, &link{port: rp, log: o.Log})
		}
		if err := b.join(p, links); err != nil {
			return nil, err
		}
		b.links = append(b.links, links)
	}
	for i := range workers {
		w, err := b.newWorker(i)
		b.workers = append(b.workers, w)
		if err != nil {
			return nil, errors.Join(err, b.closeFinishers())
		}
	}
	if len(ports) > 2 {
		if err := b.openSwitch(); err != nil {
			return nil, errors.Join(err, b.closeFinishers())
		}
	}
	if o.Guarded {
		b.openGuards()
	}
	return b, nil
}

// wire passes everything to the other port.
func wire(w *worker, s *station, budget int) int {
	return w.out[1-s.port].Move(s.rx, budget)
}

// Run forwards until ctx is done, drains and returns nil, or returns the first
// error that it cannot go on after.
func (b *Bridge) Run(ctx context.Context) error {
	for _, w := range b.workers {
		for _, s := range w.stations {
			if err := b.sched.Add(w.id, s); err != nil {
				return err
			}
		}
	}
	err := b.sched.Run(ctx)
	b.drain()
	return err
}
