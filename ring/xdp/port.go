package xdp

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/netdev"
	"github.com/netring/netring/ring"
)

// Port is an interface opened with AF_XDP: for each queue one receive and one
// transmit ring.
type Port struct {
	dev    *netdev.Device
	mem    *Mem
	ownMem bool // Close closes mem too
	life   *ring.Life
	wakeFD int
	prog   *program
	queues []*queue
	frames []uint32 // taken from mem, and in no ring of the port yet
	rx, tx []*ring.Ring
	rxs    []*receiver
	txs    []*sender
}

var _ ring.Port = (*Port)(nil)

// Open opens the interface over m; with m nil the port has memory of its own.
// Ports over one m exchange frames without copying. The modes (zero-copy,
// multi-buffer) of the first port opened over m are those of all.
func Open(name string, m *Mem, o Options) (*Port, error) {
	p, err := open(name, m, o)
	if err != nil {
		return nil, &ring.OpError{Op: "open", Port: name, Ring: -1, Err: err}
	}
	return p, nil
}

func open(name string, m *Mem, o Options) (p *Port, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	p = &Port{life: ring.NewLife(), wakeFD: -1}
	p.life.Shut() // until open has succeeded; failure runs the same clean-up as Close
	defer func() {
		if err != nil {
			err = errors.Join(err, p.cleanup())
			p = nil
		}
	}()
	if p.dev, err = netdev.Open(name, !o.NoPromisc); err != nil {
		return p, err
	}
	n := p.dev.RxQueues()
	if o.Queues == nil {
		for q := range n {
			o.Queues = append(o.Queues, q)
		}
	}
	if err = p.memory(m, &o); err != nil {
		return p, err
	}
	if err = p.checkMTU(&o); err != nil {
		return p, err
	}
	if p.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return p, fmt.Errorf("eventfd: %w", err)
	}
	if !o.TXOnly {
		// The program comes first: on some drivers attaching resets the
		// device, which would drop what the sockets have set up.
		if p.prog, err = attach(p.dev.Index, max(n, maxQueue(o.Queues)+1), &o); err != nil {
			return p, err
		}
	}
	for _, id := range o.Queues {
		q, err := newQueue(p.mem, p.dev.Index, id, &o)
		if err != nil {
			return p, err
		}
		q.mode.Native = p.prog != nil && p.prog.native
		p.queues = append(p.queues, q)
	}
	p.life = ring.NewLife()
	if err = p.rings(&o); err != nil {
		return p, err
	}
	return p, p.redirect()
}

// memory takes the port's frames from m, or from memory of its own.
func (p *Port) memory(m *Mem, o *Options) (err error) {
	size := FrameSize(p.dev.MTU, o.MultiBuffer)
	if o.Slots == 0 {
		o.Slots = DefaultSlots
		if o.TXOnly {
			o.Slots = SendSlots
		}
		if m == nil {
			o.Slots = FitSlots(o.Slots, 2*len(o.Queues), size)
		}
		if err = o.Validate(); err != nil { // now that there is something to compare TxSlots with
			return err
		}
	}
	need := 2 * o.Slots * len(o.Queues)
	if m == nil {
		if m, err = NewMem(need, size); err != nil {
			return err
		}
		p.ownMem = true
	}
	m.retain()
	p.mem = m
	p.frames, err = m.take(need)
	return err
}

// overhead is what a buffer needs beside the MTU: the kernel's headroom before
// a packet, an Ethernet header and two VLAN tags.
const overhead = 256 + 14 + 8

// FrameSize returns the size of frames that suits an interface: the smallest
// that takes a packet, or with multi-buffer the default.
func FrameSize(mtu int, multiBuffer bool) int {
	if !multiBuffer && mtu > DefaultFrameSize-overhead {
		return 2 * DefaultFrameSize
	}
	return DefaultFrameSize
}

func (p *Port) checkMTU(o *Options) error {
	if room := p.mem.region.BufSize() - overhead; p.dev.MTU > room && !o.MultiBuffer {
		return fmt.Errorf("%w: MTU %d, but a buffer of %d bytes takes packets of MTU %d: lower it (ip link set dev %s mtu %d), use larger frames, or multi-buffer (Linux 6.6)",
			ring.ErrTooLarge, p.dev.MTU, p.mem.region.BufSize(), room, p.dev.Name, room)
	}
	return nil
}

func maxQueue(ids []int) (m int) {
	for _, id := range ids {
		m = max(m, id)
	}
	return m
}

// rings makes the rings over the queues and fills the kernel's fill rings. What
// no ring has use for goes back to the memory.
func (p *Port) rings(o *Options) error {
	for i, q := range p.queues {
		c := ring.Config{Port: p.dev.Name, Index: i, Slots: o.Slots, Region: p.mem.region, Life: p.life,
			FD: q.fd, WakeFD: p.wakeFD, MultiSlot: o.MultiBuffer, MaxFrame: p.dev.MTU + 14 + 8}
		if !o.TXOnly {
			if err := p.receiver(c, q, p.frames[:c.Slots], o.Coalesce); err != nil {
				return err
			}
			p.frames = p.frames[c.Slots:]
		}
		c.Slots = o.sendSlots(q.mode)
		if err := p.sender(c, q, p.frames[:c.Slots]); err != nil {
			return err
		}
		p.frames = p.frames[c.Slots:]
	}
	p.mem.give(p.frames)
	p.frames = nil
	return nil
}

func (p *Port) receiver(c ring.Config, q *queue, frames []uint32, coalesce time.Duration) error {
	id, err := p.mem.ringID()
	if err != nil {
		return err
	}
	d := &receiver{q: q, mem: p.mem, dev: p.dev, id: id, granted: make([]uint32, len(frames)), gather: newCoalescer(p.dev, q.id, coalesce)}
	c.Dir, c.Driver = ring.RX, d
	r, err := ring.New(c)
	if err != nil {
		d.gather.close()
		return err
	}
	d.start(frames)
	p.rx, p.rxs = append(p.rx, r), append(p.rxs, d)
	return nil
}

func (p *Port) sender(c ring.Config, q *queue, frames []uint32) error {
	id, err := p.mem.ringID()
	if err != nil {
		return err
	}
	d := &sender{q: q, mem: p.mem, dev: p.dev, id: id, granted: frames, given: slices.Clone(frames),
		lens: make([]uint32, len(frames))}
	c.Dir, c.Driver = ring.TX, d
	r, err := ring.New(c)
	if err != nil {
		return err
	}
	for k, f := range frames {
		r.Slot(uint32(k)).Buf = f
	}
	p.tx, p.txs = append(p.tx, r), append(p.txs, d)
	return nil
}

// redirect lets packets in, once everything can take them.
func (p *Port) redirect() error {
	if p.prog == nil {
		return nil
	}
	for _, q := range p.queues {
		if err := p.prog.socks.Put(uint32(q.id), uint32(q.fd)); err != nil {
			return fmt.Errorf("map queue %d to its socket: %w", q.id, err)
		}
	}
	return nil
}

// Name returns the interface's name.
func (p *Port) Name() string { return p.dev.Name }

// RxRings returns the receive rings, one for each queue in the order they were
// asked for; none with TXOnly.
func (p *Port) RxRings() []*ring.Ring { return p.rx }

// TxRings returns the transmit rings in the same order.
func (p *Port) TxRings() []*ring.Ring { return p.tx }

// Mode tells how the port works; it is the same for all its queues.
func (p *Port) Mode() Mode { return p.queues[0].mode }

// HoldsXDP reports whether the port occupies the interface's XDP hook.
func (p *Port) HoldsXDP() bool { return p.prog != nil }

// Mem returns the memory that the port's rings are over.
func (p *Port) Mem() *Mem { return p.mem }

// Close closes the port; see [ring.Port]. The order matters: redirection ends
// and the program goes before the sockets do, and those before the memory.
// What has been handed over is given a second to leave; what is left then is
// counted as closed.
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
	if !p.life.Closed() {
		p.life.Shut()
	}
	p.life.Drain()
	for _, d := range p.rxs {
		d.gather.close()
	}
	if p.prog != nil {
		errs = append(errs, p.prog.detach(p.queues))
	}
	for i, d := range p.txs {
		d.drain(p.tx[i], drainTime)
	}
	for _, q := range p.queues {
		errs = append(errs, q.close(p.mem))
	}
	if p.wakeFD >= 0 {
		errs = append(errs, unix.Close(p.wakeFD))
	}
	if p.dev != nil {
		p.dev.Close()
	}
	if p.mem != nil {
		errs = append(errs, p.leave())
	}
	return errors.Join(errs...)
}

// leave gives the frames of the port back to its memory. With rings that
// exchanged frames with other ports, those it has now are not those it took.
func (p *Port) leave() error {
	p.mem.give(p.frames)
	for i, r := range p.rx {
		p.mem.recall(r, p.rxs[i].id, r.Tail())
	}
	for i, r := range p.tx {
		p.mem.recall(r, p.txs[i].id, p.txs[i].end)
	}
	var errs []error
	errs = append(errs, p.mem.release())
	if p.ownMem {
		errs = append(errs, p.mem.Close())
	}
	return errors.Join(errs...)
}
