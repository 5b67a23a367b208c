package tpacket

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/netdev"
	"github.com/netring/netring/ring"
)

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
		d.remake = func() (successor, error) { return p.remake(s) }
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
