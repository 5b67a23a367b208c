package nm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/netring/netring/internal/forward"
	"github.com/netring/netring/internal/link"
	"github.com/netring/netring/lagg"
	"github.com/netring/netring/poll"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/mem"
	"github.com/netring/netring/ring/tpacket"
	"github.com/netring/netring/sched"
)

// laggPort is a group of interfaces behind a pair: a bridge between the two, as
// cmd/bridge runs it, does the work.
//
//	program ── far ══ near ── bridge ── group ── interfaces
//
// What the program sends is not dropped for want of room: its transmit ring
// stays full as long as the interfaces' are. Received frames are dropped while
// its receive ring is full, as an interface does.
type laggPort struct {
	bridge   *forward.Bridge
	why      atomic.Pointer[portState] // set before the rings tell that the port is gone
	far      *mem.Port
	stop     context.CancelFunc
	ended    chan struct{} // closed when the bridge has
	closeErr error         // what closing the bridge said; after ended
}

// laggDrain is how long a group that is closed waits for what was sent.
const laggDrain = time.Second

// openLagg opens a group of interfaces.
func (d *Desc) openLagg(name string, o *Options) error {
	text := "lagg:" + d.spec.Name
	if opt := d.spec.Option("lagg"); opt != nil {
		text += opt.String()
	}
	group, err := lagg.ParseSpec(text)
	if err != nil {
		return err
	}
	if d.spec.MemID != 0 {
		return errors.New("a group of interfaces has no memory to share: leave @N out")
	}
	m, err := memConf(&d.spec)
	if err != nil {
		return err
	}
	members, err := d.openMembers(group.Members, max(m.Rings, 1), o)
	if err != nil {
		return err
	}
	l, err := newLagg(name, group, members, m)
	if err != nil {
		return errors.Join(err, closeAll(members))
	}
	d.lagg, d.port = l, l.far
	d.undo = append(d.undo, l.close)
	return nil
}

// openMembers opens the interfaces of a group, with as many rings as workers.
func (d *Desc) openMembers(names []string, workers int, o *Options) (members []ring.Port, err error) {
	t := o.TPACKET
	if opt := d.spec.Option("tpacket"); opt != nil {
		tpacketOptions(&t, opt)
	}
	t.RxQueues, t.TxQueues = workers, workers
	for _, name := range names {
		p, err := tpacket.Open(name, t)
		if err != nil {
			return nil, errors.Join(err, closeAll(members))
		}
		members = append(members, p)
	}
	return members, nil
}

func closeAll(ports []ring.Port) error {
	var errs []error
	for _, p := range ports {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// newLagg starts a bridge between a new pair and the members, which are its own
// unless there is an error.
func newLagg(name string, group lagg.Spec, members []ring.Port, o mem.Options) (*laggPort, error) {
	o.Names = [2]string{name + " (group)", name}
	o.BufSize = mem.DefaultBufSize
	for _, p := range members {
		o.BufSize = max(o.BufSize, p.TxRings()[0].MaxFrame()+mem.DefaultHeadroom)
	}
	near, far, err := mem.Pair(o)
	if err != nil {
		return nil, err
	}
	b, err := forward.New([]forward.Port{
		{Name: name, Links: []ring.Port{near}, Queue: &sched.Options{}},
		{Name: "members of " + name, Links: members, Group: &group.Options},
	}, forward.Options{
		Poll:  poll.Options{Workers: len(near.RxRings())},
		Queue: sched.Options{Full: sched.Backpressure},
		Log:   slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, errors.Join(err, far.Close(), near.Close())
	}
	// Others wait to stand in: the watcher's own interval is quick.
	watch, err := b.Watch(group.Members, 0)
	if err != nil {
		// The members are the bridge's by now, and closed with it; to close
		// them twice does no harm.
		return nil, errors.Join(err, far.Close(), b.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	l := &laggPort{bridge: b, far: far, stop: stop, ended: make(chan struct{})}
	go l.run(ctx, near, watch)
	return l, nil
}

// run is the bridge's goroutine.
func (l *laggPort) run(ctx context.Context, near ring.Port, watch *link.Watcher) {
	defer close(l.ended)
	err := l.bridge.Run(ctx)
	var op *ring.OpError
	if err != nil && !(errors.As(err, &op) && strings.HasPrefix(op.Port, near.Name())) {
		l.why.Store(&portState{err}) // it is not that the program has closed its end
	}
	l.closeErr = errors.Join(watch.Close(), l.bridge.Close())
}

// close closes the program's end, lets the bridge send what was handed over,
// and closes the interfaces.
func (l *laggPort) close() error {
	err := l.far.Close()
	// The bridge ends by itself, once it has taken all that was sent.
	t := time.NewTimer(laggDrain)
	defer t.Stop()
	select {
	case <-l.ended:
	case <-t.C:
	}
	l.stop()
	<-l.ended
	return errors.Join(err, l.closeErr)
}

// explain adds to an error that says that a port is gone why it is.
func (d *Desc) explain(err error) error {
	if err == nil || d.lagg == nil || !errors.Is(err, ring.ErrGone) {
		return err
	}
	if st := d.lagg.why.Load(); st != nil {
		return fmt.Errorf("%w: %w", err, st.err)
	}
	return err
}

// Group returns the state and the counters of the group of interfaces that a
// lagg port is; false if the port is none. Any goroutine.
func (d *Desc) Group() (st lagg.Status, ok bool) {
	if d.lagg == nil {
		return st, false
	}
	return *d.lagg.bridge.Stats().Ports[1].Group, true
}
