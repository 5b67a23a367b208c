package ring_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/netring/netring/ring"
)

func TestNewRefuses(t *testing.T) {
	good := func() ring.Config {
		return ring.Config{Slots: 8, Dir: ring.TX, Region: region(t, 8, 256), Life: ring.NewLife(), Driver: &kernel{}}
	}
	if _, err := ring.New(good()); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(c *ring.Config){
		"0 slots":          func(c *ring.Config) { c.Slots = 0 },
		"12 slots":         func(c *ring.Config) { c.Slots = 12 },
		"a region":         func(c *ring.Config) { c.Region = nil },
		"a life":           func(c *ring.Config) { c.Life = nil },
		"a driver":         func(c *ring.Config) { c.Driver = nil },
		"11 bytes":         func(c *ring.Config) { c.VnetLen = 11 },
		"largest frame -1": func(c *ring.Config) { c.MaxFrame = -1 },
		"largest frame 65": func(c *ring.Config) { c.MaxFrame = ring.MaxFrame + 1 },
		"frame offset 9":   func(c *ring.Config) { c.VnetLen, c.Offset = 10, 9 },
		"frame offset 257": func(c *ring.Config) { c.Offset = 257 },
	} {
		c := good()
		spoil(&c)
		if _, err := ring.New(c); err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(want, "a ")) {
			t.Errorf("%s: error %v", want, err)
		}
	}
}

// TestCursors tries every head and cur around a small ring: those in order
// within [accepted, tail] pass, all others are refused and put back.
func TestCursors(t *testing.T) {
	for _, start := range []uint32{0, 1<<32 - 3, 1<<31 - 2} {
		for mine := range uint32(5) {
			for head := start - 6; head != start+12; head++ {
				for cur := start - 6; cur != start+12; cur++ {
					r, d := newRing(t, ring.RX, geometry{slots: 4, region: region(t, 4, 64)})
					r.Seed(start)
					d.grant = mine
					if err := r.Sync(); err != nil {
						t.Fatal(err)
					}
					r.Head, r.Cur = head, cur
					err := r.Sync()
					if h, c := head-start, cur-start; h <= mine && c <= mine && h <= c {
						if err != nil || r.Accepted() != head || r.Cur != cur {
							t.Fatalf("start %d, %d slots, head %d, cur %d: %v", start, mine, head, cur, err)
						}
						continue
					}
					var op *ring.OpError
					if !errors.Is(err, ring.ErrCursor) || !errors.As(err, &op) || op.Op != "sync" || op.Port != "test rx" {
						t.Fatalf("start %d, %d slots, head %d, cur %d: %v", start, mine, head, cur, err)
					}
					if r.Head != start || r.Cur != start || r.Accepted() != start || r.Tail() != start+mine {
						t.Fatalf("after the error: head %d, cur %d, tail %d", r.Head, r.Cur, r.Tail())
					}
				}
			}
		}
	}
}

// TestRefusedSlots: what the driver does not take over is the program's again.
func TestRefusedSlots(t *testing.T) {
	r, d := newRing(t, ring.TX, geometry{slots: 8, region: region(t, 8, 64)})
	r.Seed(1<<32 - 2)
	r.Head += 5
	r.Cur = r.Head
	d.bad, d.err = r.Accepted()+3, fmt.Errorf("%w: number 3", ring.ErrSlot)
	if err := r.Sync(); !errors.Is(err, ring.ErrSlot) || r.Head != 1 || r.Accepted() != 1 || r.Cur != 3 {
		t.Fatalf("%v; head %d, accepted %d, cur %d", err, r.Head, r.Accepted(), r.Cur)
	}
	if r.Space() != 5 || r.Pending() != 3 || r.Stats.Syncs.Load() != 1 {
		t.Errorf("space %d, pending %d, syncs %d", r.Space(), r.Pending(), r.Stats.Syncs.Load())
	}
	d.err = nil
	d.grant = 3
	if err := r.Sync(); err != nil || r.Space() != 8 || r.Pending() != 0 || !r.Ready() {
		t.Errorf("%v; space %d, pending %d", err, r.Space(), r.Pending())
	}
}

// TestAbsentAbilities: a ring whose driver has none of them says so, or does
// nothing.
func TestAbsentAbilities(t *testing.T) {
	r, _ := newRing(t, ring.TX, geometry{slots: 8, region: region(t, 8, 64)})
	r.Arm()
	var m ring.Meta
	if r.Meta(0, &m) {
		t.Error("knows something about a frame")
	}
	if err := r.Refresh(); err != nil {
		t.Error(err)
	}
	if err := r.Reset(); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

func TestVnet(t *testing.T) {
	for _, n := range []int{ring.VnetLen, ring.VnetLenMrg} {
		r, _ := newRing(t, ring.TX, geometry{slots: 1, vnet: n, offset: 16, region: region(t, 1, 64)})
		b := r.Region().Buf(0)
		copy(b, bytes.Repeat([]byte{0xee}, 64))
		var v ring.Vnet
		if r.Vnet(0, &v) {
			t.Error("a header in a slot without the flag")
		}
		s := r.Slot(0)
		s.Len = 20
		if !r.SetVnet(0, header) || s.Flags != vn|gso || !r.Vnet(0, &v) || v != *header {
			t.Errorf("wrote %+v, read %+v with flags %#x", *header, v, s.Flags)
		}
		for i := range 64 {
			if in := i >= 16-n && i < 16; !in && b[i] != 0xee || i >= 16-n+ring.VnetLen && i < 16 && b[i] != 0 {
				t.Errorf("byte %d is %#x", i, b[i])
			}
		}
		if !r.SetVnet(0, &ring.Vnet{}) || s.Flags != vn {
			t.Errorf("no super-frame any more, and flags %#x", s.Flags)
		}
		s.Off = uint32(n - 1)
		if s.Flags = 0; r.SetVnet(0, header) || s.Flags != 0 {
			t.Error("a header before the buffer")
		}
		if s.Flags = vn; r.Vnet(0, &v) {
			t.Error("a header before the buffer")
		}
	}
	r, _ := newRing(t, ring.TX, geometry{slots: 1, offset: 16, region: region(t, 1, 64)})
	if r.SetVnet(0, header) || r.Slot(0).Flags != 0 {
		t.Error("a header in a ring without")
	}
}

// TestVnetBytes compares with the layout of struct virtio_net_hdr.
func TestVnetBytes(t *testing.T) {
	v := ring.Vnet{Flags: 1, GSOType: 2, HdrLen: 0x0303, GSOSize: 0x0404, CsumStart: 0x0505, CsumOffset: 0x0606}
	b := bytes.Repeat([]byte{0xff}, 14)
	v.Encode(b)
	if want := []byte{1, 2, 3, 3, 4, 4, 5, 5, 6, 6, 0, 0, 0xff, 0xff}; !bytes.Equal(b, want) {
		t.Errorf("encoded % x, want % x", b, want)
	}
}

func FuzzVnet(f *testing.F) {
	f.Add(make([]byte, 10))
	f.Add([]byte{1, 0x81, 54, 0, 0xa8, 5, 34, 0, 16, 0, 1, 2})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < ring.VnetLen {
			return
		}
		var v, w ring.Vnet
		v.Decode(b)
		c := make([]byte, len(b))
		v.Encode(c)
		w.Decode(c)
		if v != w || !bytes.Equal(b[:ring.VnetLen], c[:ring.VnetLen]) {
			t.Fatalf("% x decodes to %+v, which encodes to % x", b, v, c)
		}
	})
}

func TestRegion(t *testing.T) {
	for _, c := range []struct{ bytes, stride int }{{64, 0}, {64, -1}, {63, 64}, {0, 1}} {
		if _, err := ring.NewRegion(make([]byte, c.bytes), c.stride); err == nil {
			t.Errorf("region of %d bytes, %d each: no error", c.bytes, c.stride)
		}
	}
	g := region(t, 3, 64)
	g.WithLarge(ring.NewLarge(2, 1024))
	for i, want := range []int{64, 64, 64, 1024, 1024, 0} {
		if n := len(g.Buf(uint32(i))); n != want {
			t.Errorf("buffer %d has %d bytes, want %d", i, n, want)
		}
	}
	for _, c := range []struct {
		s      ring.Slot
		before int
		holds  bool
	}{
		{ring.Slot{Buf: 2, Len: 64}, 0, true}, {ring.Slot{Buf: 2, Len: 65}, 0, false},
		{ring.Slot{Buf: 2, Off: 64}, 0, true}, {ring.Slot{Buf: 2, Off: 65}, 0, false},
		{ring.Slot{Buf: 2, Off: 1<<32 - 1, Len: 2}, 0, false}, {ring.Slot{Buf: 2, Off: 9, Len: 1}, 10, false},
		{ring.Slot{Buf: 2, Off: 10, Len: 54}, 10, true},
		{ring.Slot{Buf: 4, Off: 10, Len: 1014}, 10, true}, {ring.Slot{Buf: 4, Off: 10, Len: 1015}, 10, false},
		{ring.Slot{Buf: 5}, 0, false}, {ring.Slot{Buf: 1<<32 - 1}, 0, false},
	} {
		if got := g.Holds(&c.s, c.before); got != c.holds {
			t.Errorf("%+v with %d before: %v, want %v", c.s, c.before, got, c.holds)
		}
		if b := g.Frame(&c.s); c.before == 0 && ((b != nil) != c.holds || c.holds && (len(b) != int(c.s.Len) || cap(b) != len(b))) {
			t.Errorf("%+v: %d bytes, capacity %d", c.s, len(b), cap(b))
		}
	}
	g.Forget()
	if g.Buf(0) != nil || g.Buf(3) != nil || g.Bufs() != 0 || g.Holds(&ring.Slot{}, 0) {
		t.Error("a forgotten region has buffers")
	}
}

func TestErrors(t *testing.T) {
	err := error(&ring.OpError{Op: "open", Port: "eth0", Ring: -1, Err: &ring.UnsupportedError{Feature: "X", Since: "6.5", Err: ring.ErrGone}})
	if !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, ring.ErrGone) ||
		err.Error() != "open eth0: X is not supported by this kernel (needs Linux 6.5): interface is gone" {
		t.Error(err)
	}
	for c := range ring.NumCauses {
		if c.String() == "unknown" || c.String() == "" {
			t.Errorf("cause %d has no name", c)
		}
	}
}
