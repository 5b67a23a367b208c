package main

import (
	"fmt"
	"net"
	"strings"

	"github.com/netring/netring/nm"
	"github.com/netring/netring/ring"
)

// reachable refuses a port that nobody but this process can be at the other end
// of, where one port is all that it opens.
func (c *config) reachable(spec *nm.PortSpec) error {
	if c.bench.on() {
		return nil
	}
	const instead = "measure between two of them with --throughput and --rx-port, or use an interface"
	switch {
	case spec.Pipe != "":
		return fmt.Errorf("port %s: the other end of a pipe must be in the same process: %s", c.port, instead)
	case spec.Kind == nm.KindVale:
		return fmt.Errorf("port %s: the ports of a switch are all in one process, and this one would be alone on it: %s", c.port, instead)
	}
	return nil
}

// largest is the most bytes of a frame with so many VLAN tags that r sends: that
// of the interface's MTU where it has one, and what a slot holds.
func largest(r *ring.Ring, tags int) int {
	most := min(r.MaxFrame(), len(r.Buf(r.Head)))
	if ifi, err := net.InterfaceByName(r.Port()); err == nil {
		most = min(most, ifi.MTU+14+4*tags)
	}
	return most
}

// sourceMAC is the address that frames are from where none is given: that of
// the interface, of the first one of a group, and one of its own for a port
// that has none.
func sourceMAC(spec *nm.PortSpec) (mac [6]byte, err error) {
	name := spec.Name
	switch {
	case spec.Pipe != "" || spec.Kind == nm.KindVale:
		return [6]byte{2, 0, 0, 0, 0, 1}, nil
	case spec.Kind == nm.KindLagg:
		name, _, _ = strings.Cut(name, "+")
	}
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return mac, &ring.OpError{Op: "open", Port: name, Ring: -1, Err: fmt.Errorf("%w (ip link shows those there are)", ring.ErrNoInterface)}
	}
	copy(mac[:], ifi.HardwareAddr)
	return mac, nil
}
