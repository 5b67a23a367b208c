package poll

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/ring"
)

// WaitSet collects what ends a sleep. A handler adds to it in Arm; it must not
// keep it.
type WaitSet struct {
	fds   []unix.PollFd
	rings []*ring.Ring // entered, so that their descriptors live
	until time.Duration
	muted []mute
	ready bool
}

// mute keeps a descriptor out that signals an error which nobody has cleared:
// poll(2) would return at once, for ever.
type mute struct {
	fd    int32
	until time.Duration
}

const pollErr = unix.POLLERR | unix.POLLHUP | unix.POLLNVAL

// FD adds a descriptor and the poll(2) events to wait for.
func (w *WaitSet) FD(fd int, events int16) {
	if fd < 0 {
		return
	}
	for _, m := range w.muted {
		if m.fd == int32(fd) {
			return
		}
	}
	w.fds = append(w.fds, unix.PollFd{Fd: int32(fd), Events: events})
}

// Ring adds the descriptor of a ring, and the one that tells when its port
// closes. The ring must have been armed and synced.
func (w *WaitSet) Ring(r *ring.Ring) {
	if r.Enter() != nil {
		w.ready = true // the ring's next Sync tells why
		return
	}
	w.rings = append(w.rings, r)
	events := int16(unix.POLLIN)
	if r.Dir() == ring.TX {
		events = unix.POLLOUT
	}
	w.FD(r.FD(), events)
	w.FD(r.WakeFD(), unix.POLLIN)
}

// Until ends the sleep at time t of the worker's [Clock], at the latest.
func (w *WaitSet) Until(t time.Duration) {
	if w.until == 0 || t < w.until {
		w.until = t
	}
}

// Ready makes the sleep not happen.
func (w *WaitSet) Ready() { w.ready = true }

// reset empties the set at time now.
func (w *WaitSet) reset(now time.Duration) {
	w.fds, w.until, w.ready = w.fds[:0], 0, false
	n := 0
	for _, m := range w.muted {
		if m.until > now {
			w.muted[n] = m
			n++
		}
	}
	w.muted = w.muted[:n]
}

// mute leaves out fd until the given time.
func (w *WaitSet) mute(fd int32, until time.Duration) { w.muted = append(w.muted, mute{fd, until}) }

// release leaves the rings that Ring entered.
func (w *WaitSet) release() {
	for i, r := range w.rings {
		r.Exit()
		w.rings[i] = nil
	}
	w.rings = w.rings[:0]
}

// pollFDs is poll(2) until the time until on clock m; 0 is for ever. It returns
// the number of descriptors that are ready, 0 when the time is over.
func pollFDs(m monotime, fds []unix.PollFd, until time.Duration) (int, error) {
	for {
		var ts *unix.Timespec
		if until != 0 {
			t := unix.NsecToTimespec(int64(max(until-m.now(), 0)))
			ts = &t
		}
		n, err := unix.Ppoll(fds, ts, nil)
		if err == unix.EINTR {
			continue
		}
		return polled(fds, n, err)
	}
}

const (
	// spareProcs is how many of its processors (GOMAXPROCS) the Go runtime
	// must have beside those of the workers for pollHeld to be used.
	spareProcs = 2
	// heldSlice bounds a wait that holds a processor. The runtime stops all
	// goroutines now and then, by a signal to those that run, which ends
	// poll(2); where signals are switched off (GODEBUG=asyncpreemptoff=1),
	// it has to wait this long.
	heldSlice = 20 * time.Millisecond
)

// pollHeld is pollFDs by a call that the Go runtime does not know of. To the
// runtime the goroutine is running and keeps its processor, which costs every
// 10 ms a preemption of the sleeping thread. What that buys is the wake-up. After
// an ordinary call that lasted, the thread must find a processor again, must
// wake the runtime's monitor if all were idle, and the monitor, which finds
// the goroutine on the time slice of before the sleep, preempts it at once:
// several thread switches, between the packet's arrival and its departure.
func pollHeld(m monotime, fds []unix.PollFd, until time.Duration) (int, error) {
	for {
		now := m.now()
		end := now + heldSlice
		if until != 0 {
			end = min(end, max(until, now))
		}
		n, err := rawPoll(fds, unix.NsecToTimespec(int64(end-now)))
		if err == unix.EINTR || err == nil && n == 0 && end != until {
			if until != 0 && m.now() >= until {
				return 0, nil
			}
			continue
		}
		return polled(fds, n, err)
	}
}

func polled(fds []unix.PollFd, n int, err error) (int, error) {
	if err != nil {
		return 0, fmt.Errorf("poll %d descriptors: %w", len(fds), err)
	}
	return n, nil
}
