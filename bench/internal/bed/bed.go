//go:build linux

// Package bed makes the network that the benchmarks run in, and samples it.
//
//	gen            dut             sink
//	g0 <--veth--> d0   d1 <--veth--> s0
//	10.99.0.1     (no address)      10.99.0.2
//
// A veth has no hardware: what one end sends is received by the other in
// softirq on the sender's core, in the sender's time. With the source on one
// core and the device under test on the other, the kernel's receive work at d0
// (the copy into a ring, or bridging) is done on the source's core unless RPS
// moves it, and the device's core also pays for the sink at s0.
package bed

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/safchain/ethtool"

	"github.com/netring/netring/internal/netlab"
)

// Addresses of the two ends.
const (
	GenIP, SinkIP   = "10.99.0.1", "10.99.0.2"
	GenIP6, SinkIP6 = "fd99::1", "fd99::2"
)

// Options of a bed; the zero value is one link with the kernel's defaults.
type Options struct {
	// Lanes is the number of links between dut and sink, d1-s0, d2-s1, ...;
	// 0 for 1.
	Lanes int
	// Drop discards what reaches the sink by XDP, at the least cost; the
	// interface's counters count it, and no end has an address, so that no
	// stack adds frames of its own. Without it the ends have addresses.
	Drop bool
	// DropTC does so at the entry to the stack instead of by XDP. UDP
	// segmentation at the sink's links is switched off, so that their senders'
	// kernel cuts super-frames, as it does before an XDP sink.
	DropTC bool
	// Bare gives no addresses: the caller puts more behind the sink.
	Bare bool
	// RPS moves the receive softirq of dut's interfaces to the cores of this
	// mask; with 0 it stays where it is raised.
	RPS uint64
	// NoSegmentation switches segmentation offload and GRO off everywhere.
	NoSegmentation bool
}

// Bed is the network. Close takes it down with all that runs in it; so does
// the end of the process, in whatever way.
type Bed struct {
	Gen, DUT, Sink *netlab.NS

	lab     *netlab.Lab
	options Options
	links   []end
	drops   []*drop
}

type end struct {
	ns   *netlab.NS
	name string
}

func mac(last byte) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, last} }

// New makes the network.
func New(o Options) (*Bed, error) {
	lab, err := netlab.New("gen", "dut", "sink")
	if err != nil {
		return nil, err
	}
	b := &Bed{lab: lab, options: o, Gen: lab.NS("gen"), DUT: lab.NS("dut"), Sink: lab.NS("sink")}
	if err := b.build(o); err != nil {
		return nil, errors.Join(fmt.Errorf("make the network: %w", err), b.Close())
	}
	return b, nil
}

func (b *Bed) build(o Options) error {
	if err := b.veth(b.Gen, "g0", mac(1), b.DUT, "d0", mac(2), o); err != nil {
		return err
	}
	for i := range max(o.Lanes, 1) {
		d, s := "d"+strconv.Itoa(i+1), "s"+strconv.Itoa(i)
		if err := b.veth(b.DUT, d, mac(byte(0x13+0x10*i)), b.Sink, s, mac(byte(0x04+0x10*i)), o); err != nil {
			return err
		}
		if err := b.drop(d, s, o); err != nil {
			return err
		}
	}
	if o.RPS != 0 {
		for _, l := range b.links {
			if l.ns == b.DUT {
				if err := l.ns.RPS(l.name, o.RPS); err != nil {
					return err
				}
			}
		}
	}
	if !o.Drop && !o.DropTC && !o.Bare {
		return b.Address(b.Sink, "s0")
	}
	return nil
}

// drop puts the sink at s, the far end of d.
func (b *Bed) drop(d, s string, o Options) error {
	attach := dropXDP
	switch {
	case o.DropTC:
		attach = dropTC
		if err := b.DUT.Offload(d, map[string]bool{"tx-udp-segmentation": false}); err != nil {
			return err
		}
	case !o.Drop:
		return nil
	}
	p, err := attach(b.Sink, s)
	if err != nil {
		return err
	}
	b.drops = append(b.drops, p)
	return nil
}

func (b *Bed) veth(nsA *netlab.NS, a string, macA net.HardwareAddr, nsB *netlab.NS, p string, macB net.HardwareAddr, o Options) error {
	v := netlab.VethOpts{MACA: macA, MACB: macB}
	if o.NoSegmentation {
		v.Offloads = map[string]bool{
			"tx-tcp-segmentation": false, "tx-tcp6-segmentation": false, "tx-tcp-ecn-segmentation": false,
			"tx-generic-segmentation": false, "rx-gro": false,
		}
	}
	if err := b.lab.Veth(nsA.Name(), a, nsB.Name(), p, v); err != nil {
		return err
	}
	b.links = append(b.links, end{nsA, a}, end{nsB, p})
	return nil
}

// Address gives both ends their addresses; the far one is interface name in ns.
// Neighbours are permanent, so nothing is sent to find them.
func (b *Bed) Address(ns *netlab.NS, name string) error {
	hw, err := ns.MAC(name)
	if err != nil {
		return err
	}
	return errors.Join(
		b.Gen.AddAddr("g0", GenIP+"/24"), b.Gen.AddAddr("g0", GenIP6+"/64"),
		ns.AddAddr(name, SinkIP+"/24"), ns.AddAddr(name, SinkIP6+"/64"),
		b.Gen.AddNeigh("g0", SinkIP, hw), b.Gen.AddNeigh("g0", SinkIP6, hw),
		ns.AddNeigh(name, GenIP, mac(1)), ns.AddNeigh(name, GenIP6, mac(1)),
	)
}

// Add makes one more namespace.
func (b *Bed) Add(name string) (*netlab.NS, error) { return b.lab.Add(name) }

// Join makes one more link, with the options of the others.
func (b *Bed) Join(nsA *netlab.NS, a string, nsB *netlab.NS, p string) error {
	return b.veth(nsA, a, mac(0xa1), nsB, p, mac(0xa2), b.options)
}

// Close takes the network down.
func (b *Bed) Close() error {
	var errs []error
	for _, d := range b.drops {
		errs = append(errs, d.Close())
	}
	b.drops = nil
	return errors.Join(append(errs, b.lab.Close())...)
}

// Counters reads all interfaces, by name.
func (b *Bed) Counters() (map[string]netlab.Counters, error) {
	out := make(map[string]netlab.Counters, len(b.links))
	for _, l := range b.links {
		c, err := l.ns.Counters(l.name)
		if err != nil {
			return nil, err
		}
		out[l.name] = c
	}
	return out, nil
}

// Lanes names the sink's ends of the links to the device under test.
func (b *Bed) Lanes() (names []string) {
	for _, l := range b.links {
		if l.ns == b.Sink && l.name[0] == 's' {
			names = append(names, l.name)
		}
	}
	return names
}

// offloads that matter to a forwarder.
var offloads = []string{
	"tx-checksum-ip-generic", "tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-udp-segmentation",
	"tx-generic-segmentation", "rx-gro", "rx-vlan-hw-parse", "tx-vlan-hw-insert",
}

// Offloads reads the offload state of all interfaces.
func (b *Bed) Offloads() (map[string]map[string]bool, error) {
	out := map[string]map[string]bool{}
	for _, l := range b.links {
		err := l.ns.Do(func() error {
			e, err := ethtool.NewEthtool()
			if err != nil {
				return err
			}
			defer e.Close()
			all, err := e.Features(l.name)
			if err != nil {
				return err
			}
			out[l.name] = map[string]bool{}
			for name, on := range all {
				if slices.Contains(offloads, name) {
					out[l.name][name] = on
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("offloads of %s: %w", l.name, err)
		}
	}
	return out, nil
}

// Ports names the interfaces of the device under test.
func (b *Bed) Ports() (names []string) {
	for _, l := range b.links {
		if l.ns == b.DUT {
			names = append(names, l.name)
		}
	}
	return names
}
