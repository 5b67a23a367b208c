package packet

import "encoding/binary"

// Bounds of the walk.
const (
	MaxTags       = 4 // VLAN tags
	MaxExtensions = 8 // IPv6 extension headers, and authentication headers of IPv4
)

// EtherTypes that are looked for.
const (
	TypeIPv4   = 0x0800
	TypeARP    = 0x0806
	TypeTEB    = 0x6558 // an Ethernet frame within GRE
	TypeVLAN   = 0x8100
	TypeIPv6   = 0x86dd
	TypeQinQ   = 0x88a8
	TypeQinQ91 = 0x9100 // before 802.1ad gave it a number
)

// IP protocol numbers that are looked for.
const (
	ProtoHopByHop = 0
	ProtoICMP     = 1
	ProtoIPv4     = 4
	ProtoTCP      = 6
	ProtoUDP      = 17
	ProtoIPv6     = 41
	ProtoRouting  = 43
	ProtoFragment = 44
	ProtoGRE      = 47
	ProtoESP      = 50
	ProtoAH       = 51
	ProtoICMPv6   = 58
	ProtoNoNext   = 59
	ProtoDest     = 60
	ProtoDCCP     = 33
	ProtoSCTP     = 132
	ProtoUDPLite  = 136
)

// TCP flags.
const (
	FIN = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
	ECE
	CWR
)

// Kind of a network header.
type Kind uint8

const (
	Other Kind = iota // none of those below, or cut off, or inconsistent
	IPv4              // with at least 20 bytes at L3
	IPv6              // with at least 40 bytes at L3
	ARP               // for IPv4 over Ethernet, 28 bytes at L3
)

// Fragment says which part of an IP packet a frame has.
type Fragment uint8

const (
	Whole         Fragment = iota // not fragmented; an IPv6 fragment header may be there ("atomic")
	FirstFragment                 // the transport header is here, the rest elsewhere
	LaterFragment                 // the transport header is elsewhere
)

// Packet is what a frame's headers say. Offsets are bytes from the start of
// the frame that was parsed; each is at most the frame's length.
type Packet struct {
	EtherType uint16          // behind the VLAN tags; below 0x0600 it is a length
	TCI       [MaxTags]uint16 // tag control information, outermost first
	Tags      uint8           // how many of TCI there are

	Kind     Kind
	Fragment Fragment
	// Truncated: the IP length goes beyond the frame.
	Truncated bool
	// Malformed: a header contradicts itself or is cut off. What was found
	// before it stands.
	Malformed bool

	TOS   uint8 // traffic class: DSCP in the upper 6 bits, ECN in the lower 2
	Proto uint8 // of the first header that is not an extension header
	Flags uint8 // of TCP, 0 if the header is not all there

	// HasPorts: TCP, UDP, UDP-Lite, SCTP or DCCP, and the ports are there.
	HasPorts         bool
	SrcPort, DstPort uint16

	// L3 is where the network header starts, 0 if there is no Ethernet header.
	L3 int
	// L4 is where the transport header starts: behind the IP header and all
	// extension headers; 0 if that is not known or in another fragment.
	L4 int
	// Payload is behind the last header that was understood.
	Payload int
	// End is the end of the packet: less than the frame's length if the frame
	// has padding.
	End int
	// IPLen is the length of the IP packet as its header states it; 0 for
	// super-frames that are too long for the field, and if it is not IP.
	IPLen int
}

// DSCP is the differentiated services code point.
func (p *Packet) DSCP() uint8 { return p.TOS >> 2 }

// VLAN is the identifier of tag i, outermost first; i is below Tags.
func (p *Packet) VLAN(i int) uint16 { return p.TCI[i] & 0xfff }

// Parse fills p from an Ethernet frame, or from its first part with the
// headers. It sets all of p.
func Parse(frame []byte, p *Packet) {
	*p = Packet{End: len(frame)}
	if len(frame) < 14 {
		p.Malformed = true
		return
	}
	t, l3 := binary.BigEndian.Uint16(frame[12:]), 14
	for isTag(t) && p.Tags < MaxTags {
		if len(frame) < l3+4 {
			p.Malformed = true
			break
		}
		p.TCI[p.Tags] = binary.BigEndian.Uint16(frame[l3:])
		p.Tags++
		t = binary.BigEndian.Uint16(frame[l3+2:])
		l3 += 4
	}
	p.network(frame, l3, t)
}

// ParseNetwork fills p from the network header at offset l3 of frame, of type
// etherType. There need not be an Ethernet header. It sets all of p.
func ParseNetwork(frame []byte, l3 int, etherType uint16, p *Packet) {
	*p = Packet{End: len(frame)}
	if l3 < 0 || l3 > len(frame) {
		p.Malformed = true
		return
	}
	p.network(frame, l3, etherType)
}

func isTag(t uint16) bool { return t == TypeVLAN || t == TypeQinQ || t == TypeQinQ91 }

func (p *Packet) network(frame []byte, l3 int, t uint16) {
	p.EtherType, p.L3, p.Payload = t, l3, l3
	h := frame[l3:]
	switch t {
	case TypeIPv4:
		p.ipv4(frame, h)
	case TypeIPv6:
		p.ipv6(frame, h)
	case TypeARP:
		// Ethernet and IPv4, 6 and 4 bytes of address.
		if len(h) < 28 || binary.BigEndian.Uint64(h)>>16 != 0x0001_0800_0604 {
			p.Malformed = len(h) < 28
			return
		}
		p.Kind, p.Payload = ARP, l3+28
		p.End = p.Payload
	}
}

func (p *Packet) ipv4(frame, h []byte) {
	if len(h) < 20 || h[0]>>4 != 4 || h[0]&15 < 5 {
		p.Malformed = true
		return
	}
	n := int(h[0]&15) * 4
	p.Kind, p.TOS, p.Proto = IPv4, h[1], h[9]
	p.IPLen = int(binary.BigEndian.Uint16(h[2:]))
	if !p.setEnd(len(frame), p.IPLen, n) {
		return
	}
	p.Payload = p.L3 + n
	switch frag := binary.BigEndian.Uint16(h[6:]); {
	case frag&0x1fff != 0:
		p.Fragment = LaterFragment
		return
	case frag&0x2000 != 0:
		p.Fragment = FirstFragment
	}
	if p.Proto == ProtoAH {
		p.extensions(frame, ProtoAH)
		return
	}
	p.transport(frame)
}

func (p *Packet) ipv6(frame, h []byte) {
	if len(h) < 40 || h[0]>>4 != 6 {
		p.Malformed = true
		return
	}
	p.Kind, p.TOS = IPv6, h[0]<<4|h[1]>>4
	next, total := h[6], 0
	// Length 0 before a hop-by-hop header means that the length is in there,
	// of a packet that is too long for the field.
	if n := int(binary.BigEndian.Uint16(h[4:])); n != 0 || next != ProtoHopByHop {
		total = 40 + n
	}
	p.IPLen, p.Proto = total, next
	if !p.setEnd(len(frame), total, 40) {
		return
	}
	p.Payload = p.L3 + 40
	p.extensions(frame, next)
}

// setEnd sets End from the packet's length, 0 meaning that it goes on to the
// end of the frame; false if the header of n bytes is not all there.
func (p *Packet) setEnd(frame, total, n int) bool {
	if total == 0 {
		total = frame - p.L3
	}
	switch end := p.L3 + total; {
	case end > frame:
		p.Truncated = true
	default:
		p.End = end
	}
	if p.End-p.L3 < n {
		p.Malformed = true
		return false
	}
	return true
}

// extensions walks the extension headers from Payload on, next being the kind
// of the first one, and then the transport header.
func (p *Packet) extensions(frame []byte, next uint8) {
	b := frame[:p.End]
	for i := 0; ; i++ {
		p.Proto = next
		var n int
		if !isExtension(next, p.Kind) {
			p.transport(frame)
			return
		}
		h := b[p.Payload:]
		if i == MaxExtensions || len(h) < 8 {
			p.Malformed = len(h) < 8
			return
		}
		switch next {
		case ProtoFragment:
			n = 8
		case ProtoAH:
			n = (int(h[1]) + 2) * 4
		default:
			n = (int(h[1]) + 1) * 8
		}
		if n > len(h) {
			p.Malformed = true
			return
		}
		frag := binary.BigEndian.Uint16(h[2:])
		last := next
		next = h[0]
		p.Payload += n
		if last != ProtoFragment {
			continue
		}
		switch {
		case frag&0xfff8 != 0:
			p.Fragment, p.Proto = LaterFragment, next
			return
		case frag&1 != 0:
			p.Fragment = FirstFragment
		}
	}
}

func isExtension(proto uint8, k Kind) bool {
	switch proto {
	case ProtoAH:
		return true
	case ProtoHopByHop, ProtoRouting, ProtoDest, ProtoFragment:
		return k == IPv6
	}
	return false
}

// transport reads the header of protocol Proto at Payload.
func (p *Packet) transport(frame []byte) {
	p.L4 = p.Payload
	h := frame[p.L4:p.End]
	n := 0 // bytes of the header
	switch p.Proto {
	case ProtoTCP:
		if len(h) >= 20 {
			n = int(h[12]>>4) * 4
			p.Flags = h[13]
		}
		if n < 20 || n > len(h) {
			n, p.Malformed = 0, true
		}
	case ProtoUDP, ProtoUDPLite:
		n = 8
	case ProtoSCTP:
		n = 12
	case ProtoDCCP:
		if len(h) >= 5 {
			n = int(h[4]) * 4
		}
		if n < 12 || n > len(h) {
			n, p.Malformed = 0, true
		}
	default:
		return
	}
	if len(h) >= 4 {
		p.HasPorts = true
		p.SrcPort, p.DstPort = binary.BigEndian.Uint16(h), binary.BigEndian.Uint16(h[2:])
	}
	if n > len(h) {
		n, p.Malformed = 0, true
	}
	p.Payload += n
}
