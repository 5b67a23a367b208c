package gen

import (
	"strings"
	"testing"
)

func TestConstantFrames(t *testing.T) {
	for _, proto := range []Proto{UDP, TCP, ICMP} {
		for _, src := range []string{"10.0.0.1:7", "[2001:db8::1]:7"} {
			dst := strings.Replace(src, "1:", "2:", 1)
			dst = strings.Replace(dst, "::1]", "::2]", 1)
			c := Config{Src: mustRange(t, src, 0), Dst: mustRange(t, dst, 0), Proto: proto, Sizes: mustSizes(t, "81"), Pattern: []byte("abc")}
			varying := c
			varying.Src.LastPort++
			one, err := New(c, 0, 1)
			if err != nil {
				t.Fatal(err)
			}
			two, err := New(varying, 0, 1)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 6 {
				a, b := make([]byte, 100), make([]byte, 100)
				if n, m := one.Next(a, nil), two.Next(b, nil); n != 81 || m != 81 || (string(a) == string(b)) != (i%2 == 0) {
					t.Fatalf("%s, protocol %d, frame %d: %d and %d bytes\n% x\n% x", src, proto, i, n, m, a, b)
				}
				checked(t, a[:81])
				clear(a)
			}
			if n := one.Next(make([]byte, 80), nil); n != 0 {
				t.Errorf("%d bytes written into 80", n)
			}
		}
	}
}

// A primed buffer brings the same frames as any other.
func TestPrimedFrames(t *testing.T) {
	for _, sizes := range []string{"60", "111", "random:82-1514", "imix"} {
		for _, src := range []string{"10.0.0.1:7", "10.0.0.1:1-10.0.0.9:999"} {
			for _, probe := range []bool{false, true} {
				if probe && (sizes == "60" || sizes == "imix") {
					continue // too small
				}
				c := Config{Src: mustRange(t, src, 0), Dst: mustRange(t, "10.0.1.1", 9), Sizes: mustSizes(t, sizes), Pattern: []byte("abc"), Probe: probe}
				one, err := New(c, 0, 1)
				if err != nil {
					t.Fatal(err)
				}
				two, err := New(c, 0, 1)
				if err != nil {
					t.Fatal(err)
				}
				if one.Prime(make([]byte, c.Sizes.Max()-1)) {
					t.Errorf("sizes %s: primed a buffer that is too small", sizes)
				}
				bufs := [2][]byte{make([]byte, 1600), make([]byte, 1600)}
				for _, b := range bufs {
					if !one.Prime(b) {
						t.Fatal("not primed")
					}
				}
				want := make([]byte, 1600)
				for i := range 200 {
					p := Probe{Seq: uint64(i), Time: int64(i) << 40}
					got := bufs[i%2]
					n, m := one.NextIn(got, &p), two.Next(want, &p)
					if n != m || string(got[:n]) != string(want[:m]) {
						t.Fatalf("sizes %s, source %s, frame %d: %d and %d bytes\n% x\n% x", sizes, src, i, n, m, got[:n], want[:m])
					}
				}
			}
		}
	}
}

func BenchmarkNext(b *testing.B) {
	for name, sizes := range map[string]string{"60": "60", "60/same": "60", "1514": "1514", "imix": "imix"} {
		src := "10.0.0.1:1-10.0.0.9:999"
		if strings.HasSuffix(name, "same") {
			src = "10.0.0.1:1"
		}
		cfg := func(b *testing.B) Config {
			return Config{Src: mustRange(b, src, 0), Dst: mustRange(b, "10.0.1.1", 9), Sizes: mustSizes(b, sizes)}
		}
		b.Run(name, func(b *testing.B) {
			g, err := New(cfg(b), 0, 1)
			if err != nil {
				b.Fatal(err)
			}
			buf := make([]byte, 2048)
			b.ReportAllocs()
			for b.Loop() {
				g.Next(buf, nil)
			}
		})
		b.Run(name+"/primed", func(b *testing.B) {
			g, err := New(cfg(b), 0, 1)
			if err != nil {
				b.Fatal(err)
			}
			buf := make([]byte, 2048)
			g.Prime(buf)
			b.ReportAllocs()
			for b.Loop() {
				g.NextIn(buf, nil)
			}
		})
	}
}
