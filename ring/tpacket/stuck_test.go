package tpacket

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/abi"
	"github.com/netring/netring/ring"
)

// sender is tpacket_snd with PACKET_LOSS as far as errors of single frames go:
// frames of no length are passed over, others are sent or left where they are.
type sender struct {
	*tx
	head   uint32
	took   []int              // numbers of the frames sent
	hold   bool               // frames stay in flight
	down   bool               // nothing is sent
	errnos map[int]unix.Errno // by number of the frame
}

func (s *sender) doorbell() (sum int, e unix.Errno) {
	if s.down {
		return -1, unix.ENETDOWN
	}
	for {
		b := s.at(s.head)
		w := word(b, abi.V2Status)
		if w.Load() != unix.TP_STATUS_SEND_REQUEST {
			return sum, 0
		}
		done := uint32(unix.TP_STATUS_AVAILABLE)
		if n := u32(b, abi.V2Len); n > s.vnet {
			i := int(binary.BigEndian.Uint32(b[txOffset+s.vnet+ethHdr:]))
			if e := s.errnos[i]; e != 0 {
				return -1, e
			}
			s.took = append(s.took, i)
			sum += int(n - s.vnet)
			if s.hold {
				done = unix.TP_STATUS_SENDING
			}
		}
		w.Store(done)
		s.head++
	}
}

func (s *sender) writable(time.Duration) error { return nil }

func newSender(t *testing.T, vnet int) (*fakeTx, *sender) {
	f := newFakeTx(t, 8, vnet, 1500)
	s := &sender{tx: f.d, errnos: map[int]unix.Errno{}}
	f.d.bell = s
	return f, s
}

// TestStuckFrame: a frame that the kernel neither sends nor passes over is given
// up after a bound, the others go on.
func TestStuckFrame(t *testing.T) {
	for _, vnet := range []int{0, ring.VnetLen} {
		f, k := newSender(t, vnet)
		k.errnos[1], k.errnos[3] = unix.ENOMEM, unix.ENOBUFS
		r := f.ring
		for i := range 5 {
			f.put(t, payload(60, i), nil)
		}
		for range stuckTries + 1 {
			mustSync(t, r)
		}
		if got := r.Stats.Drops[ring.DropRefused].Load(); got != 1 || len(k.took) != 2 {
			t.Fatalf("%d refused and %d sent, want 1 and 2: offloads of one cannot be carried out", got, len(k.took))
		}
		for range 100 {
			mustSync(t, r)
		}
		if r.Pending() != 2 {
			t.Fatalf("%d pending: a frame that a queue drops is tried for a while", r.Pending())
		}
		f.d.stuck.since = time.Now().Add(-2 * stuckTime)
		mustSync(t, r)
		mustSync(t, r)
		p, d, b := r.Stats.Packets.Load(), r.Stats.Drops[ring.DropRefused].Load(), r.Stats.Bytes.Load()
		if r.Pending() != 0 || p != 3 || d != 2 || b != 180 {
			t.Errorf("%d pending, %d sent of %d bytes, %d refused; want 0, 3 of 180, 2", r.Pending(), p, b, d)
		}
	}
}

// TestStuckOnLaterFrame: progress in between starts the count anew.
func TestStuckOnLaterFrame(t *testing.T) {
	f, k := newSender(t, 0)
	for i := range 8 {
		k.errnos[i] = unix.ENOMEM
		f.put(t, payload(60, i), nil)
	}
	for i := range 8 {
		for range stuckTries - 2 {
			mustSync(t, f.ring)
		}
		delete(k.errnos, i) // the memory is there after all
		mustSync(t, f.ring)
	}
	mustSync(t, f.ring)
	if len(k.took) != 8 || f.ring.Stats.Dropped() != 0 {
		t.Errorf("%d sent, %d dropped; want all 8", len(k.took), f.ring.Stats.Dropped())
	}
}

// TestOverMTU: what the device cannot send in one piece is the program's again.
func TestOverMTU(t *testing.T) {
	f := newFakeTx(t, 8, ring.VnetLen, 1500)
	r := f.ring
	f.put(t, payload(1518, 0), nil)
	f.put(t, payload(1519, 1), nil)
	r.Cur = r.Head
	if err := r.Sync(); !errors.Is(err, ring.ErrTooLarge) || len(f.sent) != 1 {
		t.Fatalf("%v, %d sent; want %v for the second", err, len(f.sent), ring.ErrTooLarge)
	}
	if s := r.Slot(r.Head); s.Len != 1519 || r.Space() != 7 {
		t.Errorf("slot %+v, %d free", *s, r.Space())
	}
	// As a super-frame the same is in order.
	if !r.SetVnet(r.Head, &ring.Vnet{GSOType: ring.VnetGSOTCPv4, HdrLen: 54, GSOSize: 1448}) {
		t.Fatal("no room for the header")
	}
	r.Head++
	mustSync(t, r)
	if len(f.sent) != 2 {
		t.Errorf("%d sent, want the super-frame too", len(f.sent))
	}
}

// TestReset: a ring whose frames never complete starts anew, in its middle.
func TestReset(t *testing.T) {
	f, k := newSender(t, ring.VnetLen)
	r := f.ring
	if err := r.Reset(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("reset of a ring that cannot be made anew: %v", err)
	}
	f.d.remake = anew(f.d, &k.head)
	for i := range 3 {
		f.put(t, payload(60, i), nil)
	}
	k.hold = true
	mustSync(t, r)
	word(f.d.at(0), abi.V2Status).Store(unix.TP_STATUS_AVAILABLE) // one was sent
	if err := r.Reset(); err != nil {
		t.Fatal(err)
	}
	if p, c := r.Stats.Packets.Load(), r.Stats.Drops[ring.DropClosed].Load(); p != 1 || c != 2 || r.Space() != 8 {
		t.Errorf("%d sent, %d closed, %d free; want 1, 2, 8", p, c, r.Space())
	}
	k.hold, k.took = false, nil
	for i := range 20 {
		f.put(t, payload(60, i), nil)
		mustSync(t, r)
	}
	for i, n := range k.took {
		if n != i {
			t.Fatalf("frame %d sent in the place of %d", n, i)
		}
	}
	if len(k.took) != 20 || r.Pending() != 0 {
		t.Errorf("%d of 20 frames sent after the reset, %d pending", len(k.took), r.Pending())
	}
}

// TestResetFails: a reset that fails, at whatever step, leaves the old ring as
// it is, and its frames are counted once.
func TestResetFails(t *testing.T) {
	for step, want := range []error{unix.ENOMEM, unix.ENETDOWN, unix.EBUSY} {
		f, k := newSender(t, ring.VnetLen)
		r := f.ring
		// Two frames sent and three under way, around the end of the ring.
		for i := range 8 {
			k.hold = i >= 6
			f.put(t, payload(60, i), nil)
			mustSync(t, r)
		}
		for i := range 3 {
			f.put(t, payload(60, 8+i), nil)
			mustSync(t, r)
		}
		word(f.d.at(6), abi.V2Status).Store(unix.TP_STATUS_AVAILABLE) // not seen by a Sync yet
		good := anew(f.d, &k.head)
		f.d.remake = func() (successor, error) {
			s, err := good()
			switch step {
			case 0:
				return s, want
			case 1:
				s.tx.bell = &sender{tx: s.tx, down: true}
			case 2:
				s.install = func() error { return want }
			}
			return s, err
		}
		for range 2 {
			if err := r.Reset(); !errors.Is(err, want) {
				t.Fatalf("reset: %v, want %v", err, want)
			}
		}
		if p, c := r.Stats.Packets.Load(), r.Stats.Dropped(); p != 6 || c != 0 {
			t.Errorf("%v: %d sent, %d dropped by a reset that failed; want 6 and 0", want, p, c)
		}
		f.d.remake = good
		if err := r.Reset(); err != nil {
			t.Fatal(err)
		}
		if p, b, c := r.Stats.Packets.Load(), r.Stats.Bytes.Load(), r.Stats.Drops[ring.DropClosed].Load(); p != 7 || b != 420 || c != 4 || r.Space() != 8 {
			t.Errorf("%v: %d sent of %d bytes, %d closed, %d free; want 7 of 420, 4, 8", want, p, b, c, r.Space())
		}
		k.hold, k.took = false, nil
		f.put(t, payload(60, 20), nil)
		mustSync(t, r)
		if len(k.took) != 1 || k.took[0] != 20 || r.Pending() != 0 {
			t.Errorf("%v: sent %v after the reset", want, k.took)
		}
	}
}

// anew remakes d's ring: memory of zeros and a kernel whose head is at its
// start; *head becomes where it has got to.
func anew(d *tx, head *uint32) func() (successor, error) {
	return func() (successor, error) {
		g := Geometry{FrameSize: int(d.frame), Frames: int(d.mask + 1)}
		next := newTx(nil, nil, make([]byte, len(d.mem)), g, int(d.vnet))
		kernel := &sender{tx: next}
		next.bell = kernel
		return successor{tx: next, discard: func() {}, install: func() error {
			copy(d.mem, next.mem)
			*head = kernel.head
			return nil
		}}, nil
	}
}

// TestSkew: a frame that the kernel has stepped over does not hold the receive
// ring up for ever, and one that is only late is not lost.
func TestSkew(t *testing.T) {
	f := newFakeRx2(t, 8, 2048, 0)
	r := f.ring
	f.head = 1
	f.deliver(packet{data: payload(100, 1)})
	for i := range skewAfter {
		mustSync(t, r)
		if r.Space() != 0 && i < skewAfter-1 {
			t.Fatalf("gap passed over after %d Syncs: two CPUs may just be racing", i+1)
		}
	}
	if r.Space() != 2 {
		t.Fatalf("%d slots after the gap, want an empty one and the frame", r.Space())
	}
	if s := r.Slot(r.Head); s.Flags&ring.SlotTruncated == 0 || s.Len != 0 {
		t.Errorf("slot of the gap: %+v", *s)
	}
	if got := len(r.Frame(r.Head + 1)); got != 100 || r.Stats.Drops[ring.DropMalformed].Load() != 1 || r.Stats.Packets.Load() != 1 {
		t.Errorf("frame of %d bytes; %d malformed", got, r.Stats.Drops[ring.DropMalformed].Load())
	}
	r.Head = r.Tail()
	f.head = 3
	f.deliver(packet{data: payload(100, 3)})
	for range skewAfter - 1 {
		if mustSync(t, r); r.Space() != 0 {
			t.Fatal("frame 3 received before frame 2")
		}
	}
	f.head = 2
	f.deliver(packet{data: payload(102, 2)})
	mustSync(t, r)
	if r.Space() != 2 || len(r.Frame(r.Head)) != 102 || r.Stats.Drops[ring.DropMalformed].Load() != 1 {
		t.Errorf("%d slots after the late frame, want 2; %d malformed", r.Space(), r.Stats.Drops[ring.DropMalformed].Load())
	}
}
