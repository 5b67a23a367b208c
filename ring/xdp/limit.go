package xdp

import (
	"math"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/caps"
)

// minSlots is the smallest size that a ring shrinks to by itself.
const minSlots = 64

// FitSlots returns slots, or half as often as needed for memory of the given
// number of rings with frames of frameSize bytes to fit into what the process
// may lock: without CAP_IPC_LOCK, that is RLIMIT_MEMLOCK, whose soft limit
// this raises to the hard one. It stops at 64: then opening tells what is wrong.
func FitSlots(slots, rings, frameSize int) int {
	limit := lockLimit()
	for slots > minSlots && uint64(slots)*uint64(rings)*uint64(frameSize) > limit {
		slots /= 2
	}
	return slots
}

// lockLimit is how many bytes the process may lock. Other programs of the same
// user share it.
func lockLimit() uint64 {
	if len(caps.Missing(unix.CAP_IPC_LOCK)) == 0 {
		return math.MaxUint64
	}
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l) != nil {
		return math.MaxUint64
	}
	if l.Cur < l.Max {
		l.Cur = l.Max
		if unix.Setrlimit(unix.RLIMIT_MEMLOCK, &l) != nil {
			_ = unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l)
		}
	}
	return l.Cur
}
