package mem

import (
	"errors"
	"sync"

	"github.com/netring/netring/ring"
)

// Port is one end of a pair.
type Port struct {
	name   string
	end    int
	pair   *pair
	life   *ring.Life
	wake   event
	rx, tx []*ring.Ring
}

var _ ring.Port = (*Port)(nil)

// pair is what both ends share.
type pair struct {
	pool  *Pool
	own   bool   // the pool is the pair's
	id    uint32 // identity of the first ring in the pool's book
	ports [2]*Port
	links [2][]*link // by sending end

	mu   sync.Mutex // held while an end closes
	open int
}

// Pair makes two ports: what one transmits the other receives. Both must be
// closed.
func Pair(o Options) (a, b *Port, err error) {
	p, err := newPair(o)
	if err != nil {
		return nil, nil, &ring.OpError{Op: "open", Port: o.withDefaults().Names[0], Ring: -1, Err: err}
	}
	return p.ports[0], p.ports[1], nil
}

func newPair(o Options) (_ *pair, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	p := &pair{pool: o.Pool, open: 2}
	if p.pool == nil {
		if p.pool, err = NewPool(o.Bufs()+o.Extra, o.BufSize); err != nil {
			return nil, err
		}
		p.own = true
	}
	bufs, id, err := p.pool.attach(o.Bufs(), 4*o.Rings)
	if err != nil {
		return nil, err
	}
	p.id = id
	for i := range p.ports {
		p.ports[i] = &Port{name: o.Names[i], end: i, pair: p, life: ring.NewLife(), wake: event{fd: -1}}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.ports[0].closeEvents(), p.ports[1].closeEvents())
			p.giveBack(bufs)
		}
	}()
	for _, port := range p.ports {
		if port.wake, err = newEvent(false); err != nil {
			return nil, err
		}
	}
	for i := range 2 * o.Rings {
		if err = p.addLink(o, i/o.Rings, i%o.Rings, bufs[i*o.Slots:(i+1)*o.Slots]); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// addLink makes ring i of what end sends.
func (p *pair) addLink(o Options, end, i int, bufs []uint32) (err error) {
	id := p.id + 2*uint32(end*o.Rings+i)
	l := &link{pool: p.pool, holder: p.pool.holder, stride: uint32(o.BufSize), vnet: uint32(o.VnetLen), wire: make([]ring.Slot, o.Slots)}
	l.tx = side{port: p.ports[end], event: event{fd: -1}, id: id}
	l.rx = side{port: p.ports[1-end], event: event{fd: -1}, id: id + 1}
	p.links[end] = append(p.links[end], l)
	if l.tx.event, err = newEvent(true); err != nil {
		return err
	}
	if l.rx.event, err = newEvent(false); err != nil {
		return err
	}
	c := ring.Config{Index: i, Slots: o.Slots, Region: p.pool.region, VnetLen: o.VnetLen, Offset: o.Headroom,
		MultiSlot: true}
	c.Dir, c.Driver = ring.TX, sender{l}
	if err := l.tx.attach(c); err != nil {
		return err
	}
	c.Dir, c.Driver = ring.RX, receiver{l}
	if err := l.rx.attach(c); err != nil {
		return err
	}
	l.tx.port.tx = append(l.tx.port.tx, l.tx.ring)
	l.rx.port.rx = append(l.rx.port.rx, l.rx.ring)
	for k, b := range bufs {
		*l.tx.ring.Slot(uint32(k)) = ring.Slot{Buf: b, Off: uint32(o.Headroom)}
		l.wire[k].Buf = b
		p.pool.holder[b] = l.tx.id
	}
	return nil
}

// attach makes the side's ring.
func (s *side) attach(c ring.Config) (err error) {
	c.Port, c.Life, c.FD, c.WakeFD = s.port.name, s.port.life, s.event.fd, s.port.wake.fd
	s.ring, err = ring.New(c)
	return err
}

// Name returns the name from the options.
func (p *Port) Name() string { return p.name }

// RxRings returns the receive rings.
func (p *Port) RxRings() []*ring.Ring { return p.rx }

// TxRings returns the transmit rings; ring i leads to the other end's receive
// ring i.
func (p *Port) TxRings() []*ring.Ring { return p.tx }

// Pool has the buffers of the pair.
func (p *Port) Pool() *Pool { return p.pair.pool }

// Close closes this end; see [ring.Port] and the package comment.
func (p *Port) Close() error {
	if !p.life.Shut() {
		return nil
	}
	p.wake.set(true)
	p.life.Drain()
	p.pair.leave(p)
	if err := p.closeEvents(); err != nil {
		return &ring.OpError{Op: "close", Port: p.name, Ring: -1, Err: err}
	}
	return nil
}

// closeEvents closes the descriptors of the port's rings. Nobody uses them: the
// port's life is drained.
func (p *Port) closeEvents() error {
	errs := []error{p.wake.close()}
	for _, l := range p.pair.links[p.end] {
		errs = append(errs, l.tx.event.close())
	}
	for _, l := range p.pair.links[1-p.end] {
		errs = append(errs, l.rx.event.close())
	}
	return errors.Join(errs...)
}

// leave takes the end p, which nobody is inside of, off the links.
func (p *pair) leave(port *Port) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links[1-port.end] {
		l.closeRx()
	}
	for _, l := range p.links[port.end] {
		l.closeTx()
	}
	if p.open--; p.open == 0 {
		p.giveBack(p.remains())
	}
}

// closeTx ends the sending side. What it has published can still be received.
func (l *link) closeTx() {
	// With the receiver closed, the last Sync may have taken everything back.
	if released := l.released.Load(); int32(released-l.reclaimed) > 0 {
		l.settle(released)
	}
	if l.rxClosed.Load() {
		l.dropRest()
	}
	l.txClosed.Store(true)
	l.rx.signal()
}

// closeRx ends the receiving side: all that it was given is back.
func (l *link) closeRx() {
	r := l.rx.ring
	for k, again := r.Accepted(), false; k != r.Tail(); {
		next, err := l.release(r, k, r.Tail())
		if next == k && again {
			// The program has the buffer elsewhere, too.
			next++
			l.back++
			l.released.Store(l.back)
		}
		again = err != nil
		k = next
	}
	l.rxClosed.Store(true)
	if l.txClosed.Load() {
		l.settle(l.back)
		l.dropRest()
	}
	l.tx.signal()
}

// remains returns the buffers in the pair's slots. Both ends are closed.
func (p *pair) remains() (bufs []uint32) {
	for _, links := range p.links {
		for _, l := range links {
			r := l.tx.ring
			for k := r.Accepted(); k != r.Tail(); k++ {
				bufs = append(bufs, r.Slot(k).Buf)
			}
			for w := l.accepted - (r.Accepted() + uint32(r.Len()) - r.Tail()); w != l.accepted; w++ {
				bufs = append(bufs, l.wire[w&uint32(len(l.wire)-1)].Buf)
			}
		}
	}
	return bufs
}

// giveBack returns the pair's buffers to the pool.
func (p *pair) giveBack(bufs []uint32) {
	p.pool.collect(bufs, p.id, 2*(len(p.links[0])+len(p.links[1])))
	p.pool.release()
	if p.own {
		_ = p.pool.Close() // has no error
	}
}
