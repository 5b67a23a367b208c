package poll

import (
	"context"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/ring"
)

// pipeDriver is a receive ring whose packets are the bytes of a pipe or
// socket. Its descriptor signals without being armed.
type pipeDriver struct {
	fd    int
	arms  int
	syncs int
	buf   [1]byte
}

func (d *pipeDriver) Sync(r *ring.Ring, from, to uint32) (uint32, uint32, error) {
	d.syncs++
	tail := r.Tail()
	for int(tail-to) < r.Len() {
		if n, err := unix.Read(d.fd, d.buf[:]); err != nil || n == 0 {
			break
		}
		tail++
	}
	return to, tail, nil
}

func (d *pipeDriver) Arm(*ring.Ring) { d.arms++ }

type pipeRing struct {
	*ring.Ring
	drv    *pipeDriver
	life   *ring.Life
	wakeFD int
	peer   int
}

// newPipeRing makes a ring over one end of a socket pair.
func newPipeRing(t *testing.T) *pipeRing {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	g, err := ring.NewRegion(make([]byte, 64), 64)
	if err != nil {
		t.Fatal(err)
	}
	pr := &pipeRing{drv: &pipeDriver{fd: p[0]}, life: ring.NewLife(), wakeFD: wake, peer: p[1]}
	pr.Ring, err = ring.New(ring.Config{Port: "pipe", Slots: 8, Region: g, Life: pr.life, Driver: pr.drv, FD: p[0], WakeFD: wake})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, fd := range []int{p[0], pr.peer, wake} {
			if fd >= 0 {
				_ = unix.Close(fd)
			}
		}
	})
	return pr
}

func (r *pipeRing) send(t *testing.T) {
	t.Helper()
	if _, err := unix.Write(r.peer, []byte{1}); err != nil {
		t.Error(err)
	}
}

func newWaiter(t *testing.T) *Waiter {
	t.Helper()
	w, err := NewWaiter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

type outcome struct {
	ready bool
	err   error
}

// waiting starts a Wait without end and returns once it is asleep.
func waiting(t *testing.T, w *Waiter, ctx context.Context, r *pipeRing) <-chan outcome {
	t.Helper()
	out := make(chan outcome, 1)
	tid := make(chan int, 1)
	go func() {
		tid <- unix.Gettid()
		ready, err := w.Wait(ctx, -1, r.Ring)
		out <- outcome{ready, err}
	}()
	<-tid
	return out
}

func result(t *testing.T, out <-chan outcome) outcome {
	t.Helper()
	select {
	case o := <-out:
		return o
	case <-time.After(20 * time.Second):
		t.Fatal("Wait does not return")
		return outcome{}
	}
}

func TestWaitReady(t *testing.T) {
	w, r := newWaiter(t), newPipeRing(t)
	r.send(t)
	if ready, err := w.Wait(context.Background(), 0, r.Ring); !ready || err != nil {
		t.Fatalf("with a packet there: %v, %v", ready, err)
	}
	if r.drv.arms != 0 {
		t.Error("armed though there was a packet")
	}
	r.Head, r.Cur = r.Tail(), r.Tail()
	if ready, err := w.Wait(context.Background(), 0, r.Ring); ready || err != nil {
		t.Fatalf("with none: %v, %v", ready, err)
	}
	start := time.Now()
	if ready, err := w.Wait(context.Background(), 20*time.Millisecond, r.Ring); ready || err != nil || time.Since(start) < 20*time.Millisecond {
		t.Fatalf("for 20 ms: %v, %v after %v", ready, err, time.Since(start))
	}
	if r.drv.arms == 0 {
		t.Error("slept without arming")
	}
	out := waiting(t, w, context.Background(), r)
	r.send(t)
	if o := result(t, out); !o.ready || o.err != nil {
		t.Errorf("a packet while asleep: %+v", o)
	}
}

func TestWaitContext(t *testing.T) {
	w, r := newWaiter(t), newPipeRing(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	out := waiting(t, w, ctx, r)
	cancel(nil)
	if o := result(t, out); o.ready || !errors.Is(o.err, context.Canceled) {
		t.Errorf("cancelled: %+v", o)
	}
	if _, err := w.Wait(ctx, -1, r.Ring); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
	// The cancellation leaves nothing behind that ends the next sleep.
	ctx, cancel = context.WithCancelCause(context.Background())
	defer cancel(nil)
	start := time.Now()
	if ready, err := w.Wait(ctx, 20*time.Millisecond, r.Ring); ready || err != nil || time.Since(start) < 20*time.Millisecond {
		t.Errorf("after a cancelled wait: %v, %v, %v", ready, err, time.Since(start))
	}
}

func TestWaitClosed(t *testing.T) {
	w, r := newWaiter(t), newPipeRing(t)
	out := waiting(t, w, context.Background(), r)
	// What a driver's Close does: refuse, wake, wait until all have left.
	r.life.Shut()
	kick(r.wakeFD)
	if o := result(t, out); o.ready || !errors.Is(o.err, os.ErrClosed) {
		t.Errorf("closed while asleep: %+v", o)
	}
	r.life.Drain()
	if _, err := w.Wait(context.Background(), -1, r.Ring); !errors.Is(err, ring.ErrClosed) {
		t.Errorf("closed before: %v", err)
	}
	_ = w.Close()
	if _, err := w.Wait(context.Background(), 0); !errors.Is(err, ring.ErrClosed) {
		t.Errorf("closed waiter: %v", err)
	}
}

// A descriptor that signals an error ends the wait with one, and data that is
// there comes first.
func TestWaitError(t *testing.T) {
	w, r := newWaiter(t), newPipeRing(t)
	r.send(t)
	_ = unix.Close(r.peer)
	r.peer = -1
	if ready, err := w.Wait(context.Background(), -1, r.Ring); !ready || err != nil {
		t.Fatalf("data before the hang-up: %v, %v", ready, err)
	}
	r.Head, r.Cur = r.Tail(), r.Tail()
	ready, err := w.Wait(context.Background(), -1, r.Ring)
	var oe *ring.OpError
	if ready || !errors.As(err, &oe) || oe.Op != "wait" || oe.Port != "pipe" {
		t.Errorf("hang-up: %v, %v; want an OpError that names the port", ready, err)
	}
	if r.drv.syncs > 20 {
		t.Errorf("%d syncs: it spun", r.drv.syncs)
	}
}

// A wait that holds a processor of the runtime's ends when it should, and the
// runtime can stop the world meanwhile.
func TestPollHeld(t *testing.T) {
	m, err := newMonotime()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	wait := func(d time.Duration) (int, error) {
		return pollHeld(m, []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, m.now()+d)
	}
	for _, d := range []time.Duration{0, time.Millisecond, 3 * heldSlice / 2} {
		start := m.now()
		if n, err := wait(d); n != 0 || err != nil || m.now()-start < d {
			t.Errorf("for %v with nothing: %d, %v after %v", d, n, err, m.now()-start)
		}
	}
	done := make(chan outcome)
	go func() {
		n, err := wait(time.Hour)
		done <- outcome{n == 1, err}
	}()
	for range 20 {
		runtime.GC()
	}
	kick(fd)
	if o := result(t, done); !o.ready || o.err != nil {
		t.Errorf("a descriptor that is ready: %+v", o)
	}
	if _, err := pollHeld(m, make([]unix.PollFd, 1<<20), 0); !errors.Is(err, unix.EINVAL) {
		t.Errorf("too many descriptors: %v, want EINVAL", err)
	}
}
