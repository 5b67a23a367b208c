package ringtest

import (
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/netring/netring/ring"
)

// model does random steps on both rings.
func (b *bench) model() {
	for range 3000 {
		switch b.rng.IntN(6) {
		case 0, 1:
			b.fill(b.amount(b.TX.Len()))
		case 2:
			b.sync(b.TX)
		case 3:
			b.sync(b.RX)
		case 4:
			b.inspect(b.amount(b.RX.Len()))
		case 5:
			b.pass(b.amount(b.RX.Len()))
		}
	}
	// However the steps fell, the cursors shall have gone round.
	for b.filled < uint64(4*b.TX.Len()) {
		b.fill(b.TX.Len())
		b.drain()
	}
	b.drain()
}

// amount is 1 to n, mostly few, sometimes all.
func (b *bench) amount(n int) int {
	switch b.rng.IntN(4) {
	case 0:
		return n
	case 1:
		return 1
	}
	return 1 + b.rng.IntN(n)
}

// concurrent has two goroutines, each with one of the rings, and no more
// between them than a count of what the receiver has released.
func (b *bench) concurrent() {
	total := uint64(max(500, 8*b.TX.Len())) // a block's timer may be all that brings two frames
	if b.h.Lossless {
		total = max(total, 5000)
	}
	var released atomic.Uint64
	done := make(chan error, 1)
	stop := make(chan struct{})
	defer close(stop)
	// The sender's half of the model is b; the receiver has one of its own.
	rx := *b
	go func() { done <- rx.receiveAll(total, &released, stop) }()
	deadline := time.Now().Add(10 * b.h.Timeout)
	for b.filled < total {
		b.released = released.Load()
		b.fill(min(b.amount(b.TX.Len()), int(total-b.filled)))
		if err := b.TX.Sync(); err != nil {
			b.t.Fatal(err)
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("%v: %d of %d frames sent, %d released", 10*b.h.Timeout, b.filled, total, released.Load())
		}
		if b.room() == 0 {
			runtime.Gosched()
		}
	}
	if err := <-done; err != nil {
		b.t.Fatal(err)
	}
	b.released, b.passed, b.looked, b.look = total, total, total, b.RX.Head
	b.drain()
}

func (b *bench) receiveAll(total uint64, released *atomic.Uint64, stop <-chan struct{}) error {
	for i := uint64(0); i < total; {
		select {
		case <-stop:
			return errors.New("the sender has given up")
		default:
		}
		if err := b.RX.Sync(); err != nil {
			return err
		}
		released.Store(i)
		if b.RX.Space() == 0 {
			runtime.Gosched()
		}
		for ; b.RX.Space() > 0; i++ {
			if err := check(b.RX.Frame(b.RX.Head), i, b.size(i)); err != nil {
				return err
			}
			b.RX.Head++
		}
		b.RX.Cur = b.RX.Head
	}
	err := b.RX.Sync()
	released.Store(total)
	return err
}

// chains sends frames of several slots through a ring that takes them: only
// whole ones arrive. For lossless drivers.
func (b *bench) chains() {
	if !b.h.Lossless || !b.TX.MultiSlot() {
		return
	}
	n := b.TX.Len()
	for round := range 3 * n {
		parts := 1 + round%n
		for i := range parts {
			if i > 0 {
				b.TX.Slot(b.TX.Head - 1).Flags |= ring.SlotMoreFrag
			}
			b.fill(1)
			if last := i == parts-1; !last {
				b.TX.Slot(b.TX.Head - 1).Flags |= ring.SlotMoreFrag
				b.TX.Cur = b.TX.Head
				b.sync(b.TX)
				b.sync(b.RX)
				if b.RX.Space() != 0 {
					b.t.Fatalf("%d slots of an unfinished frame have arrived", b.RX.Space())
				}
			}
		}
		b.sync(b.TX)
		b.sync(b.RX)
		if got := b.RX.Space(); got != parts {
			b.t.Fatalf("a frame of %d slots arrived in %d", parts, got)
		}
		for i := range parts {
			k := b.RX.Head
			if more := b.RX.Slot(k).Flags&ring.SlotMoreFrag != 0; more != (i < parts-1) {
				b.t.Fatalf("part %d of %d: more follows: %v", i+1, parts, more)
			}
			if err := check(b.RX.Frame(k), b.looked, b.size(b.looked)); err != nil {
				b.t.Fatal(err)
			}
			b.RX.Head++
			b.looked++
		}
		b.RX.Cur, b.look, b.passed = b.RX.Head, b.RX.Head, b.looked
		b.sync(b.RX)
		b.sync(b.TX)
		if got := b.TX.Stats.Packets.Load(); got != uint64(round+1) {
			b.t.Fatalf("%d frames counted as sent, want %d", got, round+1)
		}
	}
	b.conserved()
}
