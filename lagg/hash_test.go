package lagg

import (
	"encoding/binary"
	"testing"
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
