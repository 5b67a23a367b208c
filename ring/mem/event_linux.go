package mem

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// event is an eventfd that is either ready or not. For a reader, ready is a
// value to read, so that poll(2) reports POLLIN; for a writer it is room for
// one, so that it reports POLLOUT.
type event struct {
	fd     int
	writer bool
}

// full is the largest value of an eventfd: one more does not fit.
const full = 1<<64 - 2

func newEvent(writer bool) (event, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return event{fd: -1}, fmt.Errorf("make an eventfd: %w", err)
	}
	return event{fd: fd, writer: writer}, nil
}

// set makes the descriptor ready or not. It has no error to report: EAGAIN
// says that it is as wanted already.
func (e event) set(ready bool) {
	var b [8]byte
	if ready == e.writer {
		_, _ = unix.Read(e.fd, b[:])
		return
	}
	binary.NativeEndian.PutUint64(b[:], full)
	_, _ = unix.Write(e.fd, b[:])
}

func (e event) close() error {
	if e.fd < 0 {
		return nil
	}
	return unix.Close(e.fd)
}
