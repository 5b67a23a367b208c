package tpacket

import (
	"errors"
	"fmt"
	"os"
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

// receiver sets up s as receive ring i. The order keeps frames out until all
// is in place: ring, drop-all filter, bind, fanout.
func (p *Port) receiver(s *sock, i int, group *int) error {
	o := &p.opts
	if err := s.version(o.Version); err != nil {
		return err
	}
	if err := s.vnet(min(o.VnetLen, kernelVnet)); err != nil {
		return err
	}
	if err := p.receiveSettings(s); err != nil {
		return err
	}
	if err := p.receiveMemory(s); err != nil {
		return err
	}
	if err := attach(s.fd, dropAll()); err != nil {
		return err
	}
	if err := s.bind(p.dev.Index, unix.ETH_P_ALL); err != nil {
		return err
	}
	if o.RxQueues > 1 {
		var err error
		if *group, err = s.join(*group, o); err != nil {
			return err
		}
	}
	return p.addReceiver(s, i)
}

func (p *Port) receiveSettings(s *sock) error {
	o := &p.opts
	if !o.Outgoing {
		if err := s.set(unix.PACKET_IGNORE_OUTGOING, 1, "PACKET_IGNORE_OUTGOING", "4.20"); err != nil {
			return err
		}
	}
	if o.Timestamp == TimeHardware {
		if err := s.set(unix.PACKET_TIMESTAMP, unix.SOF_TIMESTAMPING_RAW_HARDWARE, "PACKET_TIMESTAMP", "2.6.36"); err != nil {
			return err
		}
	}
	if o.Version == V2 {
		// Super-frames larger than a frame of the ring are queued whole.
		s.buffer(unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, largeBufs*largeLen*2)
		return s.set(unix.PACKET_COPY_THRESH, 1, "PACKET_COPY_THRESH", "2.2")
	}
	return nil
}

// receiveMemory creates and maps the ring.
func (p *Port) receiveMemory(s *sock) error {
	o, page := &p.opts, os.Getpagesize()
	if o.Version == V3 {
		need := max(p.dev.MTU+ethHdr+vlanTag, largestTCP) + o.VnetLen
		g, err := solveV3(need, o.BlockSize, o.rxBytes(), page)
		if err != nil {
			return err
		}
		if o.RxSlots == 0 {
			o.RxSlots = 1024
		}
		return s.rings(unix.PACKET_RX_RING, g, v3MinBlock(need, page), o.BlockTimeout, o.FlowHash)
	}
	need := frameNeed(p.dev.MTU, o.VnetLen)
	if o.RxSlots == 0 {
		one, err := solveV2(need, 1<<10, page, maxBlockV2)
		if err != nil {
			return err
		}
		for o.RxSlots = 64; o.RxSlots*2*one.FrameSize <= o.rxBytes(); {
			o.RxSlots *= 2
		}
	}
	g, err := solveV2(need, o.RxSlots, page, maxBlockV2)
	if err != nil {
		return err
	}
	if err := s.rings(unix.PACKET_RX_RING, g, page, 0, false); err != nil {
		return err
	}
	o.RxSlots = s.geo.Frames
	return nil
}

// maxBlockV2 is the size of block asked for first: large enough that few
// system resources go into the ring's page vector, small enough that a
// fragmented machine still has such pieces.
const maxBlockV2 = 1 << 18

func (p *Port) addReceiver(s *sock, i int) error {
	o := &p.opts
	stride := s.geo.FrameSize
	if s.v3 {
		stride = s.geo.BlockSize
	}
	region, err := ring.NewRegion(s.mem, stride)
	if err != nil {
		return err
	}
	base := rxBase{sock: s, dev: p.dev, mem: s.mem, vnet: uint32(o.VnetLen)}
	var drv ring.Driver
	if s.v3 {
		drv = newRx3(base, o.RxSlots, s.geo.BlockSize, s.geo.Blocks)
	} else {
		d := newRx2(base, s.geo.Frames, s.geo.FrameSize)
		if d.large != nil {
			region.WithLarge(d.large)
		}
		drv = d
	}
	// The statistics start at zero with the port.
	var old ring.Counters
	if err := s.statistics(&old); err != nil {
		return fmt.Errorf("socket statistics: %w", err)
	}
	r, err := ring.New(ring.Config{Port: p.dev.Name, Index: i, Dir: ring.RX, Slots: o.RxSlots, Region: region,
		Life: p.life, Driver: drv, VnetLen: o.VnetLen, FD: s.fd, WakeFD: p.wakeFD})
	if err != nil {
		return err
	}
	p.rx, p.regs = append(p.rx, r), append(p.regs, region)
	return nil
}

// transmitter sets up s as transmit ring i.
func (p *Port) transmitter(s *sock, i int) error {
	o := &p.opts
	if err := p.transmitSettings(s); err != nil {
		return err
	}
	g, err := solveV2(txNeed(p.dev.MTU, o.VnetLen), o.TxSlots, os.Getpagesize(), maxBlockV2)
	if err != nil {
		return err
	}
	if err := s.rings(unix.PACKET_TX_RING, g, os.Getpagesize(), 0, false); err != nil {
		return err
	}
	o.TxSlots = s.geo.Frames
	if err := s.bind(p.dev.Index, 0); err != nil {
		return err
	}
	return p.addTransmitter(s, i)
}

// transmitSettings are the settings of a transmit ring's socket.
func (p *Port) transmitSettings(s *sock) error {
	o := &p.opts
	if err := s.version(V2); err != nil {
		return err
	}
	if err := s.vnet(o.VnetLen); err != nil {
		return err
	}
	if err := s.set(unix.PACKET_LOSS, 1, "PACKET_LOSS", "2.6.31"); err != nil {
		return err
	}
	if o.QdiscBypass {
		if err := s.set(unix.PACKET_QDISC_BYPASS, 1, "PACKET_QDISC_BYPASS", "3.14"); err != nil {
			return err
		}
	}
	// Each packet in flight counts with its bookkeeping.
	s.buffer(unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, max(o.TxSlots*4096, 4<<20))
	return nil
}

// past opens a second socket for large frames where those are better not sent
// from the ring: with super-frames (so with the virtio-net header), on a device
// without a queue, which is to say without hardware.
func (p *Port) past() (func([]byte) unix.Errno, error) {
	o := &p.opts
	if o.VnetLen == 0 || p.handed || netdev.Qdisc(p.dev.Index) != "noqueue" {
		return nil, nil
	}
	s, err := openSock()
	if err != nil {
		return nil, err
	}
	p.extra = append(p.extra, s)
	if err := s.vnet(o.VnetLen); err != nil {
		return nil, err
	}
	if o.QdiscBypass {
		if err := s.set(unix.PACKET_QDISC_BYPASS, 1, "PACKET_QDISC_BYPASS", "3.14"); err != nil {
			return nil, err
		}
	}
	s.buffer(unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, 16<<20)
	fd := s.fd
	return func(frame []byte) unix.Errno { return send(fd, frame) }, s.bind(p.dev.Index, 0)
}

func (p *Port) addTransmitter(s *sock, i int) error {
	o := &p.opts
	region, err := ring.NewRegion(s.mem, s.geo.FrameSize)
	if err != nil {
		return err
	}
	d := newTx(s, p.dev, s.mem, s.geo, o.VnetLen)
	d.most = uint32(p.dev.MTU + ethHdr)
	if !p.handed {
		d.remake = func() error { return p.remake(s) }
	}
	if d.direct, err = p.past(); err != nil {
		return fmt.Errorf("socket for large frames: %w", err)
	}
	if d.direct != nil {
		d.large = ring.NewLarge(largeBufs, largeLen)
		region.WithLarge(d.large)
	}
	r, err := ring.New(ring.Config{Port: p.dev.Name, Index: i, Dir: ring.TX, Slots: s.geo.Frames, Region: region,
		Life: p.life, Driver: d, VnetLen: o.VnetLen, Offset: txOffset + o.VnetLen,
		MaxFrame: min(p.dev.MTU+ethHdr+vlanTag, ring.MaxFrame), FD: s.fd, WakeFD: p.wakeFD})
	if err != nil {
		return err
	}
	for k := range uint32(s.geo.Frames) {
		*r.Slot(k) = ring.Slot{Buf: k, Off: txOffset + uint32(o.VnetLen)}
	}
	p.tx, p.txs, p.regs = append(p.tx, r), append(p.txs, d), append(p.regs, region)
	return nil
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
