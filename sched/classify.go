package sched

import (
	"errors"
	"fmt"

	"github.com/netring/netring/internal/packet"
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
	for _, e := range o.EtherTypes {
		if e < minEtherType {
			return fmt.Errorf("classifier: ethertype %#04x: must be at least %#04x", e, minEtherType)
		}
		if packet.IsTag(e) {
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

const minEtherType = 0x0600 // less is a length

// Classifier says which frames have priority. It is made once and does not
// change; any number of goroutines may use it.
type Classifier struct {
	synAck     bool
	dscp       uint64 // bit per code point
	etherTypes *bitset
	tcp, udp   *bitset // of ports
}

// bitset has one bit per number; nil is the empty set.
type bitset [1 << 16 / 64]uint64

func newBitset(numbers []uint16) *bitset {
	if len(numbers) == 0 {
		return nil
	}
	s := new(bitset)
	for _, n := range numbers {
		s[n/64] |= 1 << (n % 64)
	}
	return s
}

func (s *bitset) has(n uint16) bool { return s != nil && s[n/64]>>(n%64)&1 != 0 }

// hasPort looks for the packet's source or destination port.
func (s *bitset) hasPort(p *packet.Packet) bool {
	return s != nil && p.HasPorts && (s.has(p.SrcPort) || s.has(p.DstPort))
}

// NewClassifier makes a classifier.
func NewClassifier(o ClassifierOptions) (*Classifier, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	c := &Classifier{
		synAck: o.SynAck, etherTypes: newBitset(o.EtherTypes), tcp: newBitset(o.TCPPorts), udp: newBitset(o.UDPPorts),
	}
	for _, d := range o.DSCP {
		c.dscp |= 1 << d
	}
	return c, nil
}

// Priority reports whether the Ethernet frame, or the first part of it with
// its headers, has priority. Package packet has the bounds of the walk: 4 VLAN
// tags and 8 extension headers. Of a fragmented packet only the first fragment
// has a transport header to look at.
func (c *Classifier) Priority(frame []byte) bool {
	var p packet.Packet
	packet.Parse(frame, &p)
	if c.etherTypes.has(p.EtherType) {
		return true
	}
	if p.Kind != packet.IPv4 && p.Kind != packet.IPv6 {
		return false
	}
	if c.dscp>>p.DSCP()&1 != 0 {
		return true
	}
	switch p.Proto {
	case packet.ProtoUDP:
		return c.udp.hasPort(&p)
	case packet.ProtoTCP:
		return c.tcp.hasPort(&p) || c.synAck && bareControl(&p)
	}
	return false
}

// bareControl reports whether a TCP segment is a SYN, SYN|ACK or ACK without
// FIN and RST, and has no payload by the length that the network header tells:
// what a link pads is not payload. A super-frame that is too long for the
// length to tell is none.
func bareControl(p *packet.Packet) bool {
	return p.Flags&(packet.SYN|packet.ACK) != 0 && p.Flags&(packet.FIN|packet.RST) == 0 &&
		p.Payload > p.L4 && p.IPLen == p.Payload-p.L3
}
