package main

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/netring/netring/internal/forward"
	"github.com/netring/netring/internal/link"
	"github.com/netring/netring/internal/offload"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/tpacket"
)

// profiles are the values of --profile.
var profiles = map[string]tpacket.Profile{
	"throughput": tpacket.Throughput, "latency": tpacket.Latency, "lowmem": tpacket.LowMemory,
}

// latencyLinger is --linger with --profile latency.
const latencyLinger = 20 * time.Millisecond

// portOptions are the driver's for the bridge's ports.
func (c *config) portOptions() tpacket.Options {
	o := tpacket.Options{
		Profile: profiles[c.profile], RxQueues: c.poll.Workers, TxQueues: c.poll.Workers,
		NoVnet: c.vnet == "off", QdiscBypass: c.qdiscBypass,
	}
	if c.rx == "v3" {
		o.Version = tpacket.V3
	}
	return o
}

// openPorts opens the interfaces.
func openPorts(c *config, log *slog.Logger) (ports []forward.Port, err error) {
	shared, err := c.xdpMemory(log)
	if err != nil {
		return nil, err
	}
	defer func() { err = closeMemory(shared, err) }()
	for i := range c.ports {
		spec := &c.ports[i]
		port := forward.Port{Name: spec.name, Group: spec.group}
		for _, name := range spec.links {
			p, err := c.openLink(spec, name, shared)
			if err != nil {
				return nil, errors.Join(err, closePorts(append(ports, port)))
			}
			port.Links = append(port.Links, p)
		}
		ports = append(ports, port)
	}
	return ports, nil
}

func closePorts(ports []forward.Port) error {
	var errs []error
	for _, p := range ports {
		for _, l := range p.Links {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}

// offloads are the changes made to the interfaces' offloads.
type offloads []*offload.Change

// prepareOffloads looks at what would break traffic through the interfaces,
// and switches it off or refuses.
func prepareOffloads(c *config, log *slog.Logger) (done offloads, err error) {
	for _, p := range c.ports {
		for _, name := range p.links {
			if err := done.prepare(name, c.offloadMode(&p), c.offload == "off", log); err != nil {
				return nil, errors.Join(err, done.restore())
			}
		}
	}
	return done, nil
}

// offloadMode is how the port's frames are carried.
func (c *config) offloadMode(p *portSpec) offload.Mode {
	switch {
	case p.xdp != nil:
		return offload.ModeXDP
	case c.vnet == "off":
		return offload.ModePlain
	}
	return offload.ModeVnet
}

// prepare is prepareOffloads for one interface; with fix it may change it.
func (o *offloads) prepare(name string, mode offload.Mode, fix bool, log *slog.Logger) error {
	report, err := offload.Check(name, mode)
	if err != nil {
		return err
	}
	if report.Command() != "" {
		if !fix {
			return fmt.Errorf("%s\n  or let the bridge do it while it runs: --offload off", report.String())
		}
		var change *offload.Change
		if change, report, err = offload.Fix(name, mode); err != nil {
			return err
		}
		*o = append(*o, change)
		log.Info("switched offloads off while running", "port", name, "features", change.Turned())
	}
	for _, p := range report.Problems {
		// Only the other end can tell whether it has been seen to.
		log.Warn("offloads of the other end may break traffic", "port", name, "why", p.Why, "remedy", p.Remedy)
	}
	return nil
}

// restore puts everything back.
func (o offloads) restore() error {
	var errs []error
	for _, c := range o {
		errs = append(errs, c.Restore())
	}
	return errors.Join(errs...)
}

// openEnd opens one end of the demonstration.
func openEnd(name string, d ring.Dir) (ring.Port, error) {
	o := tpacket.Options{NoVnet: true, RxQueues: -1}
	if d == ring.RX {
		o.RxQueues, o.TxQueues = 1, -1
	}
	return tpacket.Open(name, o)
}

// linkInterval is how often links are looked at besides what the kernel tells
// by itself.
const linkInterval = 500 * time.Millisecond

// watchLinks tells the bridge when its links go down, come up or are deleted.
func watchLinks(b *forward.Bridge, c *config) (*link.Watcher, error) {
	interval := linkInterval
	for _, p := range c.ports {
		if p.group != nil {
			interval = 0 // others wait to stand in: the watcher's default is quick
		}
	}
	return b.Watch(c.links(), interval)
}
