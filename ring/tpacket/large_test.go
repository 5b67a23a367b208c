package tpacket

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/ring"
)

var superHeader = ring.Vnet{Flags: ring.VnetNeedCsum, GSOType: ring.VnetGSOTCPv4, HdrLen: 54, GSOSize: 1448, CsumStart: 34, CsumOffset: 16}

// newFakeDirect is a transmit ring with large buffers whose frames may go past
// it. What does is added to what the ring's kernel has sent; answer says how
// each goes.
func newFakeDirect(t testing.TB, n int, answer func() unix.Errno) *fakeTx {
	t.Helper()
	f := newFakeTx(t, n, 10, 1500)
	f.d.most = 1514
	f.d.large = ring.NewLarge(largeBufs, largeLen)
	f.ring.Region().WithLarge(f.d.large)
	f.d.direct = func(b []byte) unix.Errno {
		e := answer()
		if e == 0 {
			f.sent = append(f.sent, bytes.Clone(b))
		}
		return e
	}
	return f
}

func allGood() unix.Errno { return 0 }

// TestForwardLarge: super-frames go from a receive ring to a transmit ring in
// their large buffers; whatever the sockets answer, all arrive in order with
// small frames among them, or are counted, and each ring has its buffers back.
func TestForwardLarge(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers []unix.Errno
		refused bool // what answers EINVAL
	}{
		{"sent", []unix.Errno{0}, false},
		{"busy", []unix.Errno{unix.EAGAIN, 0, unix.ENOBUFS}, false},
		{"refused", []unix.Errno{0, unix.EINVAL, 0, unix.EMSGSIZE}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, refused := 0, uint64(0)
			var lost [][]byte
			var out *fakeTx
			answer := func() unix.Errno {
				n++
				e := c.answers[n%len(c.answers)]
				if c.refused && e != 0 {
					refused++
				}
				return e
			}
			out = newFakeDirect(t, 16, answer)
			in := newFakeRx2(t, 32, 2048, 10)
			rng := rand.New(rand.NewPCG(5, 6))
			var want [][]byte
			for range 120 {
				for range rng.IntN(8) {
					p := payload(60+rng.IntN(1000), len(want))
					v := ring.Vnet{}
					if rng.IntN(2) == 0 {
						p, v = payload(3000+rng.IntN(62000), len(want)), superHeader
					}
					if !in.deliver(packet{data: p, vnet: v}) {
						break
					}
					want = append(want, p)
				}
				mustSync(t, in.ring)
				ring.Move(out.ring, in.ring, rng.IntN(16))
				if rng.IntN(2) == 0 {
					mustSync(t, out.ring)
					out.finishAll()
				}
			}
			for len(in.queue) > 0 || in.ring.Space() > 0 || out.ring.Pending() > 0 {
				mustSync(t, in.ring)
				ring.Move(out.ring, in.ring, 64)
				mustSync(t, out.ring)
				out.finishAll()
			}
			mustSync(t, in.ring)
			i := 0
			for _, b := range out.sent {
				for i < len(want) && !bytes.Equal(b[10:], want[i]) {
					lost = append(lost, want[i])
					i++
				}
				i++
				var v ring.Vnet
				if v.Decode(b); len(b) > 2048 && v != superHeader {
					t.Fatalf("super-frame %d went with header %+v", i-1, v)
				}
			}
			lost = append(lost, want[min(i, len(want)):]...)
			st := &out.ring.Stats
			if p, d := st.Packets.Load(), st.Drops[ring.DropRefused].Load(); uint64(len(lost)) != refused || d != refused ||
				p != uint64(len(want))-refused || st.Dropped() != refused || c.refused != (refused > 0) {
				t.Errorf("%d frames, %d lost, %d counted as sent, %d as refused; the socket refused %d", len(want), len(lost), p, d, refused)
			}
			if in.d.large.Spare() != largeBufs || out.d.large.Spare() != largeBufs {
				t.Errorf("%d and %d spare large buffers, %d at first", in.d.large.Spare(), out.d.large.Spare(), largeBufs)
			}
			if n < 100 {
				t.Errorf("%d frames were tried past the ring, of %d", n, len(want))
			}
		})
	}
}

// moveSuper has a super-frame arrive and moves it to out.
func moveSuper(t *testing.T, in *fakeRx2, out *fakeTx, seq int) {
	t.Helper()
	if !in.deliver(packet{data: payload(30000, seq), vnet: superHeader}) {
		t.Fatal("receive ring full")
	}
	mustSync(t, in.ring)
	if ring.Move(out.ring, in.ring, 1) != 1 {
		t.Fatal("not moved")
	}
	mustSync(t, in.ring)
}

// TestLargeSlots: a slot that a program has spoilt while it named a large buffer
// is refused, and the buffer is not lost.
func TestLargeSlots(t *testing.T) {
	in, out := newFakeRx2(t, 8, 2048, 10), newFakeDirect(t, 8, allGood)
	r := out.ring
	for i, bad := range []func(s *ring.Slot){
		func(s *ring.Slot) { s.Buf++ },                                         // spare
		func(s *ring.Slot) { s.Buf = 8 + largeBufs },                           // there is none
		func(s *ring.Slot) { s.Buf = r.Slot(r.Head - 2).Buf },                  // the slot before's
		func(s *ring.Slot) { s.Buf = (r.Head - 2) & 7 },                        // a frame of the ring's, and not the slot's
		func(s *ring.Slot) { s.Off = 9 },                                       // no room for the header
		func(s *ring.Slot) { s.Off = 1<<32 - 1 },                               //
		func(s *ring.Slot) { s.Len = largeLen },                                //
		func(s *ring.Slot) { s.Off, s.Len = largeLen-100, 101 },                //
		func(s *ring.Slot) { s.Len = 1 },                                       //
		func(s *ring.Slot) { s.Flags &^= ring.SlotGSO },                        // over the MTU
		func(s *ring.Slot) { s.Off, s.Len, s.Buf = 1<<31, 1<<31, s.Buf-1<<31 }, //
	} {
		sent := len(out.sent)
		moveSuper(t, in, out, 2*i)
		moveSuper(t, in, out, 2*i+1)
		bad(r.Slot(r.Head - 1))
		r.Cur = r.Head
		if err := r.Sync(); !errors.Is(err, ring.ErrSlot) && !errors.Is(err, ring.ErrTooLarge) {
			t.Fatalf("damage %d: Sync says %v", i, err)
		}
		if len(out.sent) != sent+1 || r.Space() != 8 {
			t.Fatalf("damage %d: %d frames sent, %d free: want the good one sent", i, len(out.sent)-sent, r.Space())
		}
		if out.d.large.Spare() != largeBufs {
			t.Fatalf("damage %d: %d large buffers of %d", i, out.d.large.Spare(), largeBufs)
		}
		// The slot is as good as any other.
		out.put(t, payload(100, i), nil)
		mustSync(t, r)
		out.finishAll()
		mustSync(t, r)
		if r.Pending() != 0 {
			t.Fatalf("damage %d: %d slots are missing", i, r.Pending())
		}
	}
}

// TestLargeNotFirst: with an error before them, slots with large buffers are the
// program's again, and go when they can.
func TestLargeNotFirst(t *testing.T) {
	in, out := newFakeRx2(t, 8, 2048, 10), newFakeDirect(t, 8, allGood)
	r := out.ring
	out.put(t, payload(100, 0), nil)
	moveSuper(t, in, out, 1)
	moveSuper(t, in, out, 2)
	r.Slot(0).Len = 3
	r.Cur = r.Head
	if err := r.Sync(); !errors.Is(err, ring.ErrSlot) || r.Head != 0 {
		t.Fatalf("head %d, %v", r.Head, err)
	}
	if out.d.large.Spare() != largeBufs-2 {
		t.Errorf("%d large buffers spare, want all %d but the two in slots", out.d.large.Spare(), largeBufs)
	}
	r.Slot(0).Len = 100
	out.put(t, payload(200, 1), nil) // over the first slot
	r.Head++                         // as it was
	moveSuper(t, in, out, 3)         // into the slot that has a large buffer
	mustSync(t, r)
	out.finishAll()
	mustSync(t, r)
	for i, want := range [][]byte{payload(200, 1), payload(30000, 1), payload(30000, 3)} {
		if len(out.sent) != 3 || !bytes.Equal(out.sent[i][10:], want) {
			t.Fatalf("%d frames sent, or not as they were", len(out.sent))
		}
	}
	if out.d.large.Spare() != largeBufs {
		t.Errorf("%d large buffers spare, want all %d", out.d.large.Spare(), largeBufs)
	}
}

// TestLargeReset: Reset takes large buffers back from slots not handed over.
func TestLargeReset(t *testing.T) {
	in, out := newFakeRx2(t, 8, 2048, 10), newFakeDirect(t, 8, allGood)
	out.d.remake = anew(out.d, &out.head)
	moveSuper(t, in, out, 0)
	moveSuper(t, in, out, 1)
	if err := out.ring.Reset(); err != nil {
		t.Fatal(err)
	}
	if out.d.large.Spare() != largeBufs || out.ring.Stats.Drops[ring.DropClosed].Load() != 2 {
		t.Errorf("%d large buffers spare of %d, %d frames closed", out.d.large.Spare(), largeBufs, out.ring.Stats.Drops[ring.DropClosed].Load())
	}
	moveSuper(t, in, out, 2)
	mustSync(t, out.ring)
	if len(out.sent) != 1 || !bytes.Equal(out.sent[0][10:], payload(30000, 2)) {
		t.Errorf("%d frames sent after the reset", len(out.sent))
	}
}

// TestLargeOneDoorbell: super-frames in a row cost a send each, and one doorbell
// for their places in the ring.
func TestLargeOneDoorbell(t *testing.T) {
	in, out := newFakeRx2(t, 8, 2048, 10), newFakeDirect(t, 8, allGood)
	for i := range 5 {
		moveSuper(t, in, out, i)
	}
	mustSync(t, out.ring)
	if got := out.ring.Stats.Doorbells.Load(); got != 6 || out.ring.Pending() != 0 {
		t.Errorf("%d doorbells for 5 super-frames, %d pending", got, out.ring.Pending())
	}
}
