package finish

import (
	"encoding/binary"
	"math/bits"
)

// sum adds b to the one's complement sum acc (RFC 1071). The sum does not care
// about byte order as long as it is one throughout, so this is in little
// endian whatever the machine; a big endian number must be turned by be16. A
// part that does not end the data must be of even length.
func sum(b []byte, acc uint64) uint64 {
	le := binary.LittleEndian
	var c uint64
	for len(b) >= 32 {
		acc, c = bits.Add64(acc, le.Uint64(b), 0)
		acc, c = bits.Add64(acc, le.Uint64(b[8:]), c)
		acc, c = bits.Add64(acc, le.Uint64(b[16:]), c)
		acc, c = bits.Add64(acc, le.Uint64(b[24:]), c)
		acc, c = bits.Add64(acc, 0, c)
		acc += c
		b = b[32:]
	}
	for len(b) >= 8 {
		acc, c = bits.Add64(acc, le.Uint64(b), 0)
		acc += c
		b = b[8:]
	}
	if len(b) == 0 {
		return acc
	}
	var rest uint64
	for i, x := range b {
		rest |= uint64(x) << (8 * i)
	}
	acc, c = bits.Add64(acc, rest, 0)
	return acc + c
}

// be16 is a big endian 16-bit number as sum sees it.
func be16(n uint16) uint64 { return uint64(bits.ReverseBytes16(n)) }

// add is a + b in one's complement.
func add(a, b uint64) uint64 {
	a, c := bits.Add64(a, b, 0)
	return a + c
}

// fold makes the 16-bit checksum of a sum.
func fold(acc uint64) uint16 {
	acc = acc>>32 + acc&0xffffffff
	acc = acc>>32 + acc&0xffffffff
	acc = acc>>16 + acc&0xffff
	acc = acc>>16 + acc&0xffff
	return ^uint16(acc)
}

// putSum stores a folded checksum at the start of b.
func putSum(b []byte, s uint16) { binary.LittleEndian.PutUint16(b, s) }
