package packet

import "encoding/binary"

// Ports of the tunnels over UDP that [Inner] knows.
const (
	portVXLAN  = 4789
	portGeneve = 6081
)

// Inner looks for a packet inside of the packet that was parsed into outer:
// VXLAN and Geneve on their registered ports, GRE (RFC 2784 and 2890), IP in
// IP in all four combinations. It fills in, whose offsets count from the start
// of the bytes that it returns, a part of frame; nil if there is no packet
// inside, or it is not IP or Ethernet, or outer is a fragment.
//
// The inner packet may be a tunnel itself: call it again with what it gave. in
// and outer may be the same Packet.
func Inner(frame []byte, outer, in *Packet) []byte {
	if outer.L4 == 0 || outer.Fragment != Whole {
		return nil
	}
	b := frame[outer.Payload:outer.End]
	switch outer.Proto {
	case ProtoIPv4:
		return ip(b, TypeIPv4, in)
	case ProtoIPv6:
		return ip(b, TypeIPv6, in)
	case ProtoGRE:
		return gre(b, in)
	case ProtoUDP:
		if !outer.HasPorts || outer.Payload == outer.L4 {
			return nil
		}
		switch outer.DstPort {
		case portVXLAN:
			// Flags with the I bit, reserved, identifier, reserved.
			if len(b) < 8 || b[0]&0x08 == 0 {
				return nil
			}
			return ether(b[8:], in)
		case portGeneve:
			return geneve(b, in)
		}
	}
	return nil
}

func geneve(b []byte, in *Packet) []byte {
	if len(b) < 8 || b[0]>>6 != 0 {
		return nil
	}
	n, t := 8+int(b[0]&0x3f)*4, binary.BigEndian.Uint16(b[2:])
	if n > len(b) {
		return nil
	}
	return payload(b[n:], t, in)
}

func gre(b []byte, in *Packet) []byte {
	if len(b) < 4 {
		return nil
	}
	flags, t := binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	// Routing (0x4000) and versions other than 0 lay out the header in
	// another way.
	if flags&0x4007 != 0 {
		return nil
	}
	n := 4
	for _, f := range [...]uint16{0x8000, 0x2000, 0x1000} { // checksum, key, sequence number
		if flags&f != 0 {
			n += 4
		}
	}
	if n > len(b) {
		return nil
	}
	return payload(b[n:], t, in)
}

func payload(b []byte, etherType uint16, in *Packet) []byte {
	if etherType == TypeTEB {
		return ether(b, in)
	}
	return ip(b, etherType, in)
}

func ether(b []byte, in *Packet) []byte {
	if len(b) < 14 {
		return nil
	}
	Parse(b, in)
	return b
}

func ip(b []byte, etherType uint16, in *Packet) []byte {
	p := Packet{EtherType: etherType, End: len(b)}
	switch etherType {
	case TypeIPv4:
		p.ipv4(b, 0)
	case TypeIPv6:
		p.ipv6(b, 0)
	}
	if p.Kind == Other {
		return nil
	}
	*in = p
	return b
}
