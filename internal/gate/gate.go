// Package gate keeps packets that nobody will have time for from being
// received. To poll mode it is what switching the interrupt off was to device
// polling: as long as the kernel receives, it does so before the program that
// is to take the packets runs, and beyond some load does nothing else.
//
// The gate is an XDP program: it drops before the kernel has spent anything on
// a packet. It needs privileges, and as long as it is attached a veth's peer
// cannot hand over segmentation super-frames: it belongs there under overload
// only. All that the interface receives passes through it, be it for the
// bridge or for the host.
//
// When the gate is put up, and how much it lets through, is decided by
// [github.com/netring/netring/poll.GatePolicy].
package gate

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Control is how many control frames (ARP, slow protocols such as LACP, LLDP,
// 802.1X) pass in a window beside the budget.
const Control = 8

// Counts of a gate, in packets.
type Counts struct {
	Passed  uint64 // control frames among them
	Dropped uint64
	Control uint64 // control frames that passed beside the budget
}

// BusyError: the interface has an XDP program that is not ours.
type BusyError struct {
	Interface int
	Name      string // may be empty
	Program   uint32 // its ID, 0 if not known
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("gate: interface %d %s has XDP program %d: left alone; take that off (ip link set dev %s xdp off) or run without a gate",
		e.Interface, e.Name, e.Program, e.Name)
}

// Is makes it an unix.EBUSY.
func (e *BusyError) Is(target error) bool { return target == unix.EBUSY }

// PrivilegeError: the process may not load or attach XDP programs.
type PrivilegeError struct{ Err error }

func (e *PrivilegeError) Error() string {
	return e.Err.Error() + "; needs CAP_BPF and CAP_NET_ADMIN in the initial user namespace"
}

func (e *PrivilegeError) Unwrap() error { return e.Err }

// privilege makes a [*PrivilegeError] of what is one.
func privilege(err error) error {
	if errors.Is(err, unix.EPERM) {
		return &PrivilegeError{err}
	}
	return err
}

func checkBudget(packets int, window time.Duration) error {
	if packets < 0 || window < 10*time.Microsecond || window > time.Second {
		return fmt.Errorf("gate: budget of %d packets in %v: must be 0 or more in 10us to 1s", packets, window)
	}
	return nil
}
