package packet

import (
	"encoding/binary"
	"math/bits"
)

// Sum adds b to the one's complement sum s (RFC 1071), as big endian 16-bit
// words. Start with 0 or what [PseudoSum] gives. Parts may be added one after
// the other if all but the last are of even length.
//
// The sum does not care about byte order as long as it is one throughout (RFC
// 1071, section 2 B): b is added up in little endian, which costs nothing on
// most machines, and turned once.
func Sum(b []byte, s uint64) uint64 {
	le := binary.LittleEndian
	var t, c uint64
	for len(b) >= 32 {
		t, c = bits.Add64(t, le.Uint64(b), 0)
		t, c = bits.Add64(t, le.Uint64(b[8:]), c)
		t, c = bits.Add64(t, le.Uint64(b[16:]), c)
		t, c = bits.Add64(t, le.Uint64(b[24:]), c)
		t, c = bits.Add64(t, 0, c)
		t += c
		b = b[32:]
	}
	for len(b) >= 8 {
		t, c = bits.Add64(t, le.Uint64(b), 0)
		t += c
		b = b[8:]
	}
	if len(b) != 0 {
		var rest uint64
		for i, x := range b {
			rest |= uint64(x) << (8 * i)
		}
		t, c = bits.Add64(t, rest, 0)
		t += c
	}
	s, c = bits.Add64(s, bits.ReverseBytes64(t), 0)
	return s + c
}

// Fold makes the 16-bit checksum of a sum: its one's complement, as it stands
// in a header (big endian).
func Fold(s uint64) uint16 {
	s = s>>32 + s&0xffffffff
	s = s>>32 + s&0xffffffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	return ^uint16(s)
}

// IPv4Checksum is the checksum of the IPv4 header h, options and all, whatever
// its checksum field holds. h has at least 20 bytes.
func IPv4Checksum(h []byte) uint16 {
	return Fold(Sum(h[12:], Sum(h[:10], 0)))
}

// PseudoSum is the sum of the pseudo header of TCP, UDP and ICMPv6: addresses
// of 4 or 16 bytes, protocol, and n, the length of the transport header with
// its payload.
func PseudoSum(src, dst []byte, proto uint8, n int) uint64 {
	return Sum(src, Sum(dst, uint64(proto)+uint64(uint32(n))))
}

// UDPChecksum turns a checksum of 0, which means that there is none in UDP,
// into its equal 0xffff.
func UDPChecksum(c uint16) uint16 {
	if c == 0 {
		return 0xffff
	}
	return c
}

// Update16 is the checksum c after a 16-bit word of what it covers, at an even
// offset, has changed (RFC 1624, equation 3).
func Update16(c, before, after uint16) uint16 {
	return Fold(uint64(^c) + uint64(^before) + uint64(after))
}

// Update32 is [Update16] for a 32-bit word.
func Update32(c uint16, before, after uint32) uint16 {
	return Fold(uint64(^c) + uint64(^before) + uint64(after))
}
