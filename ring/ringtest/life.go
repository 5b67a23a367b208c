package ringtest

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/netring/netring/ring"
)

// wait checks that the descriptors signal what they are for.
func (b *bench) wait() {
	if b.RX.FD() < 0 {
		b.t.Fatal("the receive ring has no descriptor to wait on")
	}
	for range 3 {
		b.RX.Arm()
		b.sync(b.RX)
		if b.RX.Space() != 0 {
			b.t.Fatalf("%d frames that nobody sent", b.RX.Space())
		}
		b.fill(1)
		b.sync(b.TX)
		if !sleepOn(b.t, b.RX, b.h.Timeout) {
			b.t.Fatalf("%v: the receive ring's descriptor has not signalled a frame", b.h.Timeout)
		}
		b.await(b.RX, "a frame has not arrived", func() bool { return b.RX.Space() > 0 })
		b.drain()
	}
	if !b.h.Lossless {
		return
	}
	b.RX.Arm()
	b.sync(b.RX)
	if sleepOn(b.t, b.RX, 0) {
		b.t.Error("an empty receive ring's descriptor signals")
	}
	b.fill(b.TX.Len())
	b.sync(b.TX)
	b.TX.Arm()
	b.sync(b.TX)
	if b.TX.Space() != 0 {
		b.t.Fatalf("%d free slots in a full transmit ring", b.TX.Space())
	}
	if sleepOn(b.t, b.TX, 0) {
		b.t.Error("a full transmit ring's descriptor signals")
	}
	b.sync(b.RX)
	b.inspect(1)
	b.pass(1)
	b.sync(b.RX)
	if !sleepOn(b.t, b.TX, b.h.Timeout) {
		b.t.Fatalf("%v: the transmit ring's descriptor has not signalled a free slot", b.h.Timeout)
	}
	b.sync(b.TX)
	if b.TX.Space() != 1 {
		b.t.Fatalf("%d free slots, want 1", b.TX.Space())
	}
	b.drain()
}

// allocs checks that a round allocates nothing.
func (b *bench) allocs() {
	// One round to warm up, which AllocsPerRun does.
	n := min(8, b.TX.Len())
	got := testing.AllocsPerRun(200, func() {
		b.fill(n)
		if err := b.TX.Sync(); err != nil {
			b.t.Fatal(err)
		}
		if err := b.RX.Sync(); err != nil {
			b.t.Fatal(err)
		}
		for ; b.RX.Space() > 0; b.passed++ {
			b.RX.Head++
		}
		b.RX.Cur, b.look, b.looked = b.RX.Head, b.RX.Head, b.passed
		if err := b.RX.Sync(); err != nil {
			b.t.Fatal(err)
		}
		b.released = b.passed
	})
	if got != 0 {
		b.t.Errorf("%v allocations a round, want none", got)
	}
	b.drain()
}

// gone reports whether err is what a ring says whose port, or whose peer, has
// closed.
func gone(err error) bool { return errors.Is(err, ring.ErrClosed) || errors.Is(err, ring.ErrGone) }

// closeInSync closes both ports while goroutines use their rings.
func (b *bench) closeInSync() {
	var rounds [2]atomic.Int64
	ended := make(chan error, 2)
	for i, r := range []*ring.Ring{b.TX, b.RX} {
		go func() { ended <- use(r, &rounds[i]) }()
	}
	for deadline := time.Now().Add(b.h.Timeout); rounds[0].Load() < 100 || rounds[1].Load() < 100; {
		if time.Now().After(deadline) {
			b.t.Fatalf("%v: the rings have only been used %d and %d times", b.h.Timeout, rounds[0].Load(), rounds[1].Load())
		}
		time.Sleep(100 * time.Microsecond)
	}
	b.closeBoth()
	for range 2 {
		select {
		case err := <-ended:
			if !gone(err) {
				b.t.Errorf("a goroutine inside of a ring that closes got %v", err)
			}
		case <-time.After(b.h.Timeout):
			b.t.Fatalf("%v after Close a goroutine is still inside\n%s", b.h.Timeout, stacks())
		}
	}
	b.closed()
}

// use fills or reads r as a program does that another one may close.
func use(r *ring.Ring, rounds *atomic.Int64) error {
	for {
		if err := r.Enter(); err != nil {
			return err
		}
		for i := 0; i < 4 && r.Space() > 0; i++ {
			if r.Dir() == ring.TX {
				pattern(r.Buf(r.Head)[:60], 1)
				r.Slot(r.Head).Len, r.Slot(r.Head).Flags = 60, 0
			} else if p := r.Frame(r.Head); len(p) != 60 {
				r.Exit()
				return errors.New("a received frame is damaged")
			}
			r.Head++
		}
		r.Cur = r.Head
		r.Exit()
		if err := r.Sync(); err != nil {
			return err
		}
		rounds.Add(1)
	}
}

func (b *bench) closeBoth() {
	b.t.Helper()
	closed := make(chan error, 2)
	go func() { closed <- b.TXPort.Close() }()
	go func() { closed <- b.RXPort.Close() }()
	for range 2 {
		select {
		case err := <-closed:
			if err != nil {
				b.t.Errorf("close: %v", err)
			}
		case <-time.After(b.h.Timeout):
			b.t.Fatalf("%v: Close has not returned\n%s", b.h.Timeout, stacks())
		}
	}
}

// closeInWait closes the ports while a goroutine waits on each ring.
func (b *bench) closeInWait() {
	entered := make(chan struct{}, 2)
	ended := make(chan bool, 2)
	for _, r := range []*ring.Ring{b.RX, b.TX} {
		go func() {
			if r.Enter() != nil {
				b.t.Error("an open ring refuses Enter")
			}
			r.Arm()
			entered <- struct{}{}
			// A free transmit ring signals at once; the receive ring sleeps.
			sleepOn(b.t, r, 10*b.h.Timeout)
			r.Exit()
			ended <- true
		}()
	}
	for range 2 {
		<-entered
	}
	b.closeBoth()
	for range 2 {
		select {
		case <-ended:
		case <-time.After(b.h.Timeout):
			b.t.Fatalf("%v: Close has not woken a waiter", b.h.Timeout)
		}
	}
	b.closed()
}

// closed checks what a closed link says.
func (b *bench) closed() {
	b.t.Helper()
	for _, r := range []*ring.Ring{b.TX, b.RX} {
		if err := r.Sync(); !errors.Is(err, ring.ErrClosed) {
			b.t.Errorf("%v ring: Sync after Close says %v", r.Dir(), err)
		}
		if err := r.Enter(); !errors.Is(err, ring.ErrClosed) {
			b.t.Errorf("%v ring: Enter after Close says %v", r.Dir(), err)
		}
		if err := r.Refresh(); err != nil && !errors.Is(err, ring.ErrClosed) {
			b.t.Errorf("%v ring: Refresh after Close says %v", r.Dir(), err)
		}
		r.Arm()
	}
	if err := errors.Join(b.TXPort.Close(), b.RXPort.Close()); err != nil {
		b.t.Errorf("second Close: %v", err)
	}
}

// stacks are all goroutines, for a test that has found one stuck.
func stacks() []byte {
	b := make([]byte, 1<<16)
	return b[:runtime.Stack(b, true)]
}
