// Package ringtest is the conformance suite of ring drivers: what the package
// comment of ring promises, as tests. Every driver runs it:
//
//	func TestConformance(t *testing.T) {
//		ringtest.Run(t, ringtest.Harness{Open: func(t testing.TB, slots int) ringtest.Link {
//			a, b, err := mem.Pair(mem.Options{Slots: slots})
//			...
//			return ringtest.Link{TXPort: a, RXPort: b, TX: a.TxRings()[0], RX: b.RxRings()[0]}
//		}})
//	}
//
// The suite compares a driver with a model, a queue of the frames that are
// underway: it fills, syncs and consumes at random, on rings of several sizes,
// from cursors at zero and from some right before they wrap.
package ringtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/ring"
)

// Link is a fresh transmit ring and the receive ring where its frames arrive,
// with nothing else underway. The ports may be one.
type Link struct {
	TX, RX         *ring.Ring
	TXPort, RXPort ring.Port
	// Spare are buffers of the program's that the suite may exchange with
	// those in slots of both rings; none if they have different regions.
	Spare []uint32
	// Window bounds the frames underway where more might be lost; 0 means
	// the slots of the receive ring. Not for a lossless driver.
	Window int
}

// Harness is a driver as the suite sees it.
type Harness struct {
	// Open makes a link with rings of about the given size and has t close
	// its ports.
	Open func(t testing.TB, slots int) Link
	// Sizes are the ring sizes to test; nil means 2, 8 and 1024.
	Sizes []int
	// MinFrame and MaxFrame bound the frames that are sent; 0 means 60 and
	// 1514. At least 32.
	MinFrame, MaxFrame int
	// Lossless: frames stay in the transmit ring until the receiver has passed
	// them, and a sender may fill it. Otherwise see [Link].Window.
	Lossless bool
	// Timeout bounds how long a frame may be underway; 0 means 20 seconds. Only
	// a test that fails takes so long: it is meant for the slowest machine.
	Timeout time.Duration
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	h = h.withDefaults()
	for _, n := range h.Sizes {
		t.Run(fmt.Sprintf("slots%d", n), func(t *testing.T) {
			for _, wrap := range []bool{false, true} {
				t.Run(fmt.Sprintf("model/wrap=%v", wrap), func(t *testing.T) { newBench(t, &h, n, wrap).model() })
			}
			t.Run("concurrent", func(t *testing.T) { newBench(t, &h, n, true).concurrent() })
			t.Run("cursors", func(t *testing.T) { newBench(t, &h, n, true).hostileCursors() })
			t.Run("slots/transmit", func(t *testing.T) { newBench(t, &h, n, true).hostileTransmit() })
			t.Run("slots/receive", func(t *testing.T) { newBench(t, &h, n, true).hostileReceive() })
			t.Run("chains", func(t *testing.T) { newBench(t, &h, n, false).chains() })
			t.Run("wait", func(t *testing.T) { newBench(t, &h, n, false).wait() })
			t.Run("allocs", func(t *testing.T) { newBench(t, &h, n, false).allocs() })
			t.Run("close/sync", func(t *testing.T) { newBench(t, &h, n, false).closeInSync() })
			t.Run("close/wait", func(t *testing.T) { newBench(t, &h, n, false).closeInWait() })
		})
	}
}

func (h Harness) withDefaults() Harness {
	if h.Sizes == nil {
		h.Sizes = []int{2, 8, 1024}
	}
	if h.MinFrame == 0 {
		h.MinFrame = 60
	}
	if h.MaxFrame == 0 {
		h.MaxFrame = 1514
	}
	if h.Timeout == 0 {
		h.Timeout = 20 * time.Second
	}
	return h
}

// bench is one link under test and the model of it.
type bench struct {
	Link
	t   testing.TB
	h   *Harness
	rng *rand.Rand

	filled   uint64 // frames put into slots; a frame's number is filled before it
	looked   uint64 // frames checked at the receiver
	passed   uint64 // frames that the receiver's head has passed
	released uint64 // of these, synced
	bytes    uint64 // of all filled frames
	look     uint32 // the receiver's next slot to look at
	initial  map[uint32]int
}

func newBench(t testing.TB, h *Harness, slots int, wrap bool) *bench {
	b := &bench{Link: h.Open(t, slots), t: t, h: h, rng: rand.New(rand.NewPCG(1, uint64(slots)))}
	if wrap {
		// Two rounds before the 32-bit cursors wrap.
		b.TX.Seed(-uint32(2 * b.TX.Len()))
		b.RX.Seed(-uint32(2 * b.RX.Len()))
	}
	b.look = b.RX.Head
	b.initial = b.buffers()
	if len(b.initial) != b.TX.Len()+len(b.Spare) {
		t.Fatalf("a fresh transmit ring of %d slots names %d different buffers, spares included", b.TX.Len(), len(b.initial))
	}
	return b
}

// size is the length of frame i, anything between the bounds.
func (b *bench) size(i uint64) int {
	span := uint64(b.h.MaxFrame - b.h.MinFrame + 1)
	switch i % 16 {
	case 3:
		return b.h.MinFrame
	case 7:
		return b.h.MaxFrame
	}
	return b.h.MinFrame + int(i*2654435761%span)
}

// pattern writes frame i into p, which has its length.
func pattern(p []byte, i uint64) {
	copy(p, "\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x88\xb5")
	binary.BigEndian.PutUint64(p[14:], i)
	for k := 22; k < len(p); k++ {
		p[k] = byte(k)*7 ^ byte(i)
	}
}

// check reports how frame p differs from frame i.
func check(p []byte, i uint64, size int) error {
	if len(p) != size {
		return fmt.Errorf("frame %d has %d bytes, want %d", i, len(p), size)
	}
	if got := binary.BigEndian.Uint64(p[14:]); got != i {
		return fmt.Errorf("got frame %d, want frame %d", got, i)
	}
	for k := 22; k < len(p); k++ {
		if p[k] != byte(k)*7^byte(i) {
			return fmt.Errorf("frame %d is damaged at byte %d", i, k)
		}
	}
	return nil
}

// room is how many more frames may be underway.
func (b *bench) room() int {
	n := b.TX.Space()
	if b.h.Lossless {
		return n
	}
	w := b.Window
	if w == 0 {
		w = b.RX.Len()
	}
	return max(min(n, w-int(b.filled-b.released)), 0)
}

// fill puts up to n frames into free slots.
func (b *bench) fill(n int) {
	for n = min(n, b.room()); n > 0; n-- {
		k := b.TX.Head
		s := b.TX.Slot(k)
		b.exchange(s)
		size := b.size(b.filled)
		p := b.TX.Buf(k)
		if len(p) < size {
			b.t.Fatalf("buffer of slot %d has room for %d bytes, the frame has %d", k, len(p), size)
		}
		pattern(p[:size], b.filled)
		s.Len, s.Flags = uint32(size), 0
		b.TX.Head++
		b.bytes += uint64(size)
		b.filled++
	}
	b.TX.Cur = b.TX.Head
	if b.TX.Space() > 0 {
		b.TX.Cur += uint32(b.rng.IntN(b.TX.Space() + 1))
	}
}

// exchange puts a spare buffer into slot s, sometimes.
func (b *bench) exchange(s *ring.Slot) {
	if len(b.Spare) != 0 && b.rng.IntN(2) == 0 {
		i := b.rng.IntN(len(b.Spare))
		s.Buf, b.Spare[i] = b.Spare[i], s.Buf
		s.Flags |= ring.SlotBufChanged
	}
}

func (b *bench) sync(r *ring.Ring) {
	if err := r.Sync(); err != nil {
		b.t.Fatal(err)
	}
	b.synced(r)
}

func (b *bench) synced(r *ring.Ring) {
	if n := r.Tail() - r.Head; n > uint32(r.Len()) {
		b.t.Fatalf("%v ring of %d slots: %d of them from head %d to tail %d", r.Dir(), r.Len(), n, r.Head, r.Tail())
	}
	if r.Accepted() != r.Head {
		b.t.Fatalf("%v ring: accepted %d after Sync, head is %d", r.Dir(), r.Accepted(), r.Head)
	}
	if r == b.RX {
		b.released = b.passed
		if got := b.passed + uint64(r.Space()); got > b.filled {
			b.t.Fatalf("%d frames received, only %d sent", got, b.filled)
		}
	}
}

// inspect checks up to n received frames and leaves them where they are.
func (b *bench) inspect(n int) {
	for ; n > 0 && b.look != b.RX.Tail(); n-- {
		b.verify(b.look, b.looked)
		b.look++
		b.looked++
	}
	b.RX.Cur = b.look
}

func (b *bench) verify(k uint32, i uint64) {
	s := b.RX.Slot(k)
	p := b.RX.Frame(k)
	if p == nil {
		b.t.Fatalf("received slot %d names no memory: %+v", k, *s)
	}
	if err := check(p, i, b.size(i)); err != nil {
		b.t.Fatalf("received slot %d: %v", k, err)
	}
	if s.Flags&(ring.SlotMoreFrag|ring.SlotVnet|ring.SlotTruncated) != 0 {
		b.t.Fatalf("received slot %d has flags %#x", k, s.Flags)
	}
	var m ring.Meta
	if b.RX.Meta(k, &m) && int(m.WireLen) != len(p) {
		b.t.Fatalf("received slot %d: %d bytes on the wire, sent %d", k, m.WireLen, len(p))
	}
}

// pass passes up to n frames that have been checked, once more first: until
// then nobody may have touched them.
func (b *bench) pass(n int) {
	for ; n > 0 && b.RX.Head != b.look; n-- {
		b.verify(b.RX.Head, b.passed)
		b.exchange(b.RX.Slot(b.RX.Head))
		b.RX.Head++
		b.passed++
	}
}

// await syncs r until ok, sleeping on its descriptor. A sender whose device was
// busy goes on meanwhile.
func (b *bench) await(r *ring.Ring, what string, ok func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(b.h.Timeout); ; {
		b.sync(b.TX)
		b.sync(r)
		if ok() {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("%v: %s (head %d, cur %d, tail %d; %d filled, %d received, %d released)",
				b.h.Timeout, what, r.Head, r.Cur, r.Tail(), b.filled, b.looked, b.released)
		}
		r.Arm()
		b.sync(r)
		if !ok() {
			sleepOn(b.t, r, time.Millisecond)
		}
	}
}

// sleepOn is poll(2) on the descriptors of r; it reports whether the ring's
// own signalled.
func sleepOn(t testing.TB, r *ring.Ring, d time.Duration) bool {
	events := int16(unix.POLLIN)
	if r.Dir() == ring.TX {
		events = unix.POLLOUT
	}
	fds := []unix.PollFd{{Fd: int32(r.FD()), Events: events}, {Fd: int32(r.WakeFD()), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, int(d/time.Millisecond))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			t.Errorf("poll: %v", err)
		}
		return fds[0].Revents != 0
	}
}

// drain receives all that is underway, waits until the sender has every slot
// back, and compares counters and buffers.
func (b *bench) drain() {
	b.t.Helper()
	b.sync(b.TX)
	b.sync(b.RX) // what is passed and not yet released does not arrive again
	for b.released != b.filled {
		if b.RX.Space() == 0 {
			b.await(b.RX, "a frame has not arrived", func() bool { return b.RX.Space() > 0 })
		}
		b.inspect(b.RX.Len())
		b.pass(b.RX.Len())
		b.sync(b.RX)
		b.sync(b.TX)
	}
	b.await(b.TX, "slots have not come back", func() bool { return b.TX.Pending() == 0 })
	b.sync(b.RX)
	if b.RX.Space() != 0 {
		b.t.Fatalf("%d frames more than were sent", b.RX.Space())
	}
	b.counters()
	b.conserved()
}

func (b *bench) counters() {
	b.t.Helper()
	for _, r := range []*ring.Ring{b.TX, b.RX} {
		if p, n := r.Stats.Packets.Load(), r.Stats.Bytes.Load(); p != b.filled || n != b.bytes {
			b.t.Fatalf("%v ring counts %d packets of %d bytes, %d of %d were sent", r.Dir(), p, n, b.filled, b.bytes)
		}
		if d := r.Stats.Dropped(); d != 0 {
			b.t.Fatalf("%v ring counts %d drops", r.Dir(), d)
		}
		if r.Stats.Syncs.Load() == 0 {
			b.t.Fatalf("%v ring counts no Sync", r.Dir())
		}
	}
}

// buffers returns the buffers of the transmit ring's slots, all of which are
// the program's, and of the spares.
func (b *bench) buffers() map[uint32]int {
	m := make(map[uint32]int)
	for k := b.TX.Head; k != b.TX.Tail(); k++ {
		m[b.TX.Slot(k).Buf]++
	}
	for _, s := range b.Spare {
		m[s]++
	}
	return m
}

// conserved checks that no buffer is lost and none there twice. Without
// spares, a driver whose buffers travel may have others in its slots by now.
func (b *bench) conserved() {
	b.t.Helper()
	now := b.buffers()
	if len(now) != len(b.initial) {
		b.t.Fatalf("the sender's slots and the spares name %d different buffers, %d at first", len(now), len(b.initial))
	}
	for buf := range now {
		if b.TX.Region().Buf(buf) == nil {
			b.t.Fatalf("buffer %d does not exist", buf)
		}
		if len(b.Spare) != 0 && b.initial[buf] == 0 {
			b.t.Fatalf("buffer %d has come from nowhere", buf)
		}
	}
}
