package tpacket

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// word is a 32-bit word of mapped memory that the kernel reads or writes while
// we do the opposite: the tp_status of a frame, the block_status of a block.
// The kernel's half are __packet_set_status and prb_close_block with their
// barriers. off is a multiple of 4.
func word(mem []byte, off int) *atomic.Uint32 {
	_ = mem[off+3]
	return (*atomic.Uint32)(unsafe.Pointer(&mem[off]))
}

// doorbell makes the kernel send what is marked in the transmit ring of fd:
// an empty send that does not wait.
func doorbell(fd int) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return int(n), e
}

// send sends one frame, with its virtio-net header before it, through a socket
// without a ring; it does not wait.
func send(fd int, b []byte) unix.Errno {
	if len(b) == 0 {
		return unix.EINVAL
	}
	_, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	return e
}

// receive takes one frame from the socket's own queue without an address.
func receive(fd int, b []byte) (int, unix.Errno) {
	if len(b) == 0 {
		return 0, unix.EINVAL
	}
	n, _, e := unix.Syscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), e
}

// mapOver maps the ring of socket fd at the address of mem, in the place of what
// is mapped there.
func mapOver(mem []byte, fd int) error {
	_, err := unix.MmapPtr(fd, 0, unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
	return err
}
