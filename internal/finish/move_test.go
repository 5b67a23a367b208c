package finish

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/netring/netring/ring"
)

// plug is the device's side of a ring that takes and gives all at once.
type plug struct{ give uint32 }

func (p *plug) Sync(r *ring.Ring, from, to uint32) (uint32, uint32, error) {
	if r.Dir() == ring.TX {
		return to, to + uint32(r.Len()), nil
	}
	return to, r.Tail() + p.give, nil
}

func newRing(t testing.TB, dir ring.Dir, slots, vnet int, region *ring.Region, first uint32) (*ring.Ring, *plug) {
	t.Helper()
	p := &plug{}
	r, err := ring.New(ring.Config{
		Port: "test", Dir: dir, Slots: slots, Region: region, Life: ring.NewLife(), Driver: p,
		VnetLen: vnet, Offset: 64, MaxFrame: 1600, FD: -1, WakeFD: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	for k := range uint32(slots) {
		r.Slot(k).Buf = first + k
	}
	return r, p
}

func newRegion(t testing.TB, bufs int) *ring.Region {
	t.Helper()
	const stride = 64<<10 + 512
	g, err := ring.NewRegion(make([]byte, bufs*stride), stride)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// input is one received frame; unfinished if v is not nil.
type input struct {
	frame []byte
	v     *ring.Vnet
	flags ring.SlotFlags
}

// receive makes frames arrive in a receive ring.
func receive(t testing.TB, r *ring.Ring, p *plug, in []input) {
	t.Helper()
	for i, f := range in {
		k := r.Tail() + uint32(i)
		n := copy(r.Buf(k), f.frame)
		s := r.Slot(k)
		s.Len, s.Flags = uint32(n), f.flags
		if f.v != nil && !r.SetVnet(k, f.v) {
			t.Fatal("no room for the virtio-net header")
		}
	}
	p.give = uint32(len(in))
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
}

// sent returns what lies in a transmit ring and syncs it.
func sent(t testing.TB, r *ring.Ring) [][]byte {
	t.Helper()
	var out [][]byte
	for k := r.Accepted(); k != r.Head; k++ {
		if f := r.Slot(k).Flags; f&(ring.SlotVnet|ring.SlotGSO) != 0 {
			t.Errorf("slot %d is sent with flags %b", k, f)
		}
		out = append(out, bytes.Clone(r.Frame(k)))
	}
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
	return out
}

// traffic makes frames of all kinds and what they must become.
func traffic(t testing.TB) (in []input, want [][]byte) {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 8))
	for i := range 60 {
		f := randomFlow(r)
		f.size = 500 + r.IntN(900)
		f.payload = f.payload[:min(len(f.payload), 20*f.size)]
		switch i % 3 {
		case 0:
			frame, v := f.super(t)
			in = append(in, input{frame: frame, v: &v})
			want = append(want, f.segments(t)...)
		case 1:
			f.payload = f.payload[:min(len(f.payload), 1000)]
			frame, v := f.super(t)
			v.GSOType, v.GSOSize = ring.VnetGSONone, 0
			in = append(in, input{frame: frame, v: &v})
			frame = bytes.Clone(frame)
			if err := Checksum(frame, &v); err != nil {
				t.Fatal(err)
			}
			want = append(want, frame)
		default:
			frame := f.segments(t)[0]
			in = append(in, input{frame: frame})
			want = append(want, frame)
		}
	}
	return in, want
}

func TestMove(t *testing.T) {
	for _, sharing := range []bool{false, true} {
		in, want := traffic(t)
		region := newRegion(t, 96)
		src, plug := newRing(t, ring.RX, 64, ring.VnetLen, region, 0)
		if !sharing {
			region = newRegion(t, 96)
		}
		dst, _ := newRing(t, ring.TX, 32, 0, region, 64)
		src.Seed(^uint32(20)) // so that the cursors wrap
		dst.Seed(^uint32(10))
		receive(t, src, plug, in)
		var got [][]byte
		for left, idle := len(in), 0; left > 0; {
			n := Move(dst, src, min(left, 7))
			left -= n
			if frames := sent(t, dst); n == 0 && len(frames) == 0 {
				if idle++; idle > 2 {
					t.Fatalf("sharing %v: stuck with %d frames left", sharing, left)
				}
			} else {
				got = append(got, frames...)
			}
		}
		compare(t, &flow{}, got, want)
		if src.Space() != 0 || dst.Stats.Dropped() != 0 {
			t.Errorf("sharing %v: %d frames left, %d dropped", sharing, src.Space(), dst.Stats.Dropped())
		}
	}
}

// TestCopy sends one frame to two ports; the source stays as it is.
func TestCopy(t *testing.T) {
	in, want := traffic(t)
	src, plug := newRing(t, ring.RX, 64, ring.VnetLen, newRegion(t, 64), 0)
	one, _ := newRing(t, ring.TX, 64, 0, newRegion(t, 64), 0)
	two, _ := newRing(t, ring.TX, 64, ring.VnetLen, newRegion(t, 64), 0)
	receive(t, src, plug, in)
	var got [][]byte
	for k := src.Head; k != src.Tail(); k++ {
		before := *src.Slot(k)
		frame := bytes.Clone(src.Frame(k))
		if !Copy(one, src, k) || !Copy(two, src, k) {
			t.Fatal("no room")
		}
		got = append(got, sent(t, one)...)
		if *src.Slot(k) != before || !bytes.Equal(src.Frame(k), frame) {
			t.Fatal("the source has changed")
		}
		if !bytes.Equal(two.Frame(two.Head-1), frame) {
			t.Fatal("the frame that needs no finishing has changed")
		}
	}
	compare(t, &flow{}, got, want)
}

func TestMoveFull(t *testing.T) {
	f := &flow{size: 100, payload: make([]byte, 1000)} // ten segments
	frame, v := f.super(t)
	src, plug := newRing(t, ring.RX, 8, ring.VnetLen, newRegion(t, 8), 0)
	dst, _ := newRing(t, ring.TX, 16, 0, newRegion(t, 16), 0)
	receive(t, src, plug, []input{{frame: frame, v: &v}, {frame: frame, v: &v}})
	if n := Move(dst, src, 2); n != 1 || dst.Space() != 6 || src.Space() != 1 {
		t.Errorf("moved %d, %d slots free, %d frames left; want 1, 6, 1", n, dst.Space(), src.Space())
	}
	if Copy(dst, src, src.Head) {
		t.Error("a copy that does not fit")
	}
	if err := dst.Sync(); err != nil {
		t.Fatal(err)
	}
	if n := Move(dst, src, 2); n != 1 || src.Space() != 0 {
		t.Errorf("moved %d with room for it", n)
	}
}

func TestMoveDrops(t *testing.T) {
	f := &flow{size: 100, payload: make([]byte, 2000)}
	frame, v := f.super(t)
	big := &flow{size: 1600, payload: make([]byte, 4000)}
	bigFrame, bigV := big.super(t)
	long, longV := (&flow{size: 1, payload: make([]byte, 1590)}).super(t)
	longV.GSOType, longV.GSOSize = ring.VnetGSONone, 0
	ufo, bad := v, v
	ufo.GSOType, bad.GSOSize = ring.VnetGSOUDP, 0
	csum := ring.Vnet{Flags: ring.VnetNeedCsum, CsumStart: 60000}
	in := []input{
		{frame: frame, v: &v},       // more segments than the ring has slots
		{frame: bigFrame, v: &bigV}, // segments larger than the port sends
		{frame: long, v: &longV},    // larger than the port sends
		{frame: frame, v: &ufo},
		{frame: frame, v: &bad},
		{frame: frame[:60], v: &csum},
		{frame: frame, v: &v, flags: ring.SlotTruncated},
		{frame: frame, v: &v, flags: ring.SlotMoreFrag}, // and the next is its second half
		{frame: frame},
		{frame: frame[:60]},
	}
	want := map[ring.Cause]uint64{
		ring.DropOffload: 3, ring.DropOversize: 2, ring.DropMalformed: 2, ring.DropTruncated: 1,
	}
	for _, copying := range []bool{false, true} {
		src, plug := newRing(t, ring.RX, 16, ring.VnetLen, newRegion(t, 16), 0)
		dst, _ := newRing(t, ring.TX, 16, 0, newRegion(t, 16), 0)
		receive(t, src, plug, in)
		if copying {
			for k := src.Head; k != src.Tail(); k++ {
				if k == src.Tail()-2 {
					continue // the second half
				}
				if !Copy(dst, src, k) {
					t.Error("no room")
				}
			}
		} else if n := Move(dst, src, 100); n != 9 {
			t.Errorf("moved %d frames, want 9", n)
		}
		for c := range ring.NumCauses {
			if got := dst.Stats.Drops[c].Load(); got != want[c] {
				t.Errorf("copying %v: %d dropped as %v, want %d", copying, got, c, want[c])
			}
		}
		if out := sent(t, dst); len(out) != 1 || !bytes.Equal(out[0], frame[:60]) {
			t.Errorf("copying %v: %d frames sent, want the last", copying, len(out))
		}
	}
}

// TestMoveUnfinishedChain: a frame whose end has not arrived stays.
func TestMoveUnfinishedChain(t *testing.T) {
	f := &flow{size: 100, payload: make([]byte, 500)}
	frame, v := f.super(t)
	for _, in := range []input{{frame: frame, v: &v, flags: ring.SlotMoreFrag}, {frame: frame, flags: ring.SlotMoreFrag}} {
		src, plug := newRing(t, ring.RX, 8, ring.VnetLen, newRegion(t, 8), 0)
		dst, _ := newRing(t, ring.TX, 8, 0, newRegion(t, 8), 0)
		receive(t, src, plug, []input{in})
		if n := Move(dst, src, 5); n != 0 || src.Space() != 1 || dst.Stats.Dropped() != 0 {
			t.Errorf("moved %d, %d slots left, %d dropped; want 0, 1, 0", n, src.Space(), dst.Stats.Dropped())
		}
	}
}

func TestMoveAllocs(t *testing.T) {
	f := &flow{size: 1400, payload: make([]byte, 14000)}
	frame, v := f.super(t)
	src, plug := newRing(t, ring.RX, 8, ring.VnetLen, newRegion(t, 8), 0)
	dst, _ := newRing(t, ring.TX, 16, 0, newRegion(t, 16), 0)
	in := []input{{frame: frame, v: &v}}
	allocs := testing.AllocsPerRun(100, func() {
		receive(t, src, plug, in)
		if Move(dst, src, 1) != 1 || dst.Sync() != nil {
			t.Fatal("not moved")
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations per super-frame", allocs)
	}
}
