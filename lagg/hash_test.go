package lagg

import (
	"encoding/binary"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// udp builds a frame of a flow; v6, tags and fragments as asked for.
func udp(src, dst uint32, sp, dp uint16, tags int, frag uint16) []byte {
	b := []byte("\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01")
	for i := range tags {
		b = append(b, 0x81, 0, 0, byte(i+1))
	}
	b = append(b, 8, 0, 0x45, 0, 0, 28)
	b = append(b, 0, 0)
	b = binary.BigEndian.AppendUint16(b, frag)
	b = append(b, 64, 17, 0, 0)
	b = binary.BigEndian.AppendUint32(b, src)
	b = binary.BigEndian.AppendUint32(b, dst)
	b = binary.BigEndian.AppendUint16(b, sp)
	b = binary.BigEndian.AppendUint16(b, dp)
	return append(b, 0, 8, 0, 0)
}

func TestHash(t *testing.T) {
	h := Hasher{Fields: L3 | L4, Seed: 1}
	base := h.Hash(udp(1, 2, 3, 4, 0, 0))
	for name, c := range map[string]struct {
		h     Hasher
		frame []byte
		same  bool
	}{
		"other source":            {h, udp(9, 2, 3, 4, 0, 0), false},
		"other port":              {h, udp(1, 2, 3, 5, 0, 0), false},
		"reverse":                 {h, udp(2, 1, 4, 3, 0, 0), false},
		"tagged, no l2":           {h, udp(1, 2, 3, 4, 2, 0), true},
		"other seed":              {Hasher{Fields: L3 | L4, Seed: 2}, udp(1, 2, 3, 4, 0, 0), false},
		"first fragment":          {h, udp(1, 2, 3, 4, 0, 0x2000), false},
		"with l2":                 {Hasher{Fields: L2 | L3 | L4, Seed: 1}, udp(1, 2, 3, 4, 0, 0), false},
		"only l3 of a later part": {h, udp(1, 2, 0x1111, 0x2222, 0, 5), false},
	} {
		if got := c.h.Hash(c.frame); (got == base) != c.same {
			t.Errorf("%s: hash equal to the base's: %v", name, got == base)
		}
	}
	if h.Hash(udp(1, 2, 3, 4, 0, 0x2000)) != h.Hash(udp(1, 2, 7, 8, 0, 5)) {
		t.Error("fragments of one datagram hash differently")
	}
	for _, f := range []Fields{L2, L3, L4, L2 | L3, L3 | L4, L2 | L3 | L4} {
		s := Hasher{Fields: f, Seed: 1, Symmetric: true}
		fwd, back := udp(1, 2, 3, 4, 1, 0), udp(2, 1, 4, 3, 1, 0)
		copy(back, fwd[6:12])
		copy(back[6:], fwd[:6])
		if s.Hash(fwd) != s.Hash(back) {
			t.Errorf("symmetric hash over %v differs by direction", f)
		}
	}
}

func FuzzHash(f *testing.F) {
	f.Add(udp(1, 2, 3, 4, 2, 0), uint8(7))
	f.Add([]byte{}, uint8(1))
	f.Fuzz(func(t *testing.T, frame []byte, opts uint8) {
		h := Hasher{Fields: Fields(opts & 7), Seed: 3, Symmetric: opts&8 != 0, Inner: opts&16 != 0}
		if h.Hash(frame) != h.Hash(append([]byte(nil), frame...)) {
			t.Error("hash depends on more than the frame")
		}
	})
}

// hashOf is Hash written again for frames that the test makes itself: it is
// told what the frame has, and finds nothing by itself.
func hashOf(h *Hasher, c *flowCase) uint64 {
	var k []byte
	k = binary.LittleEndian.AppendUint64(k, h.Seed)
	src, dst, sp, dp := c.src, c.dst, c.sp, c.dp
	macs := [2]string{"\x02\x00\x00\x00\x00\x01", "\x02\x00\x00\x00\x00\x02"}
	ports := h.Fields&L4 != 0 && !c.fragment
	addresses := h.Fields&L3 != 0 || h.Fields&L4 != 0 && c.fragment
	if h.Symmetric && (src > dst || src == dst && sp > dp) {
		src, dst, sp, dp = dst, src, dp, sp
	}
	if h.Symmetric && !addresses && sp > dp {
		sp, dp = dp, sp
	}
	if h.Fields&L2 != 0 {
		k = append(append(k, macs[0]...), macs[1]...)
		for i := range c.tags {
			k = append(k, 0, byte(i+1))
		}
	}
	if addresses {
		k = append(append(k, src...), dst...)
	}
	if ports {
		k = append(k, byte(sp>>8), byte(sp), byte(dp>>8), byte(dp), 17)
	}
	return xxhash.Sum64(k)
}

// flowCase is what a frame is made of.
type flowCase struct {
	src, dst string // 4 or 16 bytes
	sp, dp   uint16
	tags     int
	ext      int // IPv6 extension headers
	fragment bool
	outer    int // tunnels around it: 0 none, 1 IP in IP, 2 VXLAN
}

func (c *flowCase) frame() []byte {
	l4 := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, c.sp), c.dp)
	l4 = append(l4, 0, 8, 0, 0)
	if len(c.src) == 4 {
		b := udp(0, 0, 0, 0, c.tags, 0)
		ip := b[len(b)-28:]
		copy(ip[12:], c.src)
		copy(ip[16:], c.dst)
		copy(ip[20:], l4)
		if c.fragment {
			ip[6] = 0x20
		}
		return c.wrap(b)
	}
	b := udp(0, 0, 0, 0, c.tags, 0)
	b = b[:len(b)-28]
	b[len(b)-2], b[len(b)-1] = 0x86, 0xdd
	kinds := []byte{0, 43, 60}[:c.ext]
	if c.fragment {
		kinds = append(kinds, 44)
	}
	kinds = append(kinds, 17)
	b = append(b, 0x60, 0, 0, 0, 0, byte(8*len(kinds)), kinds[0], 64)
	b = append(append(b, c.src...), c.dst...)
	for i := range len(kinds) - 1 {
		h := []byte{kinds[i+1], 0, 0, 0, 0, 0, 0, 0}
		if kinds[i] == 44 {
			h[3] = 1
		}
		b = append(b, h...)
	}
	return c.wrap(append(b, l4...))
}

// wrap puts an untagged frame into a tunnel between two hosts.
func (c *flowCase) wrap(b []byte) []byte {
	if c.outer == 0 {
		return b
	}
	o := udp(7, 8, 9, 4789, 0, 0)
	if c.outer == 1 {
		o[23] = 4
		if len(c.src) == 16 {
			o[23] = 41
		}
		o, b = o[:34], b[14:]
	} else {
		o = append(o, 8, 0, 0, 0, 0, 0, 42, 0)
	}
	binary.BigEndian.PutUint16(o[16:], uint16(len(o)-14+len(b)))
	return append(o, b...)
}

func FuzzHashModel(f *testing.F) {
	for i := range uint16(64) {
		f.Add(uint32(i), uint32(9), i, uint16(77), uint8(i), uint8(i*7), i%2 == 0)
	}
	f.Fuzz(func(t *testing.T, src, dst uint32, sp, dp uint16, fields, shape uint8, symmetric bool) {
		h := &Hasher{Fields: Fields(1 + fields%7), Seed: uint64(src)<<32 | 5, Symmetric: symmetric, Inner: true}
		c := &flowCase{sp: sp, dp: dp, tags: int(shape & 3), fragment: shape&4 != 0}
		c.src, c.dst = string(binary.BigEndian.AppendUint32(nil, src)), string(binary.BigEndian.AppendUint32(nil, dst))
		if shape&8 != 0 {
			c.src, c.dst = "0123456789ab"+c.src, "0123456789ab"+c.dst
			c.ext = int(shape >> 4 & 3)
		}
		if c.tags == 0 {
			c.outer = int(shape>>6) % 3
		}
		if got, want := h.Hash(c.frame()), hashOf(h, c); got != want {
			t.Errorf("%+v by %+v: %#x, want %#x\n% x", c, h, got, want, c.frame())
		}
	})
}

func TestHashFallsBack(t *testing.T) {
	arp := append([]byte("\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x08\x06"), make([]byte, 28)...)
	other := append([]byte(nil), arp...)
	other[11] = 9
	h := Hasher{Fields: L3 | L4, Seed: 1}
	if h.Hash(arp) == h.Hash(other) {
		t.Error("ARP of two stations is not told apart")
	}
	h.Fields = L4
	if h.Hash(udp(1, 2, 3, 4, 0, 0x2000)) == h.Hash(udp(9, 2, 3, 4, 0, 0x2000)) {
		t.Error("fragments of two hosts are not told apart by l4")
	}
}
