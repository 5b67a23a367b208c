package finish

import (
	"encoding/binary"

	"github.com/netring/netring/internal/packet"
	"github.com/netring/netring/ring"
)

const (
	ethLen     = 14
	tagLen     = 4
	ip6Len     = 40
	udpLen     = 8
	tcpLen     = 20 // at least
	protoTCP   = 6
	protoUDP   = 17
	tcpFIN     = 0x01
	tcpPSH     = 0x08
	tcpCWR     = 0x80
	etherIPv4  = 0x0800
	etherIPv6  = 0x86dd
	etherVLAN  = 0x8100
	etherQinQ  = 0x88a8
	etherQinQ1 = 0x9100 // QinQ before it was standardised
)

// Segments cuts one super-frame into complete frames, as the kernel's own
// segmentation does: each with the headers of the super-frame, its share of
// the payload, its own lengths, IP identification, TCP sequence number and
// checksums; FIN and PSH on the last only, CWR on the first only.
//
// It reads the super-frame while it works and allocates nothing. The zero
// value has no segments.
type Segments struct {
	frame  []byte // headers and payload, no padding
	l3, l4 int    // where the network and transport headers start
	hdr    int    // where the payload starts
	size   int    // payload of each segment but the last
	n, i   int    // segments, and the next one
	v6     bool
	udp    bool
	nosum  bool   // UDP without a checksum
	pseudo uint64 // sum of the pseudo header but for its length
}

// Init prepares to cut frame, which starts with the Ethernet header and whose
// virtio-net header is v. The error is one of this package's.
func (s *Segments) Init(frame []byte, v *ring.Vnet) error {
	*s = Segments{frame: frame, size: int(v.GSOSize)}
	switch v.GSOType &^ ring.VnetGSOECN {
	case ring.VnetGSOTCPv4:
	case ring.VnetGSOTCPv6:
		s.v6 = true
	case ring.VnetGSOUDPL4:
		s.udp = true
	case ring.VnetGSOUDP:
		return ErrUFO
	default:
		return ErrProtocol
	}
	etherType, ok := s.link()
	if !ok || s.size == 0 {
		return ErrMalformed
	}
	if s.udp {
		s.v6 = etherType == etherIPv6
	}
	var err error
	switch {
	case etherType == etherIPv4 && !s.v6:
		err = s.ipv4()
	case etherType == etherIPv6 && s.v6:
		err = s.ipv6()
	case etherType == etherIPv4 || etherType == etherIPv6:
		err = ErrMalformed // not what the virtio-net header says
	default:
		err = ErrProtocol
	}
	if err == nil {
		err = s.transport(v)
	}
	return err
}

// link finds the network header behind all VLAN tags.
func (s *Segments) link() (etherType uint16, ok bool) {
	for s.l3 = ethLen; s.l3 <= len(s.frame); s.l3 += tagLen {
		etherType = binary.BigEndian.Uint16(s.frame[s.l3-2:])
		if etherType != etherVLAN && etherType != etherQinQ && etherType != etherQinQ1 {
			return etherType, true
		}
	}
	return 0, false
}

// ipv4 checks the network header, cuts padding off and finds the transport.
func (s *Segments) ipv4() error {
	p := s.frame[s.l3:]
	if len(p) < 20 || p[0]>>4 != 4 {
		return ErrMalformed
	}
	ihl, total := int(p[0]&15)*4, int(binary.BigEndian.Uint16(p[2:]))
	if ihl < 20 || ihl > total || total > len(p) {
		return ErrMalformed
	}
	const moreFragmentsOrOffset = 0x3fff
	if binary.BigEndian.Uint16(p[6:])&moreFragmentsOrOffset != 0 {
		return ErrProtocol
	}
	s.frame = s.frame[:s.l3+total]
	s.l4 = s.l3 + ihl
	s.pseudo = pseudoSum(p[12:20], p[9])
	return s.isTransport(p[9])
}

// ipv6 does the same; it passes over options and a routing header. With a
// routing header the checksum would cover the last address of it, so one that
// has segments left is refused.
func (s *Segments) ipv6() error {
	p := s.frame[s.l3:]
	if len(p) < ip6Len || p[0]>>4 != 6 {
		return ErrMalformed
	}
	total := ip6Len + int(binary.BigEndian.Uint16(p[4:]))
	if total > len(p) {
		return ErrMalformed
	}
	s.frame = s.frame[:s.l3+total]
	p = p[:total]
	next, at := p[6], ip6Len
	for next == 0 || next == 43 || next == 60 { // hop-by-hop, routing, destination options
		if at+8 > len(p) {
			return ErrMalformed
		}
		if next == 43 && p[at+3] != 0 {
			return ErrProtocol
		}
		next, at = p[at], at+8+8*int(p[at+1])
	}
	if at > len(p) {
		return ErrMalformed
	}
	s.l4 = s.l3 + at
	s.pseudo = pseudoSum(p[8:40], next)
	return s.isTransport(next)
}

// pseudoSum is the sum of the pseudo header but for its length, in 16 bits.
func pseudoSum(addrs []byte, proto byte) uint64 {
	return uint64(^packet.Fold(packet.Sum(addrs, uint64(proto))))
}

// isTransport checks that the protocol is the one to cut.
func (s *Segments) isTransport(proto byte) error {
	switch {
	case proto == protoTCP && !s.udp, proto == protoUDP && s.udp:
		return nil
	case proto == protoTCP || proto == protoUDP:
		return ErrMalformed // not what the virtio-net header says
	}
	return ErrProtocol
}

// transport checks the transport header and counts the segments.
func (s *Segments) transport(v *ring.Vnet) error {
	p := s.frame[s.l4:]
	field := 16
	if s.udp {
		if len(p) < udpLen || int(binary.BigEndian.Uint16(p[4:])) != len(p) {
			return ErrMalformed
		}
		field, s.hdr = 6, s.l4+udpLen
		s.nosum = v.Flags&ring.VnetNeedCsum == 0 && p[6] == 0 && p[7] == 0 && !s.v6
	} else {
		if len(p) < tcpLen {
			return ErrMalformed
		}
		off := int(p[12]>>4) * 4
		if off < tcpLen || off > len(p) {
			return ErrMalformed
		}
		s.hdr = s.l4 + off
	}
	if v.Flags&ring.VnetNeedCsum != 0 && (int(v.CsumStart) != s.l4 || int(v.CsumOffset) != field) {
		return ErrMalformed
	}
	// A super-frame without payload is one ordinary frame.
	s.n = max(1, (len(s.frame)-s.hdr+s.size-1)/s.size)
	return nil
}

// Len returns the number of segments, 0 if Init has failed.
func (s *Segments) Len() int { return s.n }

// MaxLen returns the bytes of the largest segment, link header included.
func (s *Segments) MaxLen() int { return min(s.hdr+s.size, len(s.frame)) }

// Next writes the next segment to dst, which has room for MaxLen bytes, and
// returns its length; 0 if there are no more.
func (s *Segments) Next(dst []byte) int {
	if s.i >= s.n {
		return 0
	}
	from := s.hdr + s.i*s.size
	to := min(from+s.size, len(s.frame))
	n := s.hdr + to - from
	dst = dst[:n]
	copy(dst, s.frame[:s.hdr])
	copy(dst[s.hdr:], s.frame[from:to])
	s.network(dst)
	l4 := dst[s.l4:]
	acc := s.pseudo + uint64(len(l4))
	if s.udp {
		s.datagram(l4, acc)
	} else {
		s.segment(l4, acc)
	}
	s.i++
	return n
}

// network writes what changes in the network header.
func (s *Segments) network(dst []byte) {
	p := dst[s.l3:]
	if s.v6 {
		binary.BigEndian.PutUint16(p[4:], uint16(len(p)-ip6Len))
		return
	}
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	binary.BigEndian.PutUint16(p[4:], binary.BigEndian.Uint16(p[4:])+uint16(s.i))
	p[10], p[11] = 0, 0
	binary.BigEndian.PutUint16(p[10:], packet.Fold(packet.Sum(p[:s.l4-s.l3], 0)))
}

// segment writes what changes in a TCP header; acc is the pseudo header's sum.
func (s *Segments) segment(p []byte, acc uint64) {
	binary.BigEndian.PutUint32(p[4:], binary.BigEndian.Uint32(p[4:])+uint32(s.i)*uint32(s.size))
	if s.i != s.n-1 {
		p[13] &^= tcpFIN | tcpPSH
	}
	if s.i != 0 {
		p[13] &^= tcpCWR
	}
	p[16], p[17] = 0, 0
	binary.BigEndian.PutUint16(p[16:], packet.Fold(packet.Sum(p, acc)))
}

// datagram writes what changes in a UDP header.
func (s *Segments) datagram(p []byte, acc uint64) {
	binary.BigEndian.PutUint16(p[4:], uint16(len(p)))
	if s.nosum {
		return
	}
	p[6], p[7] = 0, 0
	binary.BigEndian.PutUint16(p[6:], packet.UDPChecksum(packet.Fold(packet.Sum(p, acc))))
}
