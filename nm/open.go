package nm

import (
	"errors"
	"fmt"

	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/mem"
	"github.com/netring/netring/ring/pcap"
	"github.com/netring/netring/ring/tpacket"
	"github.com/netring/netring/ring/xdp"
)

// Options for [Open], beside what the port's name says. The zero value is
// valid.
type Options struct {
	// Space is where names of pipes and memory regions live; nil for the
	// process's own.
	Space *Space
	// TPACKET and XDP are where the drivers' options start from; the port's
	// name overrides them.
	TPACKET tpacket.Options
	XDP     xdp.Options
	// PcapWrite makes a pcap: port write its file instead of reading it.
	PcapWrite bool
	// XDPMem is memory for AF_XDP ports to share, so that frames move between
	// them without a copy; nil for memory of the port's own.
	XDPMem *xdp.Mem
}

// Open opens a port by its name; see [ParsePort]. Interfaces are looked up in
// the network namespace of the calling thread. The errors are those of
// [ParsePort], of the drivers, and ErrBusy.
func Open(name string, o Options) (*Desc, error) {
	spec, err := ParsePort(name)
	if err != nil {
		return nil, err
	}
	d, err := open(name, spec, o)
	if err != nil {
		return nil, fmt.Errorf("nm: open %s: %w", name, err)
	}
	return d, nil
}

func open(name string, spec PortSpec, o Options) (d *Desc, err error) {
	if o.Space == nil {
		o.Space = &process
	}
	if err := possible(&spec); err != nil {
		return nil, err
	}
	key := spec.Kind.String() + ":" + spec.Switch + ":" + spec.Name
	if spec.Pipe != "" {
		key += fmt.Sprintf("{%s %v", spec.Pipe, spec.Slave)
	}
	letGo, err := o.Space.hold(key, name, spec.Flags&Exclusive != 0)
	if err != nil {
		return nil, err
	}
	d = &Desc{spec: spec, undo: []func() error{func() error { letGo(); return nil }}}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
			d = nil
		}
	}()
	switch {
	case spec.Pipe != "":
		err = d.openPipe(&o)
	case spec.Kind == KindXDP:
		err = d.openXDP(&o)
	case spec.Kind == KindPcap:
		err = d.openPcap(&o)
	default:
		err = d.openTPACKET(&o)
	}
	if err != nil {
		return d, err
	}
	return d, d.bind()
}

// possible refuses what the grammar has and no driver here does.
func possible(s *PortSpec) error {
	monitor := s.Flags & (MonitorRX | MonitorTX)
	switch {
	case s.Select == HostRings || s.Select == OneHostRing || s.Select == AllAndHost:
		return fmt.Errorf("host rings: %w: the host's stack keeps the interface; open it without ^ or *", errors.ErrUnsupported)
	case s.Flags&MonitorZC != 0:
		return fmt.Errorf("zero-copy monitor: %w: use /r or /t", errors.ErrUnsupported)
	case monitor != 0 && (s.Kind != KindNetmap || s.Pipe != ""):
		return fmt.Errorf("monitor: %w: only interfaces through netmap: can be monitored", errors.ErrUnsupported)
	case monitor != 0 && s.Flags&TXOnly != 0:
		return errors.New("a monitor only receives: leave /T out")
	case s.Kind == KindVale || s.Kind == KindLagg:
		return fmt.Errorf("%s: ports: %w by Open", s.Kind, errors.ErrUnsupported)
	}
	return nil
}

func (d *Desc) openPipe(o *Options) error {
	s := &d.spec
	pool, giveBack, err := o.Space.memory(s.MemID)
	if err != nil {
		return err
	}
	d.undo = append(d.undo, func() error { giveBack(); return nil })
	key := s.Name + "{" + s.Pipe
	p, closeEnd, err := o.Space.end(key, s.Slave, func() (a, b *mem.Port, err error) {
		return mem.Pair(mem.Options{Names: [2]string{"netmap:" + s.Name + "{" + s.Pipe, "netmap:" + s.Name + "}" + s.Pipe},
			Rings: conf(s, "tx", "rings"), Slots: conf(s, "tx", "slots"), Pool: pool})
	})
	if err != nil {
		return err
	}
	d.port = p
	d.undo = append(d.undo, closeEnd)
	return nil
}

func (d *Desc) openTPACKET(o *Options) error {
	t, err := d.spec.TPACKETOptions(o.TPACKET)
	if err != nil {
		return err
	}
	p, err := tpacket.Open(d.spec.Name, t)
	if err != nil {
		return err
	}
	d.port = p
	d.undo = append(d.undo, p.Close)
	return nil
}

func (d *Desc) openXDP(o *Options) error {
	x, err := d.spec.XDPOptions(o.XDP)
	if err != nil {
		return err
	}
	m := o.XDPMem
	switch {
	case x.Frames == 0 && x.FrameSize == 0:
	case m != nil:
		return errors.New("frames and frame-size go with memory of the port's own, not with shared memory")
	case x.Frames == 0:
		return errors.New("frame-size needs frames")
	default:
		if m, err = xdp.NewMem(x.Frames, x.FrameSize); err != nil {
			return err
		}
		d.undo = append(d.undo, m.Close)
	}
	p, err := xdp.Open(d.spec.Name, m, x.Options)
	if err != nil {
		return err
	}
	d.port = p
	d.undo = append(d.undo, p.Close)
	return nil
}

// openPcap opens a capture file: one receive ring that brings its frames, or
// one transmit ring that writes it.
func (d *Desc) openPcap(o *Options) error {
	c := pcap.Options{Read: d.spec.Name}
	if o.PcapWrite {
		c = pcap.Options{Write: d.spec.Name}
	}
	p, err := pcap.Open(c)
	if err != nil {
		return err
	}
	d.port = p
	d.undo = append(d.undo, p.Close)
	return nil
}

// bind takes the rings of the opened port that the name selects.
func (d *Desc) bind() error {
	if d.spec.Flags&TXOnly == 0 {
		d.rx = d.port.RxRings()
	}
	if d.spec.Flags&RXOnly == 0 {
		d.tx = d.port.TxRings()
	}
	// Interfaces select their ring when they are opened; a pipe has them all.
	if d.spec.Select == OneRing && d.spec.Pipe != "" {
		one := func(r []*ring.Ring) ([]*ring.Ring, error) {
			if r == nil {
				return nil, nil
			}
			if d.spec.Ring >= len(r) {
				return nil, fmt.Errorf("ring %d: the port has rings 0 to %d", d.spec.Ring, len(r)-1)
			}
			return r[d.spec.Ring : d.spec.Ring+1], nil
		}
		var err error
		if d.rx, err = one(d.rx); err != nil {
			return err
		}
		if d.tx, err = one(d.tx); err != nil {
			return err
		}
	}
	return nil
}
