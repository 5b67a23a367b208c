package livegen

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/abi"
)

// testRun runs the program n times on live frames. Unlike the library's call it
// comes back when a signal has interrupted it.
func testRun(prog int, frame []byte, n uint32) unix.Errno {
	a := abi.BPFTestRun{
		ProgFD: uint32(prog), DataSizeIn: uint32(len(frame)), DataIn: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(frame)))),
		Repeat: n, Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES, BatchSize: batch,
	}
	_, _, e := unix.Syscall(unix.SYS_BPF, abi.BPFProgTestRun, uintptr(unsafe.Pointer(&a)), unsafe.Sizeof(a))
	runtime.KeepAlive(frame)
	return e
}
