package mem_test

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/mem"
)

// TestPeerCloses: what was sent arrives, then both rings say that nobody is
// there; sent = received + dropped.
func TestPeerCloses(t *testing.T) {
	for _, senderFirst := range []bool{true, false} {
		pool, err := mem.NewPool(64, 2048)
		if err != nil {
			t.Fatal(err)
		}
		a, b, tx, rx := ends(t, mem.Options{Slots: 8, Pool: pool})
		for i := range 5 {
			put(t, tx, byte(i), 60, 0)
		}
		put(t, tx, 9, 60, ring.SlotMoreFrag)
		sync1(t, tx, 2)
		sync1(t, rx, 5)
		pass(rx, 2)
		if senderFirst {
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			sync1(t, rx, 3)
			pass(rx, 3)
			for range 2 {
				if err := rx.Sync(); !errors.Is(err, ring.ErrGone) || rx.Space() != 0 {
					t.Errorf("receiver: %v, %d slots", err, rx.Space())
				}
			}
			if err := rx.Refresh(); !errors.Is(err, ring.ErrGone) {
				t.Error(err)
			}
		} else {
			sync1(t, rx, 3)
			put(t, tx, 10, 60, 0)
			put(t, tx, 11, 60, 0)
			sync1(t, tx, 2)
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			put(t, tx, 12, 60, 0)
			for range 2 {
				if err := tx.Sync(); !errors.Is(err, ring.ErrGone) || tx.Space() != 8 || tx.Head != tx.Accepted() {
					t.Errorf("sender: %v, %d slots", err, tx.Space())
				}
			}
			if err := tx.Refresh(); !errors.Is(err, ring.ErrGone) {
				t.Error(err)
			}
		}
		for _, p := range []*mem.Port{a, b} {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
		want := uint64(1) // the chain without its end
		if !senderFirst {
			want = 2 // the chain and the frame after it
		}
		if p, d := tx.Stats.Packets.Load(), tx.Stats.Drops[ring.DropClosed].Load(); p != 5 || d != want {
			t.Errorf("sender first %v: %d sent, %d dropped; want 5 and %d", senderFirst, p, d, want)
		}
		if n := pool.Free(); n != 64 {
			t.Errorf("sender first %v: %d of 64 buffers are back", senderFirst, n)
		}
		if err := errors.Join(pool.Close(), pool.Close()); err != nil {
			t.Error(err)
		}
		if _, _, err := mem.Pair(mem.Options{Pool: pool, Slots: 2}); !errors.Is(err, ring.ErrClosed) {
			t.Errorf("pair over a closed pool: %v", err)
		}
	}
}

// TestPeerClosesWakes: who sleeps on a ring learns that the other end has gone.
func TestPeerClosesWakes(t *testing.T) {
	for _, dir := range []ring.Dir{ring.RX, ring.TX} {
		a, b := pair(t, mem.Options{Slots: 2})
		r, ev := a.RxRings()[0], int16(unix.POLLIN)
		if dir == ring.TX {
			r, ev = a.TxRings()[0], unix.POLLOUT
			put(t, r, 1, 60, 0)
			put(t, r, 1, 60, 0)
		}
		r.Arm()
		sync1(t, r, 0)
		ready := func() bool {
			fds := []unix.PollFd{{Fd: int32(r.FD()), Events: ev}}
			n, err := unix.Poll(fds, 0)
			return err == nil && n == 1
		}
		if ready() {
			t.Errorf("%v descriptor is ready, the ring is not", dir)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if !ready() {
			t.Errorf("%v descriptor does not tell that the peer has gone", dir)
		}
		if r.Arm(); !ready() {
			t.Errorf("%v descriptor armed later does not tell that the peer has gone", dir)
		}
	}
}

// TestConcurrent: a sender and a receiver on two goroutines that sleep when there is
// nothing to do; then the sender closes.
func TestConcurrent(t *testing.T) {
	const frames = 200_000
	a, b, tx, rx := ends(t, mem.Options{Slots: 64})
	var both sync.WaitGroup
	both.Go(func() {
		for i := uint32(0); i < frames; {
			for ; tx.Space() != 0 && i < frames; i++ {
				s := tx.Slot(tx.Head)
				buf := tx.Buf(tx.Head)
				buf[0], buf[1], buf[2], s.Len, s.Flags = byte(i), byte(i>>8), byte(i>>16), 60, 0
				pass(tx, 1)
			}
			if err := wait(tx, unix.POLLOUT); err != nil {
				t.Error(err)
				return
			}
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	var n uint32
	for {
		if err := wait(rx, unix.POLLIN); err != nil {
			if !errors.Is(err, ring.ErrGone) {
				t.Error(err)
			}
			break
		}
		for ; rx.Space() != 0; n++ {
			if f := rx.Frame(rx.Head); uint32(f[0])|uint32(f[1])<<8|uint32(f[2])<<16 != n {
				t.Fatalf("frame %d has come as % x", n, f[:3])
			}
			pass(rx, 1)
		}
	}
	both.Wait()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if p, d := tx.Stats.Packets.Load(), tx.Stats.Dropped(); n != frames || p != frames || d != 0 {
		t.Errorf("%d received, %d sent, %d dropped; want all of %d", n, p, d, frames)
	}
}

// wait syncs r and sleeps until it is ready.
func wait(r *ring.Ring, ev int16) error {
	if err := r.Sync(); err != nil || r.Ready() {
		return err
	}
	for {
		r.Arm()
		if err := r.Sync(); err != nil || r.Ready() {
			return err
		}
		fds := []unix.PollFd{{Fd: int32(r.FD()), Events: ev}}
		if n, err := unix.Poll(fds, 10_000); n == 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("poll: %d descriptors, %w", n, err)
		}
	}
}

// TestOpenClose leaves no descriptor behind.
func TestOpenClose(t *testing.T) {
	count := func() int {
		e, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no list of open descriptors: ", err)
		}
		return len(e)
	}
	before := count()
	for i := range 10_000 {
		a, b, err := mem.Pair(mem.Options{Slots: 2})
		if err != nil {
			t.Fatalf("pair %d: %v", i, err)
		}
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(); n > before {
		t.Errorf("%d descriptors before, %d after", before, n)
	}
}
