package nm

import (
	"errors"
	"fmt"

	"github.com/netring/netring/internal/netdev"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/mem"
	"github.com/netring/netring/ring/tpacket"
	"github.com/netring/netring/sched"
)

// openVale opens a port of a switch: a monitor of one, an interface that is
// attached, or a virtual port. As in netmap it is an interface if there is one
// of that name.
func (d *Desc) openVale(name string, o *Options) error {
	s, space := &d.spec, o.Space
	sw, err := space.enterSwitch(s.Switch, o)
	if err != nil {
		return err
	}
	d.sw = sw
	d.undo = append(d.undo, func() error { space.leaveSwitch(sw); return nil })
	switch {
	case s.Flags&(MonitorRX|MonitorTX) != 0:
		return d.openMonitor(name)
	case isInterface(s.Name):
		return d.attach(name, o)
	case s.Option("tpacket") != nil:
		return fmt.Errorf("option tpacket: goes with an interface, and %w: %s", ring.ErrNoInterface, s.Name)
	}
	return d.openVirtual(name, o)
}

// isInterface reports whether there is an interface of that name in the network
// namespace of the calling thread.
func isInterface(name string) bool {
	if len(name) > maxIfName {
		return false
	}
	dev, err := netdev.Look(name)
	if err != nil {
		return false
	}
	dev.Close()
	return true
}

// whenFull is what becomes of frames that a port has no room for.
func whenFull(s *PortSpec) sched.Full {
	if o := s.Option("vale"); o != nil {
		if v, _ := o.Get("full"); v == sched.Backpressure.String() {
			return sched.Backpressure
		}
	}
	return sched.Drop
}

// openVirtual opens a virtual port.
func (d *Desc) openVirtual(name string, o *Options) error {
	s, sw := &d.spec, d.sw
	m, err := memConf(s)
	if err != nil {
		return err
	}
	pool, giveBack, err := o.Space.memory(s.MemID, o)
	if err != nil {
		return err
	}
	d.undo = append(d.undo, func() error { giveBack(); return nil })
	m.Names = [2]string{name + " (switch)", name}
	near, far, err := sw.pair(m, pool, o.ExtraBufs)
	if err != nil {
		return err
	}
	p, err := d.virtual(name, near, far)
	if err == nil {
		err = sw.add(p)
	}
	if err != nil {
		return errors.Join(err, far.Close(), near.Close())
	}
	d.port = far
	d.undo = append(d.undo, p.close)
	d.takeExtra(far.Pool(), o.ExtraBufs)
	return nil
}

// virtual makes the switch's side of a virtual port: the rings that the name
// selects.
func (d *Desc) virtual(name string, near, far *mem.Port) (*switchPort, error) {
	rx, err := d.selected(near.RxRings())
	if err != nil {
		return nil, err
	}
	tx, err := d.selected(near.TxRings())
	if err != nil {
		return nil, err
	}
	if d.spec.Flags&TXOnly != 0 {
		tx = nil
	}
	p := &switchPort{s: d.sw, name: d.spec.Name, as: name, near: near, far: far, drained: make(chan struct{})}
	err = p.outlet(tx, sched.Options{Full: whenFull(&d.spec)})
	p.intakes(rx)
	return p, err
}

// outlet and intakes set the rings of a port.
func (p *switchPort) outlet(tx []*ring.Ring, o sched.Options) (err error) {
	p.out.lost = p.near.TxRings()[0]
	p.out.ways, err = newWays(tx, o)
	return err
}

func (p *switchPort) intakes(rx []*ring.Ring) {
	p.in = make([]intake, len(rx))
	for i, r := range rx {
		p.in[i].rx = r
	}
}

// attach attaches an interface to the switch, for as long as the Desc is open.
func (d *Desc) attach(name string, o *Options) error {
	s, sw := &d.spec, d.sw
	switch {
	case s.Flags&(RXOnly|TXOnly) != 0:
		return errors.New("an interface on a switch sends and receives: leave /R and /T out")
	case s.MemID != 0 || o.ExtraBufs != 0:
		return errors.New("an interface on a switch has no memory to share and no extra buffers: leave @N and ExtraBufs out")
	case conf(s, "rx", "rings") > 1 || conf(s, "tx", "rings") > 1:
		return errors.New("an interface on a switch has one ring pair: leave rings out of @conf")
	}
	t := o.TPACKET
	t.RxQueues, t.TxQueues = 1, 1
	t, err := s.TPACKETOptions(t)
	if err != nil {
		return err
	}
	near, err := tpacket.Open(s.Name, t)
	if err != nil {
		return err
	}
	q := sched.Defaults()
	q.Full, q.Clock = whenFull(s), &sw.clock
	p := &switchPort{s: sw, name: s.Name, as: name, near: near, drained: make(chan struct{})}
	err = p.outlet(near.TxRings(), q)
	p.intakes(near.RxRings())
	if err == nil {
		err = sw.add(p)
	}
	if err != nil {
		return errors.Join(err, near.Close())
	}
	d.attached = true
	d.port = near
	d.undo = append(d.undo, p.close)
	return nil
}

// openMonitor opens a monitor of a virtual port.
func (d *Desc) openMonitor(name string) error {
	s, sw := &d.spec, d.sw
	o, err := memConf(s)
	if err != nil {
		return err
	}
	if o.Rings > 1 || s.MemID != 0 {
		return errors.New("a monitor has one ring and memory of its own: leave rings and @N out")
	}
	o.Names = [2]string{name + " (switch)", name}
	near, far, err := sw.pair(o, nil, 0)
	if err != nil {
		return err
	}
	m := &monitor{s: sw, as: name, near: near, far: far, tx: near.TxRings()[0]}
	if err := sw.addMonitor(m, s.Name, s.Flags); err != nil {
		return errors.Join(err, far.Close(), near.Close())
	}
	d.port = far
	d.undo = append(d.undo, m.close)
	return nil
}

// memConf are the options of a pair that the port's name asks for.
func memConf(s *PortSpec) (o mem.Options, err error) {
	for _, v := range []struct {
		what string
		to   *int
	}{{"rings", &o.Rings}, {"slots", &o.Slots}} {
		if *v.to = conf(s, "tx", v.what); *v.to != conf(s, "rx", v.what) {
			return o, fmt.Errorf("a port in memory has as many transmit as receive %s: give both with @conf:%[1]s=", v.what)
		}
	}
	return o, nil
}
