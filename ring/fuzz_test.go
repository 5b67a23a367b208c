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

// judge says what is to become of the frame in the k slots of src from its head,
// between rings over one region if shared.
func judge(dst, src *ring.Ring, k uint32, shared bool) fate {
	first, joined, holds, truncated := *src.Slot(src.Head), []byte{}, true, false
	for i := range k {
		b := src.Frame(src.Head + i)
		holds = holds && b != nil
		joined = append(joined, b...)
		truncated = truncated || src.Slot(src.Head+i).Flags&ring.SlotTruncated != 0
	}
	f := first.Flags
	super := f&vn != 0 && f&gso != 0
	lost := func(c ring.Cause) fate { return fate{lost: true, drop: c} }
	switch {
	case !holds:
		return lost(ring.DropMalformed)
	case truncated:
		return lost(ring.DropTruncated)
	case f&vn != 0 && dst.VnetLen() == 0:
		return lost(ring.DropOffload)
	case len(joined) > ring.MaxFrame, len(joined) > dst.MaxFrame() && !super:
		return lost(ring.DropOversize)
	case f&vn != 0 && (src.VnetLen() == 0 || int(first.Off) < src.VnetLen()):
		return lost(ring.DropMalformed)
	}
	room := dst.Region().BufSize() - dst.Offset()
	n := uint32(1)
	switch {
	case shared && (k == 1 || dst.MultiSlot()) && (f&vn == 0 || src.VnetLen() == dst.VnetLen()):
		n = k // as they are
	case dst.MultiSlot():
		for n = 1; int(n)*room < len(joined); n++ {
		}
	case len(joined) > room:
		return lost(ring.DropOversize)
	}
	if int(n) > dst.Len() {
		return lost(ring.DropOversize)
	}
	carried := f & (vn | gso | ring.SlotVLAN | ring.SlotMulticast | ring.SlotBroadcast | ring.SlotOtherHost)
	return fate{slots: n, bytes: joined, flags: carried}
}

// FuzzMove moves frames made of arbitrary slots between rings of arbitrary
// kinds and compares with judge.
func FuzzMove(f *testing.F) {
	f.Add([]byte{0, 60, 0, 0, 60, 0}, uint8(0), uint8(0), uint8(3))
	f.Add([]byte{5, 60, 20, 1, 60, 20, 0, 255, 9}, uint8(0b1011_1101), uint8(100), uint8(9))
	f.Add([]byte{1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 0, 1, 0}, uint8(0b0001_0001), uint8(255), uint8(1))
	f.Add([]byte{0, 200, 12, 0, 60, 12, 1, 200, 12, 0, 200, 12}, uint8(0b0110_0000), uint8(0), uint8(4))
	f.Add([]byte{4, 200, 12, 12, 200, 12}, uint8(0b0110_1010), uint8(80), uint8(4))
	f.Fuzz(func(t *testing.T, program []byte, kind, maxFrame, n uint8) {
		vnets := []int{0, 10, 12, 12}
		shared := kind&1 != 0
		gs := geometry{slots: 16, vnet: vnets[kind>>1&3], offset: 12, region: region(t, 32, 256)}
		gd := geometry{slots: 4, vnet: vnets[kind>>3&3], offset: 12, maxFrame: int(maxFrame), multi: kind>>5&1 != 0, region: gs.region, first: 16}
		if !shared {
			gd.region, gd.first = region(t, 4, 256), 0
			if kind>>6&1 != 0 {
				gd.region = region(t, 4, 80)
			}
		}
		src, d := newRing(t, ring.RX, gs)
		dst, _ := newRing(t, ring.TX, gd)
		src.Seed(1<<32 - 2)
		before := owned(dst, src)
		if hostile := script(src, d, program); hostile {
			before = nil
		}
		if err := src.Sync(); err != nil {
			t.Fatal(err)
		}
		moveAll(t, dst, src, shared, int(n))
		if before != nil && !sameKeys(before, owned(dst, src)) {
			t.Fatal("buffers were lost")
		}
	})
}

// script fills the slots that src's next Sync will bring: three bytes of the
// program each. Hostile ones name buffers of other slots, or none.
func script(src *ring.Ring, d *kernel, program []byte) (hostile bool) {
	for i := 0; i+2 < len(program) && d.grant < 16; i += 3 {
		k := src.Head + d.grant
		s := src.Slot(k)
		s.Flags, s.Len, s.Off = ring.SlotFlags(program[i])|ring.SlotFlags(program[i]>>6)<<8, uint32(program[i+1]), uint32(program[i+2])
		if program[i] == 0xff {
			s.Buf, hostile = uint32(program[i+1])<<5|31, true
		}
		for j, b := 0, src.Frame(k); j < len(b); j++ {
			b[j] = byte(i) + byte(j)
		}
		d.grant++
	}
	return hostile
}

// moveAll moves up to n frames one by one and compares each with judge.
func moveAll(t *testing.T, dst, src *ring.Ring, shared bool, n int) {
	var drops [ring.NumCauses]uint64
	for range n {
		k := frameSlots(src)
		if k == 0 {
			break
		}
		want := judge(dst, src, k, shared)
		fits := dst.Space() > 0 && dst.Space() >= int(want.slots)
		if needs := ring.Needs(dst, src, src.Head, false); needs != max(want.slots, 1) {
			t.Fatalf("needs %d slots, want %d", needs, want.slots)
		}
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
