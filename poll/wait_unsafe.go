//go:build linux

package poll

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawPoll is poll(2) for at most d, without telling the Go runtime that the
// thread may block.
func rawPoll(fds []unix.PollFd, d unix.Timespec) (int, error) {
	n, _, e := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(fds))), uintptr(len(fds)),
		uintptr(unsafe.Pointer(&d)), 0, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}
