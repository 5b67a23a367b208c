package vale

import (
	"encoding/binary"
	"fmt"
	"net"
)

// MAC is an Ethernet address as a number: the first byte on the wire is the
// most significant of the low 48 bits.
type MAC uint64

// Ethernet addresses and headers.
const (
	headerLen = 14
	macMask   = 1<<48 - 1
	reserved  = 0x0180c2000000 // the first of 16 link-local group addresses
)

// ParseMAC reads an address of 6 bytes in any notation of [net.ParseMAC].
func ParseMAC(s string) (MAC, error) {
	a, err := net.ParseMAC(s)
	if err != nil {
		return 0, fmt.Errorf("parse address: %w", err)
	}
	if len(a) != 6 {
		return 0, fmt.Errorf("parse address: %s has %d bytes: must have 6", s, len(a))
	}
	return MACOf([6]byte(a)), nil
}

// MACOf is the address in six bytes.
func MACOf(b [6]byte) MAC {
	return MAC(binary.BigEndian.Uint32(b[:]))<<16 | MAC(binary.BigEndian.Uint16(b[4:]))
}

// Bytes returns the address as it stands in a frame.
func (m MAC) Bytes() (b [6]byte) {
	binary.BigEndian.PutUint32(b[:], uint32(m>>16))
	binary.BigEndian.PutUint16(b[4:], uint16(m))
	return b
}

// Group reports whether m is a multicast or the broadcast address.
func (m MAC) Group() bool { return m>>40&1 != 0 }

func (m MAC) String() string {
	b := m.Bytes()
	return net.HardwareAddr(b[:]).String()
}

// addresses reads both addresses of a frame of at least headerLen bytes.
func addresses(f []byte) (dst, src MAC) {
	_ = f[headerLen-1]
	return MAC(binary.BigEndian.Uint64(f) >> 16), MAC(binary.BigEndian.Uint64(f[4:]) & macMask)
}
