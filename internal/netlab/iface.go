//go:build linux

package netlab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// VethOpts are options of a veth pair; the zero value is the kernel's
// defaults, both ends up.
type VethOpts struct {
	MTU    int // of both ends, 0 for 1500
	Queues int // RX and TX queues of both ends, 0 for 1
	// Offloads are switched on both ends once they exist, by the kernel's
	// names: see [NS.Offload].
	Offloads   map[string]bool
	MACA, MACB net.HardwareAddr // nil for random ones
	Down       bool             // leave both ends down
}

// Validate checks the options.
func (o *VethOpts) Validate() error {
	switch {
	case o.MTU != 0 && (o.MTU < 68 || o.MTU > 65535):
		return fmt.Errorf("MTU %d: must be 0 or between 68 and 65535", o.MTU)
	case o.Queues < 0 || o.Queues > 4096:
		return fmt.Errorf("%d queues: must be between 0 and 4096", o.Queues)
	case o.MACA != nil && len(o.MACA) != 6, o.MACB != nil && len(o.MACB) != 6:
		return errors.New("MAC address: must have 6 bytes")
	}
	return nil
}

// Veth makes a veth pair, end a in namespace nsA and end b in nsB (which may
// be the same), and returns once both can carry frames.
func (l *Lab) Veth(nsA, a, nsB, b string, o VethOpts) error {
	if err := l.veth(l.NS(nsA), a, l.NS(nsB), b, &o); err != nil {
		return fmt.Errorf("veth %s/%s to %s/%s: %w", nsA, a, nsB, b, err)
	}
	return nil
}

func (l *Lab) veth(nsA *NS, a string, nsB *NS, b string, o *VethOpts) error {
	if err := errors.Join(nsA.open(), nsB.open(), o.Validate()); err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = a
	attrs.MTU = o.MTU
	attrs.HardwareAddr = o.MACA
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerHardwareAddr, veth.PeerMTU = b, o.MACB, uint32(o.MTU)
	veth.PeerNamespace = netlink.NsFd(nsB.fd)
	if o.Queues > 0 {
		veth.NumTxQueues, veth.NumRxQueues = o.Queues, o.Queues
		veth.PeerNumTxQueues, veth.PeerNumRxQueues = uint32(o.Queues), uint32(o.Queues)
	}
	if err := nsA.nl.LinkAdd(veth); err != nil {
		return err
	}
	if o.Offloads != nil {
		if err := errors.Join(nsA.Offload(a, o.Offloads), nsB.Offload(b, o.Offloads)); err != nil {
			return err
		}
	}
	if o.Down {
		return nil
	}
	if err := errors.Join(nsA.Up(a), nsB.Up(b)); err != nil {
		return err
	}
	return errors.Join(nsA.WaitCarrier(a, linkTimeout), nsB.WaitCarrier(b, linkTimeout))
}

const (
	linkTimeout = 5 * time.Second // far more than the kernel's link watch takes
	linkPoll    = 200 * time.Microsecond
)

// link finds an interface.
func (n *NS) link(name string) (netlink.Link, error) {
	if err := n.open(); err != nil {
		return nil, err
	}
	link, err := n.nl.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("namespace %q: interface %s: %w", n.name, name, err)
	}
	return link, nil
}

// onLink finds an interface and calls fn with it.
func (n *NS) onLink(action, name string, fn func(netlink.Link) error) error {
	link, err := n.link(name)
	if err != nil {
		return err
	}
	if err := fn(link); err != nil {
		return fmt.Errorf("namespace %q: %s %s: %w", n.name, action, name, err)
	}
	return nil
}

// Up sets an interface administratively up.
func (n *NS) Up(name string) error {
	return n.onLink("set up", name, func(l netlink.Link) error { return n.nl.LinkSetUp(l) })
}

// Down sets an interface down.
func (n *NS) Down(name string) error {
	return n.onLink("set down", name, func(l netlink.Link) error { return n.nl.LinkSetDown(l) })
}

// Delete removes an interface, and with it the other end of a veth pair.
func (n *NS) Delete(name string) error {
	return n.onLink("delete", name, func(l netlink.Link) error { return n.nl.LinkDel(l) })
}

// SetMTU sets an interface's MTU.
func (n *NS) SetMTU(name string, mtu int) error {
	return n.onLink("set MTU of", name, func(l netlink.Link) error { return n.nl.LinkSetMTU(l, mtu) })
}

// Index returns an interface's index within the namespace.
func (n *NS) Index(name string) (int, error) {
	l, err := n.link(name)
	if err != nil {
		return 0, err
	}
	return l.Attrs().Index, nil
}

// MAC returns an interface's address.
func (n *NS) MAC(name string) (net.HardwareAddr, error) {
	l, err := n.link(name)
	if err != nil {
		return nil, err
	}
	return l.Attrs().HardwareAddr, nil
}

// WaitCarrier returns once the interface is up, has carrier and the kernel has
// started its queues: until then what is sent is dropped without a trace.
func (n *NS) WaitCarrier(name string, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for {
		l, err := n.link(name)
		if err != nil {
			return err
		}
		const ready = unix.IFF_UP | unix.IFF_RUNNING | unix.IFF_LOWER_UP
		if l.Attrs().RawFlags&ready == ready {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("namespace %q: interface %s has no carrier after %v", n.name, name, timeout)
		}
		time.Sleep(linkPoll)
	}
}

// AddAddr gives an interface an address, "10.0.0.1/24" or "fd00::1/64". An
// IPv6 address switches IPv6 on for the interface, without duplicate address
// detection (the address works at once) and without autoconfiguration.
func (n *NS) AddAddr(name, cidr string) error {
	p, err := netip.ParsePrefix(cidr)
	if err != nil {
		return fmt.Errorf("namespace %q: address of %s: %w", n.name, name, err)
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{
		IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen()),
	}}
	if p.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
		conf := "net/ipv6/conf/" + name + "/"
		for _, kv := range [][2]string{
			{"accept_ra", "0"}, {"autoconf", "0"}, {"router_solicitations", "0"}, {"accept_dad", "0"}, {"disable_ipv6", "0"},
		} {
			if err := n.Sysctl(conf+kv[0], kv[1]); err != nil {
				return err
			}
		}
	}
	return n.onLink("add address "+cidr+" to", name, func(l netlink.Link) error { return n.nl.AddrAdd(l, addr) })
}

// AddNeigh adds a permanent neighbour entry, so that no ARP or neighbour
// discovery is needed.
func (n *NS) AddNeigh(name, ip string, mac net.HardwareAddr) error {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return fmt.Errorf("namespace %q: neighbour of %s: %w", n.name, name, err)
	}
	return n.onLink("add neighbour "+ip+" to", name, func(l netlink.Link) error {
		return n.nl.NeighSet(&netlink.Neigh{
			LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: a.AsSlice(), HardwareAddr: mac,
		})
	})
}

// Offload switches device features by the kernel's names, as `ethtool -k` with
// a netlink-less ethtool shows them: "rx-gro", "tx-tcp-segmentation",
// "tx-tcp6-segmentation", "tx-udp-segmentation", "tx-checksum-ip-generic", ...
func (n *NS) Offload(name string, features map[string]bool) error {
	return n.Do(func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return fmt.Errorf("namespace %q: open ethtool: %w", n.name, err)
		}
		defer e.Close()
		if err := e.Change(name, features); err != nil {
			return fmt.Errorf("namespace %q: change features of %s to %v: %w", n.name, name, features, err)
		}
		return nil
	})
}

// Counters of an interface as the kernel keeps them.
type Counters struct {
	RxPackets, RxBytes, RxDropped, RxErrors uint64
	TxPackets, TxBytes, TxDropped, TxErrors uint64
}

// Counters reads the counters of an interface.
func (n *NS) Counters(name string) (Counters, error) {
	l, err := n.link(name)
	if err != nil {
		return Counters{}, err
	}
	s := l.Attrs().Statistics
	if s == nil {
		return Counters{}, fmt.Errorf("namespace %q: interface %s tells no counters", n.name, name)
	}
	return Counters{
		RxPackets: s.RxPackets, RxBytes: s.RxBytes, RxDropped: s.RxDropped, RxErrors: s.RxErrors,
		TxPackets: s.TxPackets, TxBytes: s.TxBytes, TxDropped: s.TxDropped, TxErrors: s.TxErrors,
	}, nil
}
