package poll

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/ring"
)

// Waiter sleeps until one of some rings has slots. It is for programs that
// have a loop of their own; one goroutine at a time, which owns the rings.
type Waiter struct {
	mono   monotime
	set    WaitSet
	cancel int // eventfd
}

// NewWaiter returns a Waiter. Close it.
func NewWaiter() (*Waiter, error) {
	m, err := newMonotime()
	if err != nil {
		return nil, err
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("poll: make an eventfd: %w", err)
	}
	return &Waiter{mono: m, cancel: fd}, nil
}

// Close frees what the Waiter holds. Not while Wait is in progress.
func (w *Waiter) Close() error {
	if w.cancel < 0 {
		return nil
	}
	err := unix.Close(w.cancel)
	w.cancel = -1
	if err != nil {
		return fmt.Errorf("poll: close waiter: %w", err)
	}
	return nil
}

// Wait syncs the rings and, if none is ready ([ring.Ring.Ready]: a receive
// ring has slots not looked at, a transmit ring has free ones), sleeps until
// one is. A timeout of 0 does not sleep, a negative one is none. It returns
// false when the time is over, and an error when ctx ends, a Sync fails, or a
// ring's descriptor signals an error: one that Is [ring.ErrClosed],
// [ring.ErrLinkDown] or [ring.ErrGone] where that is the cause.
//
// The thread is in poll(2) while Wait sleeps; it takes no CPU time.
func (w *Waiter) Wait(ctx context.Context, timeout time.Duration, rings ...*ring.Ring) (ready bool, err error) {
	if w.cancel < 0 {
		return false, fmt.Errorf("poll: wait: %w", ring.ErrClosed)
	}
	if ready, err := syncAll(rings, false); ready || err != nil || timeout == 0 {
		return ready, err
	}
	if ctx.Done() != nil {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		unhook := context.AfterFunc(ctx, func() { kick(w.cancel) })
		defer func() {
			if !unhook() {
				drain(w.cancel)
			}
		}()
	}
	var until time.Duration
	if timeout > 0 {
		until = w.mono.now() + timeout
	}
	for failures := 0; ; {
		if ready, err := syncAll(rings, true); ready || err != nil {
			return ready, err
		}
		n, bad, err := w.poll(until, rings)
		switch {
		case err != nil:
			return false, err
		case ctx.Err() != nil:
			return false, ctx.Err()
		case bad != nil:
			// Data goes before the error: the next Wait meets it again.
			if ready, err := syncAll(rings, false); ready || err != nil {
				return ready, err
			}
			if err := ringError(bad.ring, bad.revents); err != nil {
				return false, err
			}
			// It has gone by itself. Twice in a row it has not.
			if failures++; failures > 1 {
				return false, &ring.OpError{Op: "wait", Port: bad.ring.Port(), Ring: bad.ring.Index(),
					Err: fmt.Errorf("poll(2) reports %#x and nothing says why: %w", bad.revents, unix.EIO)}
			}
		case n == 0:
			return syncAll(rings, false)
		default:
			failures = 0
		}
	}
}

// syncAll syncs the rings, in armed state if arm is set, and says whether one
// is ready.
func syncAll(rings []*ring.Ring, arm bool) (ready bool, err error) {
	for _, r := range rings {
		if arm {
			r.Arm()
		}
		if err := r.Sync(); err != nil {
			return false, err
		}
		ready = ready || r.Ready()
	}
	return ready, nil
}

// badRing is a ring whose descriptor signals an error.
type badRing struct {
	ring    *ring.Ring
	revents int16
}

// poll sleeps until a descriptor is ready or the time is over. The rings'
// ports keep their descriptors until it is back.
func (w *Waiter) poll(until time.Duration, rings []*ring.Ring) (n int, bad *badRing, err error) {
	s := &w.set
	s.reset(0)
	defer s.release()
	s.FD(w.cancel, unix.POLLIN)
	for _, r := range rings {
		s.Ring(r)
	}
	if s.ready {
		return 1, nil, nil
	}
	n, err = pollFDs(w.mono, s.fds, until)
	if err != nil || n == 0 {
		return n, nil, err
	}
	for _, fd := range s.fds {
		if fd.Revents&pollErr == 0 {
			continue
		}
		for _, r := range rings {
			if r.FD() == int(fd.Fd) {
				return n, &badRing{r, fd.Revents}, nil
			}
		}
	}
	return n, nil, nil
}

// ringError says what is wrong with a ring whose descriptor signals an error;
// nil if it is right again.
func ringError(r *ring.Ring, revents int16) error {
	if err := r.Refresh(); err != nil {
		return err
	}
	if revents&unix.POLLNVAL != 0 {
		return &ring.OpError{Op: "wait", Port: r.Port(), Ring: r.Index(), Err: fmt.Errorf("descriptor %d is not open: %w", r.FD(), ring.ErrClosed)}
	}
	if r.Enter() != nil {
		return nil
	}
	defer r.Exit()
	// Reading SO_ERROR clears it. A descriptor that is no socket has none.
	e, err := unix.GetsockoptInt(r.FD(), unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil || e == 0 {
		return nil
	}
	cause := error(unix.Errno(e))
	switch {
	case errors.Is(cause, unix.ENETDOWN):
		cause = fmt.Errorf("%w (%w)", ring.ErrLinkDown, cause)
	case errors.Is(cause, unix.ENODEV), errors.Is(cause, unix.ENXIO):
		cause = fmt.Errorf("%w (%w)", ring.ErrGone, cause)
	}
	return &ring.OpError{Op: "wait", Port: r.Port(), Ring: r.Index(), Err: cause}
}
