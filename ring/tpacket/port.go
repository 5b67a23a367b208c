package tpacket

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/netdev"
	"github.com/netring/netring/ring"
)

// Port is an interface opened with packet sockets: one for each ring.
type Port struct {
	dev    *netdev.Device
	opts   Options
	life   *ring.Life
	wakeFD int
	handed bool    // its one socket came from outside
	socks  []*sock // of all rings, receive rings first
	extra  []*sock // without a ring, for large frames
	rx, tx []*ring.Ring
	txs    []*tx
	regs   []*ring.Region
}

var _ ring.Port = (*Port)(nil)

// Granted tells what a port got, which may be less than what was asked for
// where memory was short.
type Granted struct {
	Rx, Tx  Geometry // of each ring; zero if there is none
	RxSlots int
	TxSlots int
	VnetLen int
}

// Open opens the interface in the network namespace of the calling thread. It
// needs CAP_NET_RAW in the user namespace that owns it. The interface must be
// there; while it is down nothing passes and Refresh says so.
func Open(name string, o Options) (*Port, error) {
	return openFD(name, -1, o)
}

// NewFromFD is [Open] for a process without the privilege: fd is a packet
// socket (AF_PACKET, SOCK_RAW, protocol 0, neither bound nor with a ring) that
// a helper has opened in the interface's network namespace and handed over. It
// serves the one ring of the port, so o must ask for a single direction with
// one queue, and NoPromisc. The port owns fd, also when NewFromFD fails.
func NewFromFD(name string, fd int, o Options) (*Port, error) {
	d := o.withDefaults()
	if d.RxQueues+d.TxQueues != 1 || !o.NoPromisc {
		unix.Close(fd)
		return nil, &ring.OpError{Op: "open", Port: name, Ring: -1,
			Err: fmt.Errorf("one socket makes one ring: set RxQueues or TxQueues to -1, the other to 1, and NoPromisc")}
	}
	return openFD(name, fd, o)
}

func openFD(name string, fd int, o Options) (*Port, error) {
	p, err := open(name, fd, o)
	if err != nil {
		return nil, &ring.OpError{Op: "open", Port: name, Ring: -1, Err: err}
	}
	return p, nil
}

func open(name string, fd int, o Options) (p *Port, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	p = &Port{opts: o.withDefaults(), life: ring.NewLife(), wakeFD: -1}
	defer func() {
		if err != nil {
			p.life.Shut()
			err = errors.Join(err, p.cleanup())
			p = nil
		}
	}()
	if fd < 0 {
		p.dev, err = netdev.Open(name, !o.NoPromisc)
	} else {
		p.socks, p.handed = append(p.socks, &sock{fd: fd}), true
		p.dev, err = netdev.OpenFD(name, fd)
	}
	if err != nil {
		return p, err
	}
	if p.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return p, fmt.Errorf("eventfd: %w", err)
	}
	group := -1
	for i := range p.opts.RxQueues {
		s, err := p.socket(fd)
		if err != nil {
			return p, err
		}
		if err := p.receiver(s, i, &group); err != nil {
			return p, fmt.Errorf("receive ring %d: %w", i, err)
		}
	}
	for i := range p.opts.TxQueues {
		s, err := p.socket(fd)
		if err != nil {
			return p, err
		}
		if err := p.transmitter(s, i); err != nil {
			return p, fmt.Errorf("transmit ring %d: %w", i, err)
		}
	}
	// Only now, with every ring there, may frames come in.
	for _, s := range p.socks[:p.opts.RxQueues] {
		if err := admit(s.fd, p.opts.Filter); err != nil {
			return p, err
		}
	}
	return p, nil
}

// socket returns a new socket, or the one that was handed over.
func (p *Port) socket(fd int) (*sock, error) {
	if fd >= 0 {
		return p.socks[0], nil
	}
	s, err := openSock()
	if err != nil {
		return nil, err
	}
	p.socks = append(p.socks, s)
	return s, nil
}

// Name returns the interface's name.
func (p *Port) Name() string { return p.dev.Name }

// RxRings returns the receive rings; with more than one, they share the
// interface's traffic.
func (p *Port) RxRings() []*ring.Ring { return p.rx }

// TxRings returns the transmit rings, which are independent of each other.
func (p *Port) TxRings() []*ring.Ring { return p.tx }

// Granted tells the sizes of the rings.
func (p *Port) Granted() Granted {
	g := Granted{VnetLen: p.opts.VnetLen}
	if n := p.opts.RxQueues; n > 0 {
		g.Rx, g.RxSlots = p.socks[0].geo, p.opts.RxSlots
	}
	if p.opts.TxQueues > 0 {
		g.Tx, g.TxSlots = p.socks[len(p.socks)-1].geo, p.opts.TxSlots
	}
	return g
}

// Close closes the port; see [ring.Port]. Frames that were handed over are
// given [Options.DrainTimeout] to leave; what is left then is counted as
// closed.
func (p *Port) Close() error {
	if !p.life.Shut() {
		return nil
	}
	return p.cleanup()
}

// cleanup undoes what open has done, as far as it came. The life is shut.
func (p *Port) cleanup() error {
	var errs []error
	if p.wakeFD >= 0 {
		_, err := unix.Write(p.wakeFD, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		errs = append(errs, err)
	}
	p.life.Drain()
	for i, d := range p.txs {
		d.drain(p.tx[i], p.opts.DrainTimeout)
	}
	for _, g := range p.regs {
		g.Forget()
	}
	errs = append(errs, closeAll(append(p.socks, p.extra...)))
	if p.wakeFD >= 0 {
		errs = append(errs, unix.Close(p.wakeFD))
	}
	if p.dev != nil {
		p.dev.Close()
	}
	return errors.Join(errs...)
}

// closeAll closes the sockets all at once: for each the kernel waits until no
// CPU is receiving into its ring any more, which takes tens of milliseconds.
func closeAll(socks []*sock) error {
	errs := make([]error, len(socks))
	var all sync.WaitGroup
	for i, s := range socks {
		all.Go(func() { errs[i] = s.close() })
	}
	all.Wait()
	return errors.Join(errs...)
}
