package ring_test

import (
	"bytes"
	"testing"

	"github.com/netring/netring/ring"
)

// fate is what [ring.Move] must do with a frame, worked out slowly.
type fate struct {
	drop  ring.Cause
	lost  bool
	slots uint32 // of dst
	bytes []byte
	flags ring.SlotFlags
}

// judge says what is to become of the frame in the k slots of src from its head.
// shared says that a frame need not fit the place in dst's buffer that a copy
// goes to.
func judge(dst, src *ring.Ring, k uint32, shared bool) fate {
	slots := make([]ring.Slot, k)
	var joined []byte
	holds := true
	for i := range slots {
		slots[i] = *src.Slot(src.Head + uint32(i))
		b := src.Frame(src.Head + uint32(i))
		holds = holds && b != nil
		joined = append(joined, b...)
	}
	f := slots[0].Flags
	room := dst.Region().BufSize() - dst.Offset()
	super := f&vn != 0 && f&gso != 0
	lost := func(c ring.Cause) fate { return fate{lost: true, drop: c} }
	header := func(s *ring.Slot) bool {
		return s.Flags&vn == 0 || src.VnetLen() != 0 && int(s.Off) >= src.VnetLen()
	}
	carries := func(s *ring.Slot, n int) (fate, bool) {
		switch {
		case s.Flags&ring.SlotTruncated != 0:
			return lost(ring.DropTruncated), false
		case s.Flags&vn != 0 && dst.VnetLen() == 0:
			return lost(ring.DropOffload), false
		case n > dst.MaxFrame() && (s.Flags&vn == 0 || s.Flags&gso == 0):
			return lost(ring.DropOversize), false
		}
		return fate{}, true
	}
	carried := f & (vn | gso | ring.SlotVLAN | ring.SlotMulticast | ring.SlotBroadcast | ring.SlotOtherHost)
	ok := fate{slots: k, bytes: joined, flags: carried}
	if k > 1 {
		switch {
		case !holds:
			return lost(ring.DropMalformed)
		case len(joined) > dst.MaxFrame() && !dst.MultiSlot() && !super, len(joined) > ring.MaxFrame:
			return lost(ring.DropOversize)
		case dst.MultiSlot() && int(k) > dst.Len():
			return lost(ring.DropOversize)
		}
		if d, ok := carries(&slots[0], 0); !ok {
			return d
		}
		if !dst.MultiSlot() {
			switch {
			case len(joined) > room:
				return lost(ring.DropOversize)
			case !header(&slots[0]):
				return lost(ring.DropMalformed)
			}
			ok.slots = 1
			return ok
		}
	}
	for i := range slots {
		s := &slots[i]
		if d, ok := carries(s, int(s.Len)); !ok {
			return d
		}
		copied := !shared || s.Flags&vn != 0 && src.VnetLen() != dst.VnetLen()
		switch {
		case src.Frame(src.Head+uint32(i)) == nil:
			return lost(ring.DropMalformed)
		case copied && int(s.Len) > room:
			return lost(ring.DropOversize)
		case !header(s):
			return lost(ring.DropMalformed)
		}
	}
	return ok
}

// FuzzMove moves frames made of arbitrary slots between rings of arbitrary
// kinds and compares with judge.
func FuzzMove(f *testing.F) {
	f.Add([]byte{0, 60, 0, 0, 60, 0}, uint8(0), uint8(0), uint8(3))
	f.Add([]byte{5, 60, 20, 1, 60, 20, 0, 255, 9}, uint8(0b1011_1101), uint8(100), uint8(9))
	f.Add([]byte{1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 0, 1, 0}, uint8(0b0001_0001), uint8(255), uint8(1))
	f.Fuzz(func(t *testing.T, program []byte, kind, maxFrame, n uint8) {
		vnets := []int{0, 10, 12, 12}
		shared := kind&1 != 0
		gs := geometry{slots: 16, vnet: vnets[kind>>1&3], offset: 12, region: region(t, 32, 256)}
		gd := geometry{slots: 4, vnet: vnets[kind>>3&3], offset: 12, maxFrame: int(maxFrame), multi: kind>>5&1 != 0, region: gs.region, first: 16}
		if !shared {
			gd.region, gd.first = region(t, 4, 256), 0
		}
		src, d := newRing(t, ring.RX, gs)
		dst, _ := newRing(t, ring.TX, gd)
		src.Seed(1<<32 - 2)
		before := owned(dst, src)
		hostile := false
		for i := 0; i+2 < len(program) && d.grant < 16; i += 3 {
			s := src.Slot(src.Head + d.grant)
			s.Flags, s.Len, s.Off = ring.SlotFlags(program[i])|ring.SlotFlags(program[i]>>6)<<8, uint32(program[i+1]), uint32(program[i+2])
			if program[i] == 0xff {
				s.Buf, hostile = uint32(program[i+1])<<5|31, true
			}
			for j, b := 0, src.Frame(src.Head+d.grant); j < len(b); j++ {
				b[j] = byte(i) + byte(j)
			}
			d.grant++
		}
		if err := src.Sync(); err != nil {
			t.Fatal(err)
		}
		var drops [ring.NumCauses]uint64
		for range n {
			k := frameSlots(src)
			if k == 0 {
				break
			}
			want := judge(dst, src, k, shared)
			fits := dst.Space() > 0 && (!dst.MultiSlot() || dst.Space() >= int(k) || int(k) > dst.Len())
			from, head := dst.Head, src.Head
			moved := ring.Move(dst, src, 1)
			if (moved == 1) != fits {
				t.Fatalf("moved %d frames of %d slots into %d free ones", moved, k, dst.Space())
			}
			if moved == 0 {
				break
			}
			if src.Head != head+k {
				t.Fatalf("passed %d slots of a frame of %d", src.Head-head, k)
			}
			if want.lost {
				drops[want.drop]++
				want = fate{}
			}
			checkSent(t, dst, from, want)
		}
		for i := range drops {
			if got := dst.Stats.Drops[i].Load(); got != drops[i] {
				t.Fatalf("%d drops counted as %v, want %d", got, ring.Cause(i), drops[i])
			}
		}
		if !hostile && !sameKeys(before, owned(dst, src)) {
			t.Fatal("buffers were lost")
		}
	})
}

// checkSent compares the slots of dst after from with what was to be sent.
func checkSent(t *testing.T, dst *ring.Ring, from uint32, want fate) {
	t.Helper()
	if dst.Head-from != want.slots {
		t.Fatalf("%d slots sent, want %d", dst.Head-from, want.slots)
	}
	var got []byte
	for k := from; k != dst.Head; k++ {
		s := dst.Slot(k)
		if last := k+1 == dst.Head; last != (s.Flags&more == 0) {
			t.Fatalf("slot %d of a frame that ends at %d has flags %#x", k, dst.Head, s.Flags)
		}
		if k == from && s.Flags&^(more|ring.SlotBufChanged) != want.flags {
			t.Fatalf("flags %#x, want %#x", s.Flags, want.flags)
		}
		got = append(got, dst.Frame(k)...)
	}
	if !bytes.Equal(got, want.bytes) {
		t.Fatalf("sent %d bytes, want %d", len(got), len(want.bytes))
	}
}

// frameSlots is the number of slots of the frame at src's head; 0 for half one.
func frameSlots(src *ring.Ring) uint32 {
	for k := src.Head; k != src.Tail(); k++ {
		if src.Slot(k).Flags&more == 0 {
			return k + 1 - src.Head
		}
	}
	return 0
}

func BenchmarkMove(b *testing.B) {
	for _, shared := range []bool{true, false} {
		name := "copy"
		if shared {
			name = "swap"
		}
		b.Run(name, func(b *testing.B) {
			gs := geometry{slots: 256, region: region(b, 512, 2048)}
			gd := gs
			gd.first = 256
			if !shared {
				gd.region = region(b, 512, 2048)
			}
			src, s := newRing(b, ring.RX, gs)
			dst, d := newRing(b, ring.TX, gd)
			for k := range uint32(256) {
				src.Slot(k).Len = 60
			}
			s.grant = 256
			if err := src.Sync(); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if ring.Move(dst, src, 256) != 256 {
					b.Fatal("not all moved")
				}
				s.grant, d.grant = 256, 256
				if dst.Sync() != nil || src.Sync() != nil {
					b.Fatal("sync")
				}
			}
			b.ReportMetric(float64(b.N)*256/b.Elapsed().Seconds()/1e6, "Mpps")
		})
	}
}
