package nm

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/mem"
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
	case s.Kind == KindVale || s.Kind == KindLagg || s.Kind == KindPcap:
		return fmt.Errorf("%s: ports: %w by Open", s.Kind, errors.ErrUnsupported)
	}
	return nil
}

// conf returns a count of the conf option: the direction's own key, or the
// common one; 0 if neither is there.
func conf(s *PortSpec, dir, what string) int {
	o := s.Option("conf")
	if o == nil {
		return 0
	}
	for _, key := range []string{dir + "-" + what, what} {
		if v, ok := o.Get(key); ok {
			n, _ := strconv.Atoi(v) // the parser has checked it
			return n
		}
	}
	return 0
}

// set overrides *p by n unless n is 0.
func set(p *int, n int) {
	if n != 0 {
		*p = n
	}
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
	s, t := &d.spec, o.TPACKET
	set(&t.RxQueues, conf(s, "rx", "rings"))
	set(&t.TxQueues, conf(s, "tx", "rings"))
	set(&t.RxSlots, conf(s, "rx", "slots"))
	set(&t.TxSlots, conf(s, "tx", "slots"))
	if opt := s.Option("tpacket"); opt != nil {
		tpacketOptions(&t, opt)
	}
	if s.Select == OneRing {
		if t.RxQueues > 1 || t.TxQueues > 1 || t.Filter != nil {
			return errors.New("one ring (-N) goes neither with several rings nor with a filter")
		}
		t.Filter = queueFilter(s.Ring)
	}
	switch {
	case s.Flags&(MonitorRX|MonitorTX) != 0:
		t.TxQueues = -1
		t.Outgoing = s.Flags&MonitorTX != 0
		if s.Flags&MonitorRX == 0 {
			t.Filter = outgoingFilter()
		}
	case s.Flags&RXOnly != 0:
		t.TxQueues = -1
	case s.Flags&TXOnly != 0:
		t.RxQueues = -1
	}
	p, err := tpacket.Open(s.Name, t)
	if err != nil {
		return err
	}
	d.port = p
	d.undo = append(d.undo, p.Close)
	return nil
}

// tpacketOptions takes over the values of a tpacket option, which the parser
// has checked.
func tpacketOptions(t *tpacket.Options, opt *Option) {
	for _, kv := range opt.Keys {
		switch kv.Key {
		case "version":
			t.Version = tpacket.Version(kv.Value[0] - '0')
		case "block-size":
			t.BlockSize, _ = strconv.Atoi(kv.Value)
		case "fanout":
			t.Fanout = map[string]tpacket.Fanout{"hash": tpacket.FanoutHash, "lb": tpacket.FanoutLB, "cpu": tpacket.FanoutCPU,
				"qm": tpacket.FanoutQM, "rollover": tpacket.FanoutRollover}[kv.Value]
		case "vnet":
			t.NoVnet = kv.Value == "off"
		case "bypass":
			t.QdiscBypass = kv.Value == "on"
		case "promisc":
			t.NoPromisc = kv.Value == "off"
		case "profile":
			t.Profile = map[string]tpacket.Profile{"throughput": tpacket.Throughput, "latency": tpacket.Latency, "lowmem": tpacket.LowMemory}[kv.Value]
		}
	}
}

// queueFilter admits what arrived on hardware queue n. The kernel records
// queue n as n+1; frames of devices without queues have 0 and are queue 0's.
func queueFilter(n int) []bpf.RawInstruction {
	const keep = 1 << 18
	prog := []bpf.Instruction{bpf.LoadExtension{Num: bpf.ExtQueue}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(n + 1), SkipTrue: 1},
		bpf.RetConstant{Val: 0}, bpf.RetConstant{Val: keep}}
	if n == 0 {
		prog = []bpf.Instruction{bpf.LoadExtension{Num: bpf.ExtQueue}, bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: 1, SkipTrue: 1},
			bpf.RetConstant{Val: keep}, bpf.RetConstant{Val: 0}}
	}
	raw, _ := bpf.Assemble(prog) // constant instructions always assemble
	return raw
}

// outgoingFilter admits what the host sends.
func outgoingFilter() []bpf.RawInstruction {
	raw, _ := bpf.Assemble([]bpf.Instruction{bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PACKET_OUTGOING, SkipTrue: 1}, bpf.RetConstant{Val: 0}, bpf.RetConstant{Val: 1 << 18}})
	return raw
}

func (d *Desc) openXDP(o *Options) error {
	s, x := &d.spec, o.XDP
	set(&x.Slots, conf(s, "rx", "slots"))
	if s.Select == OneRing {
		x.Queues = []int{s.Ring}
	}
	x.TXOnly = x.TXOnly || s.Flags&TXOnly != 0
	m := o.XDPMem
	if opt := s.Option("xdp"); opt != nil {
		if err := d.xdpOptions(&x, &m, opt); err != nil {
			return err
		}
	}
	p, err := xdp.Open(s.Name, m, x)
	if err != nil {
		return err
	}
	d.port = p
	d.undo = append(d.undo, p.Close)
	return nil
}

func (d *Desc) xdpOptions(x *xdp.Options, m **xdp.Mem, opt *Option) error {
	frames, size := 0, 0
	for _, kv := range opt.Keys {
		switch kv.Key {
		case "mode":
			x.Attach = map[string]xdp.Attach{"auto": xdp.AttachAuto, "native": xdp.AttachNative, "generic": xdp.AttachGeneric}[kv.Value]
		case "zerocopy":
			x.ZeroCopy = map[string]xdp.ZeroCopy{"auto": xdp.ZeroCopyAuto, "force": xdp.ZeroCopyForce, "never": xdp.ZeroCopyNever}[kv.Value]
		case "multibuf":
			x.MultiBuffer = kv.Value == "on"
		case "promisc":
			x.NoPromisc = kv.Value == "off"
		case "frames":
			frames, _ = strconv.Atoi(kv.Value)
		case "frame-size":
			size, _ = strconv.Atoi(kv.Value)
		}
	}
	switch {
	case frames == 0 && size == 0:
		return nil
	case *m != nil:
		return errors.New("frames and frame-size go with memory of the port's own, not with shared memory")
	case frames == 0:
		return errors.New("frame-size needs frames")
	}
	own, err := xdp.NewMem(frames, size)
	if err != nil {
		return err
	}
	*m = own
	d.undo = append(d.undo, own.Close)
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
