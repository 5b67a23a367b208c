package sched

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ClassifierOptions say which frames have priority. Each rule adds to the
// others; the zero value prefers none.
type ClassifierOptions struct {
	// SynAck prefers TCP segments without payload and without FIN and RST:
	// SYN, SYN|ACK and pure ACK, options or not.
	SynAck bool
	// DSCP are differentiated services code points, 0 to 63, IPv4 and IPv6.
	DSCP []uint8
	// EtherTypes, 0x0600 and above, are looked for behind VLAN tags.
	EtherTypes []uint16
	// TCPPorts and UDPPorts match the source or the destination.
	TCPPorts, UDPPorts []uint16
}

// Validate says what is wrong with the options.
func (o ClassifierOptions) Validate() error {
	for _, d := range o.DSCP {
		if d > 63 {
			return fmt.Errorf("classifier: dscp %d: must be at most 63", d)
		}
	}
	if len(o.EtherTypes) > maxEtherTypes {
		return fmt.Errorf("classifier: %d ethertypes: must be at most %d", len(o.EtherTypes), maxEtherTypes)
	}
	for _, e := range o.EtherTypes {
		if e < minEtherType {
			return fmt.Errorf("classifier: ethertype %#04x: must be at least %#04x", e, minEtherType)
		}
		if isTag(e) {
			return fmt.Errorf("classifier: ethertype %#04x is a vlan tag: name what is behind it", e)
		}
	}
	for _, p := range append(append([]uint16(nil), o.TCPPorts...), o.UDPPorts...) {
		if p == 0 {
			return errors.New("classifier: port 0: must be at least 1")
		}
	}
	return nil
}

// Bounds of the walk over headers.
const (
	maxTags       = 4  // VLAN tags
	maxExtensions = 8  // IPv6 extension headers
	maxEtherTypes = 16 // of the rules
)

const (
	minEtherType = 0x0600 // less is a length
	etherIPv4    = 0x0800
	etherIPv6    = 0x86dd
	protoTCP     = 6
	protoUDP     = 17
	tcpFin       = 0x01
	tcpSyn       = 0x02
	tcpRst       = 0x04
	tcpAck       = 0x10
)

// Classifier says which frames have priority. It is made once and does not
// change; any number of goroutines may use it.
type Classifier struct {
	synAck     bool
	dscp       uint64 // bit per code point
	etherTypes []uint16
	tcp, udp   *portSet
}

// portSet has one bit per port.
type portSet [1 << 16 / 64]uint64

func newPortSet(ports []uint16) *portSet {
	if len(ports) == 0 {
		return nil
	}
	s := new(portSet)
	for _, p := range ports {
		s[p/64] |= 1 << (p % 64)
	}
	return s
}

// has looks for the source or destination port of the transport header l4.
func (s *portSet) has(l4 []byte) bool {
	if s == nil || len(l4) < 4 {
		return false
	}
	src, dst := binary.BigEndian.Uint16(l4), binary.BigEndian.Uint16(l4[2:])
	return s[src/64]>>(src%64)&1 != 0 || s[dst/64]>>(dst%64)&1 != 0
}

// NewClassifier makes a classifier.
func NewClassifier(o ClassifierOptions) (*Classifier, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	c := &Classifier{
		synAck: o.SynAck, etherTypes: append([]uint16(nil), o.EtherTypes...),
		tcp: newPortSet(o.TCPPorts), udp: newPortSet(o.UDPPorts),
	}
	for _, d := range o.DSCP {
		c.dscp |= 1 << d
	}
	return c, nil
}

// Priority reports whether the Ethernet frame, or the first part of it with
// its headers, has priority. Of a fragmented packet only the first fragment
// has a transport header to look at.
func (c *Classifier) Priority(frame []byte) bool {
	if len(frame) < 14 {
		return false
	}
	etherType, l3 := binary.BigEndian.Uint16(frame[12:]), frame[14:]
	for i := 0; isTag(etherType); i++ {
		if i == maxTags || len(l3) < 4 {
			return false
		}
		etherType, l3 = binary.BigEndian.Uint16(l3[2:]), l3[4:]
	}
	for _, e := range c.etherTypes {
		if e == etherType {
			return true
		}
	}
	switch etherType {
	case etherIPv4:
		return c.ipv4(l3)
	case etherIPv6:
		return c.ipv6(l3)
	}
	return false
}

func isTag(etherType uint16) bool {
	return etherType == 0x8100 || etherType == 0x88a8 || etherType == 0x9100
}

func (c *Classifier) ipv4(p []byte) bool {
	if len(p) < 20 || p[0]>>4 != 4 {
		return false
	}
	if c.dscp>>(p[1]>>2)&1 != 0 {
		return true
	}
	header, total := int(p[0]&15)*4, int(binary.BigEndian.Uint16(p[2:]))
	if header < 20 || len(p) < header || binary.BigEndian.Uint16(p[6:])&0x1fff != 0 {
		return false
	}
	return c.transport(p[9], p[header:], total-header)
}

func (c *Classifier) ipv6(p []byte) bool {
	if len(p) < 40 || p[0]>>4 != 6 {
		return false
	}
	if c.dscp>>(binary.BigEndian.Uint16(p)>>6&63)&1 != 0 {
		return true
	}
	next, length := p[6], int(binary.BigEndian.Uint16(p[4:]))
	p = p[40:]
	for range maxExtensions + 1 {
		var size int
		switch next {
		case 0, 43, 60, 135, 139, 140: // hop-by-hop, routing, destination, mobility, HIP, shim6
			if len(p) < 8 {
				return false
			}
			size = int(p[1])*8 + 8
		case 44: // fragment
			if len(p) < 8 || binary.BigEndian.Uint16(p[2:])&0xfff8 != 0 {
				return false
			}
			size = 8
		case 51: // authentication
			if len(p) < 8 {
				return false
			}
			size = int(p[1])*4 + 8
		default:
			return c.transport(next, p, length)
		}
		if len(p) < size {
			return false
		}
		next, p, length = p[0], p[size:], length-size
	}
	return false
}

// transport looks at a transport header and length bytes of packet from there
// on, by the length that the network header tells: what a link pads is not
// payload. Unknown lengths (0: a super-frame above 64 KiB) come out negative.
func (c *Classifier) transport(proto uint8, p []byte, length int) bool {
	switch proto {
	case protoUDP:
		return c.udp.has(p)
	case protoTCP:
		return c.tcp.has(p) || c.synAck && bareControl(p, length)
	}
	return false
}

// bareControl reports whether a TCP segment of length bytes has no payload and
// is a SYN, SYN|ACK or ACK without FIN and RST.
func bareControl(p []byte, length int) bool {
	if len(p) < 20 {
		return false
	}
	header, flags := int(p[12]>>4)*4, p[13]
	return header >= 20 && length == header && flags&(tcpSyn|tcpAck) != 0 && flags&(tcpFin|tcpRst) == 0
}
