package poll

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Handler is what a worker runs: one receive ring and what becomes of its
// frames, say. All methods are called by the worker's thread, one at a time.
// None may block. An error ends the whole [Scheduler]; what a handler can
// live with (a link that is down) it keeps to itself.
type Handler interface {
	// Name is for errors and counters.
	Name() string
	// Poll moves at most budget packets and returns how many. As many as
	// budget means that there may be more.
	Poll(budget int) (done int, err error)
	// Flush ends a round: what Poll has staged is sent on.
	Flush() error
	// Check does the costly looks: link, the kernel's counters. Its pace is
	// the controller's RegFrac; now is the worker's [Clock].
	Check(now time.Duration) error
	// Arm prepares for a sleep: it adds to w what is to end it, and reports
	// true if there is work already, or came while it armed.
	Arm(w *WaitSet) (ready bool)
}

// HandlerError is an error of one handler; it ended [Scheduler.Run].
type HandlerError struct {
	Handler string
	Op      string // "poll", "flush" or "check"
	Err     error
}

func (e *HandlerError) Error() string { return fmt.Sprintf("%s: %s: %v", e.Handler, e.Op, e.Err) }

func (e *HandlerError) Unwrap() error { return e.Err }

// Clock is a worker's coarse clock: the monotonic time of the start of its
// current round. Any goroutine may read it.
type Clock struct{ ns atomic.Int64 }

// Now returns the time since an arbitrary point, the same for all clocks of a
// process.
func (c *Clock) Now() time.Duration { return time.Duration(c.ns.Load()) }

func (c *Clock) set(t time.Duration) { c.ns.Store(int64(t)) }

// Mode is what a worker does when it could sleep; see the package comment.
type Mode uint8

const (
	Adaptive Mode = iota
	Interrupt
	Tick
	Busy
	numModes
)

var modeNames = [numModes]string{"adaptive", "interrupt", "tick", "busy"}

func (m Mode) String() string {
	if m < numModes {
		return modeNames[m]
	}
	return fmt.Sprintf("mode %d", uint8(m))
}

// ParseMode is the inverse of [Mode.String].
func ParseMode(s string) (Mode, error) {
	for i, n := range modeNames {
		if s == n {
			return Mode(i), nil
		}
	}
	return 0, fmt.Errorf("poll: mode %q: must be one of %q", s, modeNames)
}
