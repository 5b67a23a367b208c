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
	// Space is where names of pipes, switches and memory regions live; nil
	// for the process's own.
	Space *Space
	// TPACKET and XDP are where the drivers' options start from; the port's
	// name overrides them.
	TPACKET tpacket.Options
	XDP     xdp.Options
	// PcapWrite makes a pcap: port write its file instead of reading it.
	PcapWrite bool
	// Switch is for the open that makes a vale switch.
	Switch SwitchOptions
	// BufSize is the bytes of a buffer of a pipe or of a switch, the 64 of
	// headroom among them, for the open that makes it; 0 for 2048. Longer
	// frames take several slots.
	BufSize int
	// ExtraBufs asks a pipe or a vale port for buffers beyond those in its
	// slots; see [Desc.ExtraBufs].
	ExtraBufs int
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
	if err := possible(&spec, &o); err != nil {
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
	case spec.Kind == KindVale:
		err = d.openVale(name, &o)
	case spec.Kind == KindLagg:
		err = d.openLagg(name, &o)
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
func possible(s *PortSpec, o *Options) error {
	monitor := s.Flags & (MonitorRX | MonitorTX)
	switch {
	case s.Select == HostRings || s.Select == OneHostRing || s.Select == AllAndHost:
		return fmt.Errorf("host rings: %w: the host's stack keeps the interface; open it without ^ or *", errors.ErrUnsupported)
	case s.Flags&MonitorZC != 0:
		return fmt.Errorf("zero-copy monitor: %w: use /r or /t", errors.ErrUnsupported)
	case monitor != 0 && s.Pipe != "":
		return fmt.Errorf("monitor: %w: the ends of a pipe hand frames over by themselves, so that nobody in between could copy them; use a vale switch", errors.ErrUnsupported)
	case monitor != 0 && s.Kind == KindXDP:
		return fmt.Errorf("monitor: %w: AF_XDP takes frames from the kernel before anybody could copy them; netmap:%s/t sees what the host sends", errors.ErrUnsupported, s.Name)
	case monitor != 0 && s.Flags&TXOnly != 0:
		return errors.New("a monitor only receives: leave /T out")
	case o.ExtraBufs != 0 && s.Pipe == "" && s.Kind != KindVale:
		return errors.New("extra buffers go with pipes and vale ports: others have no memory to take them from")
	case o.BufSize != 0 && s.Pipe == "" && s.Kind != KindVale:
		return errors.New("a buffer size goes with pipes and vale ports: others bring their own memory")
	case o.ExtraBufs < 0 || o.ExtraBufs > maxExtra:
		return fmt.Errorf("%d extra buffers: must be between 0 and %d", o.ExtraBufs, maxExtra)
	case !o.Switch.isZero() && (s.Kind != KindVale || s.Pipe != ""):
		return errors.New("options of a switch go with vale ports")
	}
	return nil
}

// maxExtra bounds Options.ExtraBufs.
const maxExtra = 1 << 20

// openPipe opens an end of a pipe. That of a switch (vale0:a{1) has its memory.
func (d *Desc) openPipe(o *Options) error {
	s, space := &d.spec, o.Space
	m, err := memConf(s)
	if err != nil {
		return err
	}
	pool, giveBack, err := space.memory(s.MemID, o)
	if err != nil {
		return err
	}
	d.undo = append(d.undo, func() error { giveBack(); return nil })
	m.BufSize, m.Extra = o.BufSize, 2*o.ExtraBufs // as many for either end
	prefix := s.Kind.String() + ":"
	build := func() (a, b *mem.Port, err error) {
		if m.Pool = pool; pool != nil {
			m.Extra = 0
		}
		return mem.Pair(m)
	}
	if s.Kind == KindVale {
		prefix = s.Switch + ":"
		sw, err := space.enterSwitch(s.Switch, o)
		if err != nil {
			return err
		}
		d.undo = append(d.undo, func() error { space.leaveSwitch(sw); return nil })
		build = func() (a, b *mem.Port, err error) {
			m.BufSize, m.Extra = 0, 0
			return sw.pair(m, pool, 2*o.ExtraBufs)
		}
	}
	key := prefix + s.Name
	m.Names = [2]string{key + "{" + s.Pipe, key + "}" + s.Pipe}
	p, closeEnd, err := space.end(m.Names[0], s.Slave, build)
	if err != nil {
		return err
	}
	d.port = p
	d.undo = append(d.undo, closeEnd)
	d.takeExtra(p.Pool(), o.ExtraBufs)
	return nil
}

// takeExtra takes extra buffers and sees to it that they are given back.
func (d *Desc) takeExtra(pool *mem.Pool, n int) {
	if n == 0 {
		return
	}
	d.extra = make([]uint32, n)
	d.extra = d.extra[:pool.Take(d.extra)]
	d.undo = append(d.undo, func() error { return pool.Give(d.extra...) })
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

// bind takes the rings of the opened port that the name selects. An interface
// selects its ring when it is opened; one on a switch has none for the program.
func (d *Desc) bind() (err error) {
	if d.attached {
		return nil
	}
	if d.spec.Flags&TXOnly == 0 {
		if d.rx, err = d.selected(d.port.RxRings()); err != nil {
			return err
		}
	}
	if d.spec.Flags&(RXOnly|MonitorRX|MonitorTX) == 0 {
		d.tx, err = d.selected(d.port.TxRings())
	}
	return err
}

// selected are those of a port's rings that the name selects.
func (d *Desc) selected(r []*ring.Ring) ([]*ring.Ring, error) {
	inMemory := d.spec.Pipe != "" || d.spec.Kind == KindVale
	if d.spec.Select != OneRing || !inMemory {
		return r, nil
	}
	if d.spec.Ring >= len(r) {
		return nil, fmt.Errorf("ring %d: the port has rings 0 to %d; more with @conf:rings=", d.spec.Ring, len(r)-1)
	}
	return r[d.spec.Ring : d.spec.Ring+1], nil
}
