package tpacket

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/ring"
)

// fill puts frame i of n bytes into the next slot.
func fill(r *ring.Ring, i, n int) {
	b := r.Buf(r.Head)[:n]
	for j := range b {
		b[j] = byte(i)
	}
	binary.BigEndian.PutUint32(b[14:], uint32(i))
	s := r.Slot(r.Head)
	s.Len, s.Flags = uint32(n), 0
	r.Head++
	r.Cur = r.Head
}

// hostile gives the frame that was filled last a header of the program's.
func hostile(r *ring.Ring) {
	r.SetVnet(r.Head-1, &ring.Vnet{Flags: ring.VnetNeedCsum, CsumStart: 34, CsumOffset: 16})
}

func number(frame []byte) int { return int(binary.BigEndian.Uint32(frame[14:])) }

// settled checks the books: all that was handed over has been sent, refused or
// is still pending.
func settled(t *testing.T, r *ring.Ring, filled int) {
	t.Helper()
	got := int(r.Stats.Packets.Load()+r.Stats.Dropped()) + r.Pending()
	if got != filled {
		t.Fatalf("%d sent, %d dropped, %d pending; %d were filled", r.Stats.Packets.Load(), r.Stats.Dropped(), r.Pending(), filled)
	}
}

// TestTransmit is random fills, Syncs and completions with a kernel that now
// and then has no room or refuses a frame: all others go out once, in order.
func TestTransmit(t *testing.T) {
	for _, vnet := range []int{0, ring.VnetLen, ring.VnetLenMrg} {
		for _, slots := range []int{2, 8, 64} {
			t.Run(fmt.Sprintf("vnet%d/slots%d", vnet, slots), func(t *testing.T) {
				r, k, _ := newFakeTx(t, slots, 2048, vnet)
				r.Seed(-uint32(4 * slots))
				rng := rand.New(rand.NewPCG(9, uint64(slots)))
				k.bad = func(b []byte) unix.Errno {
					if number(b)%11 == 5 {
						return unix.EINVAL
					}
					return 0
				}
				filled, refused, bytesSent := 0, 0, 0
				for range 5000 {
					switch rng.IntN(4) {
					case 0, 1:
						for range rng.IntN(r.Space() + 1) {
							n := 60 + rng.IntN(1400)
							fill(r, filled, n)
							if filled%11 == 5 {
								refused++
								hostile(r)
							} else {
								bytesSent += n
							}
							filled++
						}
						fallthrough
					case 2:
						k.hold = rng.IntN(2) == 0
						k.errno = []unix.Errno{unix.EAGAIN, unix.ENOBUFS}[rng.IntN(2)]
						k.budget = rng.IntN(2*slots) - 1
						if k.errno == unix.ENOBUFS {
							k.budget = -1 // what was refused before an ENOBUFS is not told
						}
						if err := r.Sync(); err != nil {
							t.Fatal(err)
						}
					case 3:
						k.finish(rng.IntN(len(k.flight) + 1))
					}
					settled(t, r, filled)
				}
				k.budget, k.hold = -1, false
				for range 3 {
					k.finish(len(k.flight))
					if err := r.Sync(); err != nil {
						t.Fatal(err)
					}
				}
				if r.Pending() != 0 || filled < 100 {
					t.Fatalf("%d of %d frames pending at the end", r.Pending(), filled)
				}
				want := 0
				for _, b := range k.took {
					for want%11 == 5 {
						want++
					}
					if number(b) != want || !bytes.Equal(b[18:], bytes.Repeat([]byte{byte(want)}, len(b)-18)) {
						t.Fatalf("frame %d sent, want %d", number(b), want)
					}
					want++
				}
				if len(k.took) != filled-refused {
					t.Errorf("%d frames sent of %d with %d bad", len(k.took), filled, refused)
				}
				// One frame refused in a doorbell is told exactly; of several the
				// split may be off where lengths add up, the sum never.
				if p, d := int(r.Stats.Packets.Load()), int(r.Stats.Dropped()); p+d != filled {
					t.Errorf("%d sent and %d dropped of %d", p, d, filled)
				}
				if got := int(r.Stats.Bytes.Load()); got != bytesSent {
					t.Errorf("%d bytes counted, %d sent", got, bytesSent)
				}
			})
		}
	}
}

// TestStuckFrame: a frame that the kernel can neither send nor passes over is
// given up, the others go on.
func TestStuckFrame(t *testing.T) {
	r, k, d := newFakeTx(t, 8, 2048, ring.VnetLen)
	k.bad = func(b []byte) unix.Errno {
		switch number(b) {
		case 1:
			return unix.ENOMEM
		case 3:
			return unix.ENOBUFS
		}
		return 0
	}
	for i := range 5 {
		fill(r, i, 60)
	}
	for range stuckTries + 1 {
		if err := r.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.Stats.Drops[ring.DropRefused].Load(); got != 1 || len(k.took) != 2 {
		t.Fatalf("%d refused and %d sent, want 1 and 2: a frame that offloads cannot be carried out for", got, len(k.took))
	}
	for range 100 {
		if err := r.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if r.Pending() != 2 {
		t.Fatalf("%d pending: a frame that a queue drops is tried for a while", r.Pending())
	}
	d.stuck.since = time.Now().Add(-2 * stuckTime)
	for range 2 {
		if err := r.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if r.Pending() != 0 || r.Stats.Packets.Load() != 3 || r.Stats.Drops[ring.DropRefused].Load() != 2 {
		t.Errorf("%d pending, %d sent, %d refused; want 0, 3, 2", r.Pending(), r.Stats.Packets.Load(), r.Stats.Drops[ring.DropRefused].Load())
	}
	if r.Stats.Bytes.Load() != 180 {
		t.Errorf("%d bytes, want 180", r.Stats.Bytes.Load())
	}
}

func TestTransmitErrors(t *testing.T) {
	r, k, _ := newFakeTx(t, 8, 2048, 0)
	k.budget, k.errno = 0, unix.ENETDOWN
	fill(r, 0, 60)
	if err := r.Sync(); !errors.Is(err, ring.ErrLinkDown) || r.Pending() != 1 {
		t.Errorf("link down: %v, %d pending", err, r.Pending())
	}
	k.errno = unix.EPERM
	if err := r.Sync(); !errors.Is(err, unix.EPERM) || r.Pending() != 1 {
		t.Errorf("unknown error: %v, %d pending", err, r.Pending())
	}
	k.budget = -1
	fill(r, 1, 1600) // fits the buffer, not the MTU
	if err := r.Sync(); !errors.Is(err, ring.ErrTooLarge) || r.Head != r.Accepted() || r.Space() != 7 && r.Space() != 8 {
		t.Errorf("over the MTU: %v, head %d, %d free", err, r.Head, r.Space())
	}
	fill(r, 1, 1518)
	if err := r.Sync(); err != nil || r.Pending() != 0 || len(k.took) != 2 {
		t.Errorf("after the errors: %v, %d pending, %d sent", err, r.Pending(), len(k.took))
	}
}

// TestDrain: Close sends what the kernel had no room for, and counts what it
// could not.
func TestDrain(t *testing.T) {
	r, k, d := newFakeTx(t, 8, 2048, 0)
	k.budget, k.errno = 1, unix.EAGAIN
	for i := range 6 {
		fill(r, i, 60)
	}
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
	k.budget = 3
	d.drain(r, 20*time.Millisecond)
	if got := r.Stats.Packets.Load(); got != 4 {
		t.Errorf("%d sent, the kernel had room for 4", got)
	}
	if got := r.Stats.Drops[ring.DropClosed].Load(); got != 2 {
		t.Errorf("%d counted as closed, want 2", got)
	}
}

// TestReset: a ring whose frames never complete starts anew, in the middle.
func TestReset(t *testing.T) {
	r, k, d := newFakeTx(t, 8, 2048, ring.VnetLen)
	if err := r.Reset(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("reset of a ring that cannot be made anew: %v", err)
	}
	d.remake = func() error {
		clear(k.mem)
		k.head, k.flight = 0, nil
		return nil
	}
	for i := range 3 {
		fill(r, i, 60)
	}
	k.hold = true
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
	k.finish(1)
	if err := r.Reset(); err != nil {
		t.Fatal(err)
	}
	if p, c := r.Stats.Packets.Load(), r.Stats.Drops[ring.DropClosed].Load(); p != 1 || c != 2 || r.Space() != 8 {
		t.Errorf("%d sent, %d closed, %d free; want 1, 2, 8", p, c, r.Space())
	}
	k.hold, k.took = false, nil
	for i := range 20 {
		fill(r, i, 60)
		if err := r.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if len(k.took) != 20 || r.Pending() != 0 {
		t.Errorf("%d of 20 frames sent after the reset, %d pending", len(k.took), r.Pending())
	}
}

// FuzzTransmit drives the ring by bytes: fill, Sync, complete, errors.
func FuzzTransmit(f *testing.F) {
	f.Add([]byte{0, 0, 8, 16, 24, 1, 9, 17, 2, 3})
	f.Add([]byte{0, 1, 0, 9, 0, 17, 0, 25, 2, 2, 0, 1})
	f.Fuzz(func(t *testing.T, ops []byte) {
		r, k, d := newFakeTx(t, 8, 2048, ring.VnetLen)
		k.bad = func(b []byte) unix.Errno { return []unix.Errno{0, unix.EINVAL, unix.ENOMEM, 0}[b[20]&3] }
		filled := 0
		for _, op := range ops {
			switch arg := int(op >> 3); op & 7 {
			case 0, 4:
				if r.Space() > 0 {
					fill(r, filled, 60+arg*45)
					r.Frame(r.Head - 1)[20] = byte(arg)
					if arg&3 == 1 {
						hostile(r)
					}
					filled++
				}
			case 1, 5:
				k.budget, k.errno = -1, 0
				if arg&1 != 0 {
					k.budget, k.errno = arg>>1, []unix.Errno{unix.EAGAIN, unix.ENOBUFS, unix.ENETDOWN}[arg%3]
				}
				if err := r.Sync(); err != nil && !errors.Is(err, ring.ErrLinkDown) {
					t.Fatal(err)
				}
			case 2, 6:
				k.finish(min(arg, len(k.flight)))
			case 3:
				k.hold = !k.hold
			case 7:
				d.stuck.since = time.Time{}
			}
			settled(t, r, filled)
		}
		last := -1
		for _, b := range k.took {
			if number(b) <= last {
				t.Fatalf("frame %d sent after frame %d", number(b), last)
			}
			last = number(b)
		}
	})
}

// BenchmarkFill is what a frame costs in the ring besides the kernel: fill,
// mark, complete.
func BenchmarkFill(b *testing.B) {
	for _, frame := range []int{2048, 17 * 4096} {
		b.Run(fmt.Sprint("stride", frame), func(b *testing.B) {
			const n = 128
			r, k, d := newFakeTx(b, 256, frame, ring.VnetLen)
			d.bell = instant{k}
			data := make([]byte, 60)
			b.ReportAllocs()
			packets := 0
			for b.Loop() {
				for range n {
					s := r.Slot(r.Head)
					s.Len, s.Flags = uint32(copy(r.Buf(r.Head), data)), 0
					r.Head++
				}
				r.Cur = r.Head
				if err := r.Sync(); err != nil {
					b.Fatal(err)
				}
				packets += n
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packets), "ns/pkt")
		})
	}
}

// instant is a kernel that only marks frames as sent.
type instant struct{ *fakeTx }

func (f instant) doorbell() (int, unix.Errno) {
	sum := 0
	for {
		b := f.at(f.head)
		if word(b, 0).Load() != unix.TP_STATUS_SEND_REQUEST {
			return sum, 0
		}
		sum += int(u32(b, 4)) - f.vnet
		word(b, 0).Store(unix.TP_STATUS_AVAILABLE)
		f.head = (f.head + 1) % f.frames
	}
}
