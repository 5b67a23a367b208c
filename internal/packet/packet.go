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
	ProtoMobility = 135
	ProtoUDPLite  = 136
	ProtoHIP      = 139
	ProtoShim6    = 140
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
	*p = Packet{}
	p.End = len(frame)
	if len(frame) < 14 {
		p.Malformed = true
		return
	}
	t, h, l3 := binary.BigEndian.Uint16(frame[12:]), frame[14:], 14
	for i := 0; i < MaxTags && IsTag(t); i++ {
		if len(h) < 4 {
			p.Malformed = true
			break
		}
		p.TCI[i], p.Tags = binary.BigEndian.Uint16(h), uint8(i)+1
		t = binary.BigEndian.Uint16(h[2:])
		h, l3 = h[4:], l3+4
	}
	p.EtherType, p.L3, p.Payload = t, l3, l3
	switch t {
	case TypeIPv4:
		p.ipv4(h, l3)
	case TypeIPv6:
		p.ipv6(h, l3)
	case TypeARP:
		p.arp(h, l3)
	}
}

// IsTag reports whether a VLAN tag follows an EtherType.
func IsTag(t uint16) bool { return t == TypeVLAN || t == TypeQinQ || t == TypeQinQ91 }

// arp looks for Ethernet and IPv4, 6 and 4 bytes of address.
func (p *Packet) arp(h []byte, l3 int) {
	switch {
	case len(h) < 28:
		p.Malformed = true
	case binary.BigEndian.Uint64(h)>>16 == 0x0001_0800_0604:
		p.Kind, p.Payload, p.End = ARP, l3+28, l3+28
	}
}

func (p *Packet) ipv4(h []byte, l3 int) {
	if len(h) < 20 || h[0]>>4 != 4 || h[0]&15 < 5 {
		p.Malformed = true
		return
	}
	n, total, proto := int(h[0]&15)*4, int(binary.BigEndian.Uint16(h[2:])), h[9]
	p.Kind, p.TOS, p.Proto, p.IPLen = IPv4, h[1], proto, total
	frag := binary.BigEndian.Uint16(h[6:])
	h = p.cut(h, l3, total)
	if len(h) < n {
		p.Malformed = true
		return
	}
	h, l3 = h[n:], l3+n
	p.Payload = l3
	switch {
	case frag&0x1fff != 0:
		p.Fragment = LaterFragment
		return
	case frag&0x2000 != 0:
		p.Fragment = FirstFragment
	}
	if isExtension(proto, IPv4) {
		p.extensions(h, l3, proto)
		return
	}
	p.transport(h, l3, proto)
}

func (p *Packet) ipv6(h []byte, l3 int) {
	if len(h) < 40 || h[0]>>4 != 6 {
		p.Malformed = true
		return
	}
	next, total := h[6], 0
	// Length 0 before a hop-by-hop header means that the length is in there,
	// of a packet that is too long for the field.
	if n := int(binary.BigEndian.Uint16(h[4:])); n != 0 || next != ProtoHopByHop {
		total = 40 + n
	}
	p.Kind, p.TOS, p.Proto, p.IPLen = IPv6, h[0]<<4|h[1]>>4, next, total
	h, l3 = p.cut(h, l3, total)[40:], l3+40
	p.Payload = l3
	if isExtension(next, IPv6) {
		p.extensions(h, l3, next)
		return
	}
	p.transport(h, l3, next)
}

// cut returns the part of h that belongs to the packet, which starts at l3 of
// the frame, has total bytes (0: up to the end of the frame) and ends at End.
func (p *Packet) cut(h []byte, l3, total int) []byte {
	switch {
	case total > len(h):
		p.Truncated = true
	case total != 0:
		h = h[:total]
		p.End = l3 + total
	}
	return h
}

// extensions walks the extension headers in h, which lies at the given offset
// of the frame, next being the kind of the first one, and then the transport
// header.
func (p *Packet) extensions(h []byte, at int, next uint8) {
	for i := 0; isExtension(next, p.Kind); i++ {
		p.Proto = next
		if i == MaxExtensions || len(h) < 8 {
			p.Malformed = len(h) < 8
			return
		}
		n := (int(h[1]) + 1) * 8
		switch next {
		case ProtoFragment:
			n = 8
		case ProtoAH:
			n = (int(h[1]) + 2) * 4
		}
		if n > len(h) {
			p.Malformed = true
			return
		}
		frag, last := binary.BigEndian.Uint16(h[2:]), next
		next, h, at = h[0], h[n:], at+n
		p.Payload = at
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
	p.Proto = next
	p.transport(h, at, next)
}

func isExtension(proto uint8, k Kind) bool {
	switch proto {
	case ProtoAH:
		return true
	case ProtoHopByHop, ProtoRouting, ProtoDest, ProtoFragment, ProtoMobility, ProtoHIP, ProtoShim6:
		return k == IPv6
	}
	return false
}

// transport reads the header of protocol proto at the start of h, which is the
// rest of the packet and lies at offset l4 of the frame.
func (p *Packet) transport(h []byte, l4 int, proto uint8) {
	p.L4 = l4
	n, least := 0, 0 // bytes of the header
	switch proto {
	case ProtoTCP:
		if least = 20; len(h) >= least {
			n, p.Flags = int(h[12]>>4)*4, h[13]
		}
	case ProtoUDP, ProtoUDPLite:
		n = 8
	case ProtoSCTP:
		n = 12
	case ProtoDCCP:
		if least = 12; len(h) >= 5 {
			n = int(h[4]) * 4
		}
	default:
		return
	}
	if len(h) >= 4 {
		p.HasPorts = true
		p.SrcPort, p.DstPort = binary.BigEndian.Uint16(h), binary.BigEndian.Uint16(h[2:])
	}
	if n < least || n > len(h) {
		n, p.Malformed = 0, true
	}
	p.Payload = l4 + n
}
