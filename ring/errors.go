package ring

import (
	"errors"
	"fmt"
	"os"
)

// The errors of rings and ports. Test for them with errors.Is; what a driver
// returns carries the port, the operation and the cause in an [*OpError].
var (
	// ErrClosed: the port has been closed.
	ErrClosed = os.ErrClosed
	// ErrLinkDown: the interface is down or has no carrier. It may come back;
	// the port stays usable and Sync works again when it is up.
	ErrLinkDown = errors.New("link is down")
	// ErrGone: the interface does not exist any more. Close the port.
	ErrGone = errors.New("interface is gone")
	// ErrNoInterface: there is no interface of that name.
	ErrNoInterface = errors.New("no such interface")
	// ErrTooLarge: a frame is larger than the port can send or a buffer holds.
	ErrTooLarge = errors.New("frame too large")
	// ErrCursor: Head or Cur was not between the accepted head and Tail. Sync
	// has put both back to the accepted head; no slot is lost.
	ErrCursor = errors.New("ring cursor out of range")
	// ErrSlot: a slot that was handed over names memory outside of its
	// buffer. Sync has handed over all slots before it and put Head back to it.
	ErrSlot = errors.New("slot out of range")
)

// OpError is an error of one operation on one port.
type OpError struct {
	Op   string // "open", "sync", "close", ...
	Port string // name of the port
	Ring int    // ring index, -1 if the error is the whole port's
	Err  error
}

func (e *OpError) Error() string {
	if e.Ring < 0 {
		return fmt.Sprintf("%s %s: %v", e.Op, e.Port, e.Err)
	}
	return fmt.Sprintf("%s %s ring %d: %v", e.Op, e.Port, e.Ring, e.Err)
}

func (e *OpError) Unwrap() error { return e.Err }

// UnsupportedError: the running kernel or device lacks a feature. It is an
// errors.ErrUnsupported.
type UnsupportedError struct {
	Feature string // "PACKET_VNET_HDR_SZ"
	Since   string // first kernel with it, "6.5"; empty if it is not the kernel's
	Err     error  // what the kernel said, may be nil
}

func (e *UnsupportedError) Error() string {
	s := e.Feature + " is not supported"
	if e.Since != "" {
		s += fmt.Sprintf(" by this kernel (needs Linux %s)", e.Since)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *UnsupportedError) Is(target error) bool { return target == errors.ErrUnsupported }

func (e *UnsupportedError) Unwrap() error { return e.Err }
