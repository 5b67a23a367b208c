package nm

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/netring/netring/nm/vale"
	"github.com/netring/netring/poll"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/mem"
)

// switchPort is a port of a switch: of a virtual one the switch's end of a
// pair, whose other end is the program's, or an interface. It is what the
// switch's scheduler runs.
//
//	program ── far ══ near ── in ─► vale.Switch ─► out (of another port)
type switchPort struct {
	s    *Switch
	name string // in the switch
	as   string // as it was opened
	id   vale.PortID
	near ring.Port
	far  *mem.Port // nil of an interface
	out  outlet

	state   atomic.Pointer[portState]
	drained chan struct{} // closed once the program's end is closed and all that it sent is forwarded

	// The switch's goroutine's.
	in    []intake
	first int  // intake that has the next turn
	over  bool // drained is closed
}

var _ poll.Handler = (*switchPort)(nil)

// portState is what is wrong with a port.
type portState struct{ err error }

// intake is one receive ring of a port.
type intake struct {
	rx   *ring.Ring
	held bool // what is in it waits for room elsewhere
	gone bool // it will bring nothing more
	taps taps // of those who monitor what the port sends
}

// drainWait is how long a port that is closed waits for what it has sent to
// be forwarded, which only a back-pressuring port can hold up.
const drainWait = 100 * time.Millisecond

// pendingWait bounds a sleep while an interface has frames to send: its
// transmit ring's descriptor is not watched.
const pendingWait = time.Millisecond

// Name is the port's.
func (p *switchPort) Name() string { return p.as }

// err is what is wrong with the port, nil if nothing is.
func (p *switchPort) err() error {
	if st := p.state.Load(); st != nil {
		return st.err
	}
	return nil
}

// Poll forwards up to budget received frames. The rings take turns.
func (p *switchPort) Poll(budget int) (done int, err error) {
	p.s.tick()
	n := len(p.in)
	for i := range n {
		k := (p.first + i) % n
		if done += p.take(&p.in[k], budget-done); done == budget {
			p.first = (k + 1) % n
			break
		}
	}
	return done, nil
}

// take forwards up to budget frames of one ring.
func (p *switchPort) take(in *intake, budget int) int {
	if in.gone {
		return 0
	}
	if err := in.rx.Sync(); err != nil {
		p.failed(in, err)
	}
	in.held = false
	if in.rx.Space() == 0 {
		return 0
	}
	in.taps.see(in.rx, in.rx.Tail())
	n := p.s.sw.Forward(0, p.id, in.rx, budget)
	in.held = n < budget && in.rx.Space() != 0
	return n
}

// failed notes an error of a receive ring.
func (p *switchPort) failed(in *intake, err error) {
	switch {
	case errors.Is(err, ring.ErrLinkDown):
		p.down(err)
		return
	case p.far == nil || !errors.Is(err, ring.ErrGone):
		p.state.Store(&portState{err})
	}
	if in.gone = errors.Is(err, ring.ErrGone) || errors.Is(err, ring.ErrClosed); !in.gone {
		return
	}
	for i := range p.in {
		if !p.in[i].gone {
			return
		}
	}
	if !p.over {
		p.over = true
		close(p.drained)
	}
}

// down notes that an interface has no link. The stations behind it may turn up
// elsewhere.
func (p *switchPort) down(err error) {
	if p.err() == nil {
		p.state.Store(&portState{err})
		p.out.down = true
		p.s.sw.Table().Forget(p.id)
	}
}

// Flush rings the doorbells.
func (p *switchPort) Flush() error {
	if err := p.out.Flush(); err != nil && p.far == nil {
		p.sendFailed(err)
	}
	return nil
}

// sendFailed notes an error of an interface's transmit ring; what could not be
// sent is dropped and counted.
func (p *switchPort) sendFailed(err error) {
	switch {
	case errors.Is(err, ring.ErrLinkDown):
		p.down(err)
	case errors.Is(err, ring.ErrGone):
		p.state.Store(&portState{err})
		p.out.down = true
	}
}

// Check looks after the link of an interface.
func (p *switchPort) Check(time.Duration) error {
	if p.far != nil {
		return nil
	}
	err := p.in[0].rx.Refresh()
	switch {
	case errors.Is(err, ring.ErrLinkDown):
		p.down(err)
	case err != nil:
		p.sendFailed(err)
	case errors.Is(p.err(), ring.ErrLinkDown):
		p.out.down = false
		p.state.Store(nil)
	}
	return nil
}

// Arm prepares for a sleep.
func (p *switchPort) Arm(w *poll.WaitSet) (ready bool) {
	for i := range p.in {
		in := &p.in[i]
		if in.gone || in.held {
			continue // what holds it up ends the sleep
		}
		in.rx.Arm()
		// What came before Arm does not signal.
		if err := in.rx.Sync(); err != nil {
			p.failed(in, err)
		}
		w.Ring(in.rx)
		ready = ready || in.rx.Space() != 0
	}
	if p.far == nil {
		if p.out.pending() {
			w.Until(p.s.sched.Clock(0).Now() + pendingWait)
		}
		return ready
	}
	return p.out.arm(w) || ready
}

// close takes the port off its switch. What the program had sent is forwarded
// first.
func (p *switchPort) close() error {
	if p.far == nil {
		return errors.Join(p.s.remove(p), p.near.Close())
	}
	err := p.far.Close()
	t := time.NewTimer(drainWait)
	defer t.Stop()
	select {
	case <-p.drained:
	case <-p.s.ended:
	case <-t.C:
	}
	return errors.Join(err, p.s.remove(p), p.near.Close())
}
