package main

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/netring/netring/internal/cli"
	"github.com/netring/netring/internal/forward"
	"github.com/netring/netring/internal/netdev"
	"github.com/netring/netring/nm"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/tpacket"
	"github.com/netring/netring/ring/xdp"
)

// xdpSlots are the sizes of AF_XDP rings by the value of --profile.
func xdpSlots(profile string) int {
	return map[string]int{"throughput": xdp.DefaultSlots, "latency": 512, "lowmem": 256}[profile]
}

// parseNamed takes apart a port name with a prefix.
func parseNamed(arg string) (portSpec, error) {
	spec, err := nm.ParsePort(arg)
	if err != nil {
		return portSpec{}, &cli.UsageError{Err: err}
	}
	switch {
	case spec.Kind != nm.KindXDP && spec.Kind != nm.KindNetmap, spec.Pipe != "":
		return portSpec{}, cli.Usagef("port %q: a bridge joins interfaces: eth1, netmap:eth1, xdp:eth1 or lagg:eth1+eth2", arg)
	case spec.Flags&^nm.Exclusive != 0:
		return portSpec{}, cli.Usagef("port %q: a bridge both sends and receives: leave out what follows the /", arg)
	case spec.Select != nm.AllRings && spec.Select != nm.OneRing:
		return portSpec{}, cli.Usagef("port %q: there are no host rings: the host's stack keeps the interface; leave out ^ or *", arg)
	}
	p := portSpec{name: spec.Kind.String() + ":" + spec.Name, links: []string{spec.Name}, spec: &spec}
	if spec.Kind == nm.KindNetmap {
		p.name = spec.Name
		return p, nil
	}
	x, err := spec.XDPOptions(xdp.Options{})
	if err != nil {
		return portSpec{}, cli.Usagef("port %q: %w", arg, err)
	}
	p.xdp = &x
	return p, nil
}

// settleXDP gives the AF_XDP ports what they must have in common, as they share
// memory: whether the devices work on it themselves, multi-buffer, and the size
// of frames. What one port's name says goes for those that do not say.
func (c *config) settleXDP() error {
	var zc xdp.ZeroCopy
	var multi bool
	size := 0
	for _, p := range c.ports {
		if p.xdp == nil {
			continue
		}
		switch x := p.xdp; {
		case zc != xdp.ZeroCopyAuto && x.ZeroCopy != xdp.ZeroCopyAuto && zc != x.ZeroCopy:
			return cli.Usagef("port %s: zerocopy differs from another port's: the AF_XDP ports of a bridge share memory, so give the same for all", p.name)
		case size != 0 && x.FrameSize != 0 && size != x.FrameSize:
			return cli.Usagef("port %s: frame-size %d, another port has %d: the AF_XDP ports of a bridge share memory, so give the same for all", p.name, x.FrameSize, size)
		}
		zc, multi, size = max(zc, p.xdp.ZeroCopy), multi || p.xdp.MultiBuffer, max(size, p.xdp.FrameSize)
	}
	for _, p := range c.ports {
		if x := p.xdp; x != nil {
			x.ZeroCopy, x.MultiBuffer, x.FrameSize = zc, multi, size
			if err := x.Validate(); err != nil {
				return cli.Usagef("port %s: %w", p.name, err)
			}
		}
	}
	return nil
}

// xdpMemory makes the memory that all AF_XDP ports of the bridge share, so that
// frames move between them without a copy; nil if there is no such port. A port
// keeps it once opened: the caller closes it when all are.
func (c *config) xdpMemory(log *slog.Logger) (*xdp.Mem, error) {
	rings, size := 0, 0
	for i := range c.ports {
		p := &c.ports[i]
		if p.xdp == nil {
			continue
		}
		d, err := netdev.Look(p.links[0])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		queues, mtu := d.RxQueues(), d.MTU
		d.Close()
		if err := c.xdpQueues(p, queues); err != nil {
			return nil, err
		}
		rings += 2 * len(p.xdp.Queues)
		size = max(size, p.xdp.FrameSize)
		if p.xdp.FrameSize == 0 {
			size = max(size, xdp.FrameSize(mtu, p.xdp.MultiBuffer))
		}
	}
	if rings == 0 {
		return nil, nil
	}
	want := xdpSlots(c.profile)
	slots := xdp.FitSlots(want, rings, size)
	if slots < want {
		log.Warn("AF_XDP rings are smaller than usual, as little memory may be locked: raise ulimit -l (LimitMEMLOCK=), or grant CAP_IPC_LOCK", "slots", slots, "usual", want)
	}
	frames := 0
	for _, p := range c.ports {
		if p.xdp == nil {
			continue
		}
		if p.xdp.Slots == 0 {
			p.xdp.Slots = slots
		}
		need := 2 * p.xdp.Slots * len(p.xdp.Queues)
		if f := p.xdp.Frames; f != 0 && f < need {
			return nil, fmt.Errorf("%s: %d frames, but %d queues with rings of %d slots take %d: raise frames or lower @conf:slots", p.name, f, len(p.xdp.Queues), p.xdp.Slots, need)
		}
		frames += max(need, p.xdp.Frames)
	}
	return xdp.NewMem(frames, size)
}

// xdpQueues gives each worker one queue of the port; what arrives on others
// would not be seen.
func (c *config) xdpQueues(p *portSpec, have int) error {
	workers := c.poll.Workers
	if p.xdp.Queues != nil {
		if n := len(p.xdp.Queues); n != workers {
			return fmt.Errorf("%s: names %d queues for %d workers: each worker has one; set --workers %[2]d", p.name, n, workers)
		}
		return nil
	}
	if have != workers {
		return fmt.Errorf("%s: the interface has %d receive queues, and there are %d workers: each worker takes one queue, and what arrives on others is not seen; "+
			"set --workers %[2]d, or do ethtool -L %[4]s combined %[3]d (on a veth: rx %[3]d tx %[3]d), or choose a queue: %[1]s-0", p.name, have, workers, p.links[0])
	}
	for q := range have {
		p.xdp.Queues = append(p.xdp.Queues, q)
	}
	return nil
}

// openLink opens one interface of a port.
func (c *config) openLink(spec *portSpec, name string, m *xdp.Mem) (ring.Port, error) {
	if spec.xdp != nil {
		x := spec.xdp.Options
		if c.profile == "latency" && x.Coalesce == 0 {
			x.Coalesce = -1
		}
		return xdp.Open(name, m, x)
	}
	o, err := c.tpacketOptions(spec)
	if err != nil {
		return nil, err
	}
	return tpacket.Open(name, o)
}

// tpacketOptions are the driver's for one port.
func (c *config) tpacketOptions(spec *portSpec) (tpacket.Options, error) {
	o := c.portOptions()
	if spec.spec == nil {
		return o, nil
	}
	o, err := spec.spec.TPACKETOptions(o)
	if err != nil {
		return o, fmt.Errorf("%s: %w", spec.name, err)
	}
	return o, nil
}

// linkMode tells how a link works: its driver, and what of the driver's ways.
func (c *config) linkMode(spec *portSpec, p ring.Port) (driver, mode string) {
	switch p := p.(type) {
	case *xdp.Port:
		m := p.Mode()
		mode = m.String()
		if m.MultiBuffer {
			mode += ", multi-buffer"
		}
		return "xdp", mode
	case *tpacket.Port:
		mode = "v2"
		if o, err := c.tpacketOptions(spec); err == nil && o.Version == tpacket.V3 {
			mode = "v3"
		}
		if p.Granted().VnetLen != 0 {
			mode += ", virtio-net header"
		}
		return "tpacket", mode
	}
	return "", ""
}

// portMode is what the report says about how a port works.
type portMode struct{ driver, mode string }

// portModes tells how each port works, and says it to the log.
func (c *config) portModes(ports []forward.Port, log *slog.Logger) []portMode {
	modes := make([]portMode, len(ports))
	for i, p := range ports {
		var drivers, ways []string
		for _, l := range p.Links {
			d, m := c.linkMode(&c.ports[i], l)
			log.Debug("port open", "port", l.Name(), "driver", d, "mode", m)
			if x, ok := l.(*xdp.Port); ok {
				sayXDP(x, log)
			}
			if !slices.Contains(drivers, d) {
				drivers = append(drivers, d)
			}
			if !slices.Contains(ways, m) {
				ways = append(ways, m)
			}
		}
		modes[i] = portMode{strings.Join(drivers, "; "), strings.Join(ways, "; ")}
	}
	return modes
}

// sayXDP says what may make an AF_XDP port slow.
func sayXDP(p *xdp.Port, log *slog.Logger) {
	m := p.Mode()
	if !m.Native {
		log.Warn("AF_XDP runs in generic mode, which is slow: the driver has no native XDP, or refused it", "port", p.Name())
	}
	if m.SendBuffer < m.WantSendBuffer {
		log.Warn("send buffer could not be raised, which throttles copy mode: needs CAP_NET_ADMIN, or a larger net.core.wmem_max",
			"port", p.Name(), "bytes", m.SendBuffer, "wanted", m.WantSendBuffer)
	}
}

// closeMemory closes m, if there is any.
func closeMemory(m *xdp.Mem, err error) error {
	if m == nil {
		return err
	}
	return errors.Join(err, m.Close())
}
