package xdp

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// shared is one of the four rings of a socket, as mapped from the kernel. One
// side writes producer, the other consumer; the words are only touched
// atomically, at most once per batch. prod and cons are this side's copies.
type shared struct {
	mem      []byte
	producer *atomic.Uint32 // fill, tx: written here; rx, completion: by the kernel
	consumer *atomic.Uint32 // the other way round
	flags    *atomic.Uint32 // written by the kernel
	mask     uint32
	prod     uint32
	cons     uint32
	addrs    []uint64       // fill and completion
	descs    []unix.XDPDesc // rx and tx
}

// mapShared maps a ring of n entries at page offset pgoff of socket fd.
func mapShared(fd int, pgoff int64, off unix.XDPRingOffset, n int, descs bool) (*shared, error) {
	entry := uint64(unsafe.Sizeof(uint64(0)))
	if descs {
		entry = uint64(unsafe.Sizeof(unix.XDPDesc{}))
	}
	size := off.Desc + uint64(n)*entry
	if off.Producer+4 > size || off.Consumer+4 > size || off.Flags+4 > size || off.Desc >= size || size > 1<<31 {
		return nil, fmt.Errorf("kernel gave ring offsets out of range: %+v", off)
	}
	mem, err := mmapAt(fd, int(size), pgoff)
	if err != nil {
		return nil, fmt.Errorf("map ring: %w", err)
	}
	base := unsafe.Pointer(unsafe.SliceData(mem))
	s := &shared{
		mem: mem, mask: uint32(n - 1),
		producer: (*atomic.Uint32)(unsafe.Add(base, off.Producer)),
		consumer: (*atomic.Uint32)(unsafe.Add(base, off.Consumer)),
		flags:    (*atomic.Uint32)(unsafe.Add(base, off.Flags)),
	}
	if descs {
		s.descs = unsafe.Slice((*unix.XDPDesc)(unsafe.Add(base, off.Desc)), n)
	} else {
		s.addrs = unsafe.Slice((*uint64)(unsafe.Add(base, off.Desc)), n)
	}
	s.prod, s.cons = s.producer.Load(), s.consumer.Load()
	return s, nil
}

// mmapAt is mmap with a 64-bit offset; on 32-bit machines unix.Mmap passes it
// on too, as pages.
func mmapAt(fd, size int, off int64) ([]byte, error) {
	return unix.Mmap(fd, off, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
}

func (s *shared) unmap() error {
	if s == nil {
		return nil
	}
	mem := s.mem
	*s = shared{}
	return unix.Munmap(mem)
}

// room returns how many entries may be produced, looking at the kernel's word
// only when the known room is less than want.
func (s *shared) room(want uint32) uint32 {
	n := s.mask + 1
	if r := n - (s.prod - s.cons); r >= want {
		return r
	}
	c := s.consumer.Load()
	if s.prod-c > n {
		return 0 // not a state the kernel makes; treat as full
	}
	s.cons = c
	return n - (s.prod - c)
}

// publish makes what was produced up to prod visible to the kernel.
func (s *shared) publish() { s.producer.Store(s.prod) }

// avail returns how many entries may be consumed.
func (s *shared) avail() uint32 {
	p := s.producer.Load()
	if p-s.cons > s.mask+1 {
		return 0
	}
	s.prod = p
	return p - s.cons
}

// consumed gives what was consumed up to cons back to the kernel.
func (s *shared) consumed() { s.consumer.Store(s.cons) }

func (s *shared) needWakeup() bool { return s.flags.Load()&unix.XDP_RING_NEED_WAKEUP != 0 }

// register makes mem the socket's shared memory.
func register(fd int, mem []byte, frameSize int) error {
	reg := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))), Len: uint64(len(mem)), Size: uint32(frameSize)}
	return setsockopt(fd, unix.XDP_UMEM_REG, unsafe.Pointer(&reg), unsafe.Sizeof(reg))
}

func mmapOffsets(fd int) (o unix.XDPMmapOffsets, err error) {
	err = getsockopt(fd, unix.XDP_MMAP_OFFSETS, unsafe.Pointer(&o), unsafe.Sizeof(o))
	return o, err
}

func statistics(fd int) (s unix.XDPStatistics, err error) {
	err = getsockopt(fd, unix.XDP_STATISTICS, unsafe.Pointer(&s), unsafe.Sizeof(s))
	return s, err
}

// zeroCopy asks the bound socket whether the device works on the memory itself.
func zeroCopy(fd int) (bool, error) {
	var opts uint32
	err := getsockopt(fd, unix.XDP_OPTIONS, unsafe.Pointer(&opts), unsafe.Sizeof(opts))
	return opts&unix.XDP_OPTIONS_ZEROCOPY != 0, err
}

func setsockopt(fd, name int, p unsafe.Pointer, n uintptr) error {
	_, _, e := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(name), uintptr(p), n, 0)
	if e != 0 {
		return os.NewSyscallError("setsockopt", e)
	}
	return nil
}

// getsockopt refuses an answer of another size than asked for: the layout
// would be an older kernel's.
func getsockopt(fd, name int, p unsafe.Pointer, n uintptr) error {
	got := uint32(n)
	_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(name), uintptr(p), uintptr(unsafe.Pointer(&got)), 0)
	if e != 0 {
		return os.NewSyscallError("getsockopt", e)
	}
	if uintptr(got) != n {
		return fmt.Errorf("socket option %d has %d bytes, not %d: needs Linux 5.11", name, got, n)
	}
	return nil
}

// kick starts transmission: an empty send that never blocks. It is made without
// telling Go's scheduler, which would take away the right to run Go code after
// some 20 us in the kernel: longer than a batch of copies may take, and dearer
// to get back than all else that the program does for that batch.
func kick(fd int) unix.Errno {
	_, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return e
}

// wake makes the driver look at the fill ring: an empty receive that never
// blocks, made as kick is.
func wake(fd int) unix.Errno {
	_, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return e
}
