package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/ring"
)

const (
	seqAt    = 42 // of a frame's sequence number: after Ethernet, IPv4 and UDP
	minFrame = 60
	burst    = 64
)

// The addresses of the demonstration's frames: nobody's.
var (
	demoDst = [6]byte{2, 0, 0, 0, 0, 2}
	demoSrc = [6]byte{2, 0, 0, 0, 0, 1}
)

// send sends numbered copies of frame for a time, at a rate (0: as fast as the
// ring takes them), and returns how many the device has finished.
func send(ctx context.Context, p ring.Port, frame []byte, pps int, d time.Duration) (uint64, time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tx := p.TxRings()[0]
	start := time.Now()
	var seq uint64
	for ctx.Err() == nil {
		now := time.Since(start)
		if now >= d {
			break
		}
		n := tx.Space()
		if pps > 0 {
			n = min(n, int(uint64(float64(pps)*now.Seconds())-seq))
		}
		n = min(n, burst)
		for range n {
			b := tx.Buf(tx.Head)
			copy(b, frame)
			binary.BigEndian.PutUint64(b[seqAt:], seq)
			s := tx.Slot(tx.Head)
			s.Len, s.Flags = uint32(len(frame)), 0
			tx.Head++
			seq++
		}
		tx.Cur = tx.Head
		if err := tx.Sync(); err != nil {
			return 0, now, fmt.Errorf("send: %w", err)
		}
		if pps > 0 && n < burst {
			pause(100 * time.Microsecond)
		}
	}
	took := time.Since(start)
	for end := time.Now().Add(time.Second); tx.Pending() != 0 && time.Now().Before(end); pause(100 * time.Microsecond) {
		if err := tx.Sync(); err != nil {
			return 0, took, fmt.Errorf("send: %w", err)
		}
	}
	return tx.Stats.Packets.Load(), took, nil
}

// pause sleeps on the thread itself: the runtime's timers would wake another.
func pause(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil) // cut short by a signal: a little early
}

// receiver counts numbered frames.
type receiver struct {
	rx   *ring.Ring
	stop atomic.Bool
	got  atomic.Uint64
	done chan struct{}

	// Valid once finish has returned.
	unique, duplicate, reordered uint64
	err                          error
	seen                         []uint64 // a bit per sequence number
	next                         uint64
}

func newReceiver(rx *ring.Ring) *receiver {
	return &receiver{rx: rx, done: make(chan struct{})}
}

func (r *receiver) run() {
	defer close(r.done)
	runtime.LockOSThread()
	fds := []unix.PollFd{{Fd: int32(r.rx.FD()), Events: unix.POLLIN}}
	for !r.stop.Load() {
		if err := r.rx.Sync(); err != nil {
			r.err = fmt.Errorf("receive: %w", err)
			return
		}
		if r.rx.Space() != 0 {
			r.take()
			continue
		}
		r.rx.Arm()
		if _, err := unix.Poll(fds, 5); err != nil && !errors.Is(err, unix.EINTR) {
			r.err = fmt.Errorf("receive: %w", err)
			return
		}
	}
}

func (r *receiver) take() {
	for ; r.rx.Head != r.rx.Tail(); r.rx.Head++ {
		f := r.rx.Frame(r.rx.Head)
		if len(f) < minFrame || [6]byte(f) != demoDst {
			continue // not the generator's
		}
		r.count(binary.BigEndian.Uint64(f[seqAt:]))
	}
	r.rx.Cur = r.rx.Head
	r.got.Store(r.unique)
}

// count notes one sequence number.
func (r *receiver) count(seq uint64) {
	for uint64(len(r.seen)) <= seq/64 {
		r.seen = append(r.seen, 0)
	}
	bit := uint64(1) << (seq % 64)
	if r.seen[seq/64]&bit != 0 {
		r.duplicate++
		return
	}
	r.seen[seq/64] |= bit
	r.unique++
	if seq < r.next {
		r.reordered++
	} else {
		r.next = seq + 1
	}
}

// finish waits until all that was sent has arrived, or nothing more comes for
// the time given, and ends the receiver.
func (r *receiver) finish(sent uint64, quiet time.Duration) {
	last, since := r.got.Load(), time.Now()
	for r.got.Load() < sent && time.Since(since) < quiet {
		pause(time.Millisecond)
		if n := r.got.Load(); n != last {
			last, since = n, time.Now()
		}
	}
	r.stop.Store(true)
	<-r.done
}
