package tpacket

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/ring"
)

// put fills the ring's head slot with a frame and, if v is not nil, its header.
func (f *fakeTx) put(t testing.TB, p []byte, v *ring.Vnet) {
	t.Helper()
	r := f.ring
	if r.Space() == 0 {
		t.Fatal("transmit ring full")
	}
	s := r.Slot(r.Head)
	s.Len, s.Flags = uint32(copy(r.Buf(r.Head), p)), 0
	if v != nil && !r.SetVnet(r.Head, v) {
		t.Fatal("no room for the header")
	}
	r.Head++
}

// TestTransmitModel: whatever the kernel takes at each doorbell, refuses, and
// finishes in whatever order, all frames go out in order and every one is
// counted once.
func TestTransmitModel(t *testing.T) {
	for _, vnet := range []int{0, 10, 12} {
		for _, n := range []int{2, 8, 64} {
			t.Run(name(2, vnet), func(t *testing.T) {
				f := newFakeTx(t, n, vnet, 1500)
				f.ring.Seed(-uint32(3 * n))
				f.head = f.ring.Head
				rng := rand.New(rand.NewPCG(uint64(vnet), uint64(n)))
				var want [][]byte
				var total, refused uint64
				bad := func(b []byte) bool { return vnet != 0 && b[1] == 0xee }
				f.refuse = func(b []byte) bool {
					if bad(b) {
						refused++
						return true
					}
					return false
				}
				for range 4000 {
					switch rng.IntN(3) {
					case 0:
						for range rng.IntN(f.ring.Space() + 1) {
							p := payload(60+rng.IntN(1400), len(want))
							v := (*ring.Vnet)(nil)
							if vnet != 0 && rng.IntN(8) == 0 {
								// All of one length: how many were refused
								// is then clear from the missing bytes.
								p, v = payload(777, len(want)), &ring.Vnet{GSOType: 0xee}
							} else {
								total += uint64(len(p))
							}
							want = append(want, p)
							f.put(t, p, v)
						}
					case 1:
						f.limit = rng.IntN(n + 1)
						f.fail = []unix.Errno{0, unix.EAGAIN, unix.ENOBUFS}[rng.IntN(3)]
						mustSync(t, f.ring)
					case 2:
						for range rng.IntN(len(f.inFlight) + 1) {
							f.finish(rng.IntN(len(f.inFlight)))
						}
					}
				}
				f.limit = 0
				for f.ring.Pending() > 0 {
					mustSync(t, f.ring)
					f.finishAll()
					mustSync(t, f.ring)
				}
				i := 0
				for _, w := range want {
					if len(w) == 777 && vnet != 0 && (i >= len(f.sent) || !bytes.Equal(f.sent[i][vnet:], w)) {
						continue // refused
					}
					if !bytes.Equal(f.sent[i][vnet:], w) {
						t.Fatalf("frame %d was not sent as it was", i)
					}
					i++
				}
				st := &f.ring.Stats
				if i != len(f.sent) || refused != uint64(len(want)-i) || vnet != 0 && refused == 0 {
					t.Errorf("%d frames, %d sent, %d refused", len(want), len(f.sent), refused)
				}
				if p, b, d := st.Packets.Load(), st.Bytes.Load(), st.Drops[ring.DropRefused].Load(); p != uint64(i) || b != total || d != refused {
					t.Errorf("counted %d packets, %d bytes, %d refused; want %d, %d, %d", p, b, d, i, total, refused)
				}
			})
		}
	}
}

// TestTransmitRefused: the kernel's sum of bytes is short by what it refused.
func TestTransmitRefused(t *testing.T) {
	risky := &ring.Vnet{Flags: ring.VnetNeedCsum, CsumStart: 34, CsumOffset: 16}
	for _, c := range []struct {
		name    string
		sizes   []int
		headed  []bool // with a header of the program's
		refused []bool
	}{
		{"one of the program's", []int{100, 200, 300}, []bool{false, true, false}, []bool{false, true, false}},
		{"which of two: by length", []int{100, 200, 300}, []bool{true, true, true}, []bool{false, false, true}},
		{"all", []int{100, 200, 300}, []bool{true, true, true}, []bool{true, true, true}},
		{"the first two", []int{100, 250, 300}, []bool{true, true, true}, []bool{true, true, false}},
		{"a plain one: the MTU has shrunk", []int{100, 1500, 60}, []bool{false, false, false}, []bool{false, true, false}},
		{"none", []int{100, 200}, []bool{true, false}, []bool{false, false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFakeTx(t, 8, 10, 1500)
			i, want, bytes := 0, uint64(0), uint64(0)
			f.refuse = func([]byte) bool { i++; return c.refused[i-1] }
			for k, size := range c.sizes {
				v := risky
				if !c.headed[k] {
					v = nil
				}
				f.put(t, payload(size, k), v)
				if c.refused[k] {
					want++
				} else {
					bytes += uint64(size)
				}
			}
			mustSync(t, f.ring)
			f.finishAll()
			mustSync(t, f.ring)
			st := &f.ring.Stats
			if d := st.Drops[ring.DropRefused].Load(); d != want || st.Packets.Load() != uint64(len(c.sizes))-want || st.Bytes.Load() != bytes {
				t.Errorf("%d packets of %d bytes, %d refused; want %d of %d, %d", st.Packets.Load(), st.Bytes.Load(), d,
					uint64(len(c.sizes))-want, bytes, want)
			}
			if f.ring.Pending() != 0 {
				t.Errorf("%d slots are missing", f.ring.Pending())
			}
		})
	}
}

// TestTransmitHeader: frames without a header of the program's go out with an
// empty one, whatever lay there before. A short one that is no super-frame is
// all header, so that the kernel copies it.
func TestTransmitHeader(t *testing.T) {
	f := newFakeTx(t, 2, 12, 9000)
	for range 2 { // the second time over the first's header
		f.put(t, payload(1000, 1), &ring.Vnet{Flags: ring.VnetNeedCsum, CsumStart: 34, CsumOffset: 16})
		f.put(t, payload(linear+1, 2), &ring.Vnet{Flags: ring.VnetNeedCsum, CsumStart: 14, CsumOffset: 2})
		mustSync(t, f.ring)
		f.finishAll()
		mustSync(t, f.ring)
		f.put(t, payload(linear+1, 3), nil)
		f.put(t, payload(linear, 4), nil)
		mustSync(t, f.ring)
		f.finishAll()
		mustSync(t, f.ring)
		f.put(t, payload(1000, 5), &ring.Vnet{Flags: ring.VnetNeedCsum, HdrLen: 1001, CsumStart: 34, CsumOffset: 16})
		f.put(t, payload(1000, 6), &ring.Vnet{GSOType: ring.VnetGSOTCPv4, HdrLen: 54, GSOSize: 500})
		mustSync(t, f.ring)
		f.finishAll()
		mustSync(t, f.ring)
	}
	var v ring.Vnet
	for i, want := range []ring.Vnet{
		{Flags: ring.VnetNeedCsum, HdrLen: 1000, CsumStart: 34, CsumOffset: 16}, {Flags: ring.VnetNeedCsum, CsumStart: 14, CsumOffset: 2},
		{}, {HdrLen: linear},
		{Flags: ring.VnetNeedCsum, HdrLen: 1001, CsumStart: 34, CsumOffset: 16}, // the kernel's to refuse
		{GSOType: ring.VnetGSOTCPv4, HdrLen: 54, GSOSize: 500},
	} {
		if v.Decode(f.sent[i]); v != want {
			t.Errorf("frame %d went with header %+v, want %+v", i, v, want)
		}
		if !bytes.Equal(f.sent[i], f.sent[i+6]) && i != 2 && i != 3 {
			t.Errorf("frame %d differs the second time", i)
		}
	}
}

func TestTransmitBusy(t *testing.T) {
	for _, e := range []unix.Errno{unix.EAGAIN, unix.ENOBUFS, unix.EINTR, unix.EBUSY} {
		f := newFakeTx(t, 8, 0, 1500)
		for i := range 8 {
			f.put(t, payload(100, i), nil)
		}
		f.fail = e
		f.d.bell = busyBell{f}
		mustSync(t, f.ring)
		mustSync(t, f.ring)
		if got := f.ring.Stats.Retries.Load(); got != 2 || f.ring.Space() != 0 || f.ring.Pending() != 8 {
			t.Errorf("%v: %d retries, %d free, %d pending", e, got, f.ring.Space(), f.ring.Pending())
		}
		f.fail, f.d.bell = 0, f
		mustSync(t, f.ring)
		f.finishAll()
		mustSync(t, f.ring)
		if f.ring.Pending() != 0 || f.ring.Stats.Packets.Load() != 8 {
			t.Errorf("%v: %d pending, %d sent", e, f.ring.Pending(), f.ring.Stats.Packets.Load())
		}
	}
}

// busyBell is a kernel that takes nothing.
type busyBell struct{ *fakeTx }

func (b busyBell) doorbell() (int, unix.Errno) { return -1, b.fail }

func TestTransmitErrors(t *testing.T) {
	for _, c := range []struct {
		e    unix.Errno
		want error
	}{{unix.ENETDOWN, ring.ErrLinkDown}, {unix.ENXIO, ring.ErrLinkDown}, {unix.EPERM, unix.EPERM}} {
		f := newFakeTx(t, 4, 0, 1500)
		f.fail = c.e
		f.d.bell = busyBell{f}
		f.put(t, payload(100, 0), nil)
		f.ring.Cur = f.ring.Head
		if err := f.ring.Sync(); !errors.Is(err, c.want) {
			t.Errorf("%v: Sync says %v, want %v", c.e, err, c.want)
		}
		// The slot is handed over all the same, and goes when it can.
		f.d.bell = f
		mustSync(t, f.ring)
		f.finishAll()
		mustSync(t, f.ring)
		if f.ring.Stats.Packets.Load() != 1 || f.ring.Pending() != 0 {
			t.Errorf("%v: %d sent, %d pending", c.e, f.ring.Stats.Packets.Load(), f.ring.Pending())
		}
	}
}

func TestTransmitSlots(t *testing.T) {
	f := newFakeTx(t, 4, 10, 1500)
	r := f.ring
	for _, bad := range []func(s *ring.Slot){
		func(s *ring.Slot) { s.Buf++ },
		func(s *ring.Slot) { s.Buf = 1 << 31 },
		func(s *ring.Slot) { s.Off-- },
		func(s *ring.Slot) { s.Len = ethHdr - 1 },
		func(s *ring.Slot) { s.Len = f.d.frame - txOffset - 10 + 1 },
		func(s *ring.Slot) { s.Len = 1<<32 - 1 },
	} {
		sent := len(f.sent)
		f.put(t, payload(100, 1), nil)
		f.put(t, payload(100, 2), nil)
		bad(r.Slot(r.Head - 1))
		r.Cur = r.Head
		if err := r.Sync(); !errors.Is(err, ring.ErrSlot) {
			t.Fatalf("Sync says %v, want %v", err, ring.ErrSlot)
		}
		if len(f.sent) != sent+1 || r.Space() != 3 {
			t.Fatalf("%d frames sent, %d free: want the good one sent", len(f.sent)-sent, r.Space())
		}
		f.put(t, payload(100, 3), nil)
		mustSync(t, r)
		f.finishAll()
		mustSync(t, r)
		if r.Pending() != 0 {
			t.Fatalf("%d slots are missing", r.Pending())
		}
	}
}

func TestDrain(t *testing.T) {
	t.Run("in time", func(t *testing.T) {
		f := newFakeTx(t, 8, 0, 1500)
		for i := range 8 {
			f.put(t, payload(100, i), nil)
		}
		f.limit = 3
		mustSync(t, f.ring)
		f.waiting = func(f *fakeTx) {
			if len(f.inFlight) > 0 {
				f.finish(0)
			}
		}
		f.d.drain(f.ring, time.Minute)
		if len(f.sent) != 8 || f.ring.Stats.Packets.Load() != 8 || f.ring.Stats.Dropped() != 0 {
			t.Errorf("%d sent, %d counted, %d dropped", len(f.sent), f.ring.Stats.Packets.Load(), f.ring.Stats.Dropped())
		}
	})
	for _, c := range []struct {
		name  string
		stuck error
		limit time.Duration
	}{{"the kernel never ends", nil, 30 * time.Millisecond}, {"the link is down", errStuck, time.Minute}} {
		t.Run(c.name, func(t *testing.T) {
			f := newFakeTx(t, 8, 0, 1500)
			for i := range 5 {
				f.put(t, payload(100, i), nil)
			}
			mustSync(t, f.ring)
			f.finish(0)
			f.stuck = c.stuck
			start := time.Now()
			f.d.drain(f.ring, c.limit)
			took := time.Since(start)
			if c.stuck == nil && took < c.limit || took > c.limit+10*time.Second {
				t.Errorf("took %v, deadline %v", took, c.limit)
			}
			if p, d := f.ring.Stats.Packets.Load(), f.ring.Stats.Drops[ring.DropClosed].Load(); p != 1 || d != 4 {
				t.Errorf("%d sent, %d dropped as closed; want 1, 4", p, d)
			}
		})
	}
}
