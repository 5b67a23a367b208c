package finish

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/netring/netring/internal/packet"
	"github.com/netring/netring/ring"
)

// checksumOK checks a segment's checksums by the rule that the sum over all,
// the field included, is all ones.
func checksumOK(s *Segments, b []byte) bool {
	l4 := b[s.l4:]
	if packet.Fold(packet.Sum(l4, s.pseudo+uint64(len(l4)))) != 0 && !s.nosum {
		return false
	}
	return s.v6 || packet.Fold(packet.Sum(b[s.l3:s.l4], 0)) == 0
}

func FuzzSegments(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 12 {
		b, v := randomFlow(r).super(f)
		f.Add(b[:min(len(b), 2000)], v.Flags, v.GSOType, v.GSOSize, v.CsumStart, v.CsumOffset)
	}
	f.Fuzz(func(t *testing.T, b []byte, flags, gso uint8, size, start, off uint16) {
		v := ring.Vnet{Flags: flags, GSOType: gso, GSOSize: size, CsumStart: start, CsumOffset: off}
		var s Segments
		if err := s.Init(b, &v); err != nil {
			if s.Next(make([]byte, len(b))) != 0 {
				t.Fatal("a segment after a failure")
			}
			_ = Checksum(b, &v)
			return
		}
		payload, buf := 0, make([]byte, s.MaxLen())
		for range s.Len() {
			n := s.Next(buf)
			if n < s.hdr || n > s.MaxLen() || n-s.hdr > int(size) {
				t.Fatalf("segment of %d bytes, header %d, at most %d", n, s.hdr, size)
			}
			if !checksumOK(&s, buf[:n]) {
				t.Fatalf("checksum of %x", buf[:n])
			}
			payload += n - s.hdr
		}
		if payload != len(s.frame)-s.hdr {
			t.Fatalf("%d bytes of payload, want %d", payload, len(s.frame)-s.hdr)
		}
	})
}

func BenchmarkSegments(b *testing.B) {
	for _, size := range []int{536, 1448, 8948} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			f := &flow{size: size, payload: make([]byte, 64000), tcpopt: true}
			frame, v := f.super(b)
			buf := make([]byte, 9100)
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			for b.Loop() {
				var s Segments
				if err := s.Init(frame, &v); err != nil {
					b.Fatal(err)
				}
				for s.Next(buf) != 0 {
				}
			}
		})
	}
}

func BenchmarkChecksum(b *testing.B) {
	for _, size := range []int{60, 1514} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			frame := make([]byte, size)
			v := ring.Vnet{Flags: ring.VnetNeedCsum, CsumStart: 34, CsumOffset: 16}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if err := Checksum(frame, &v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
