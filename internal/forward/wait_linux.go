package forward

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// waiter sleeps in poll(2) on behalf of one worker.
type waiter struct {
	event int // eventfd: wake
	fds   []unix.PollFd
}

func newWaiter(ins int) (waiter, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return waiter{}, fmt.Errorf("make eventfd: %w", err)
	}
	return waiter{event: fd, fds: make([]unix.PollFd, 0, 1+2*ins)}, nil
}

// wait returns when one of the rings is ready or its port closed, wake was
// called, or limit has passed. Links that are down are not watched: their
// sockets would answer at once.
func (w *waiter) wait(in []inlet, limit time.Duration) error {
	w.fds = append(w.fds[:0], unix.PollFd{Fd: int32(w.event), Events: unix.POLLIN})
	for i := range in {
		if rx := in[i].rx; !in[i].link.down.Load() && rx.FD() >= 0 {
			w.fds = append(w.fds, unix.PollFd{Fd: int32(rx.FD()), Events: unix.POLLIN})
		}
		if fd := in[i].rx.WakeFD(); fd >= 0 {
			w.fds = append(w.fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		}
	}
	ms := max(int(limit/time.Millisecond), 1)
	if _, err := unix.Poll(w.fds, ms); err != nil && err != unix.EINTR {
		return fmt.Errorf("poll: %w", err)
	}
	if w.fds[0].Revents != 0 {
		var b [8]byte
		_, _ = unix.Read(w.event, b[:]) // only to clear it
	}
	return w.faults(in)
}

// faults asks the links behind descriptors that signalled an error what is the
// matter with them, so that the next wait does not come back at once.
func (w *waiter) faults(in []inlet) error {
	for _, p := range w.fds[1:] {
		if p.Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) == 0 {
			continue
		}
		for i := range in {
			if int32(in[i].rx.FD()) == p.Fd {
				if err := in[i].link.report(in[i].rx.Refresh()); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// wake ends the current or next wait. Any goroutine.
func (w *waiter) wake() {
	one := [8]byte{1}
	if _, err := unix.Write(w.event, one[:]); err != nil {
		return // the counter is full: the worker is awake
	}
}

func (w *waiter) close() { _ = unix.Close(w.event) }
