package xdp

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/ring"
)

// Defaults and bounds of a [Mem].
const (
	DefaultFrameSize = 2048
	maxFrames        = 1 << 22
)

// Mem is memory that AF_XDP ports share: frames of one size. Closing the last
// port over it unmaps it once its own Close has been called.
type Mem struct {
	region *ring.Region
	raw    []byte
	life   *ring.Life // says whether Close has been called

	// owner says of each frame which ring's driver has handed it to the
	// kernel; 0: it is in a slot that belongs to a program, or free. An entry
	// is written by whoever owns the frame, so it needs no lock.
	owner []uint16

	mu    sync.Mutex
	free  []uint32 // frames that no port has; set-up and Close only
	bound []int    // sockets over the memory; a further one joins any of them
	refs  int      // open ports, plus one until Close
	rings uint16   // ring identities given out
}

// NewMem maps frames frames of frameSize bytes; frameSize is 2048 or 4096 (a
// power of two up to the page size, as the kernel wants it), 0 for the default.
// A port takes twice its slots for each queue, and gives back what its transmit
// rings turn out not to need.
func NewMem(frames, frameSize int) (*Mem, error) {
	if frameSize == 0 {
		frameSize = DefaultFrameSize
	}
	if frameSize < 2048 || frameSize > os.Getpagesize() || frameSize&(frameSize-1) != 0 {
		return nil, fmt.Errorf("xdp: frame size %d: must be a power of two from 2048 to the page size, %d", frameSize, os.Getpagesize())
	}
	if frames < 1 || frames > maxFrames {
		return nil, fmt.Errorf("xdp: %d frames: must be between 1 and %d", frames, maxFrames)
	}
	raw, err := unix.Mmap(-1, 0, frames*frameSize, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("xdp: map %d frames of %d bytes: %w", frames, frameSize, err)
	}
	region, err := ring.NewRegion(raw, frameSize)
	if err != nil {
		return nil, err
	}
	m := &Mem{region: region, raw: raw, life: ring.NewLife(), refs: 1, free: make([]uint32, frames), owner: make([]uint16, frames)}
	for i := range m.free {
		m.free[i] = uint32(frames - 1 - i)
	}
	return m, nil
}

// Region returns the frames.
func (m *Mem) Region() *ring.Region { return m.region }

// Free returns the number of frames that no port has taken.
func (m *Mem) Free() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.free)
}

// take hands out n frames.
func (m *Mem) take(n int) ([]uint32, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n > len(m.free) {
		return nil, fmt.Errorf("shared memory has %d free frames, need %d: make it larger or the rings smaller", len(m.free), n)
	}
	got := append([]uint32(nil), m.free[len(m.free)-n:]...)
	m.free = m.free[:len(m.free)-n]
	return got, nil
}

// give takes frames back.
func (m *Mem) give(frames []uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free = append(m.free, frames...)
}

// ringID returns an identity for one more ring; never 0.
func (m *Mem) ringID() (uint16, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rings == inSlot-1 {
		return 0, fmt.Errorf("shared memory has served %d rings: make a new one", m.rings)
	}
	m.rings++
	return m.rings, nil
}

// lend hands frame f to the kernel for ring id. It refuses a frame that does
// not exist or that is in the kernel's hands already: the slot is wrong.
func (m *Mem) lend(f uint32, id uint16) bool {
	if uint64(f) >= uint64(len(m.owner)) || m.owner[f] != 0 {
		return false
	}
	m.owner[f] = id
	return true
}

// back takes frame f back from the kernel, which had it from ring id.
func (m *Mem) back(f uint32, id uint16) bool {
	if uint64(f) >= uint64(len(m.owner)) || m.owner[f] != id {
		return false
	}
	m.owner[f] = 0
	return true
}

// inSlot marks, while a slot is repaired, the frames that lie in other slots.
const inSlot = 1<<16 - 1

// badSlot makes the error of slot k, which was refused. If the frame in it is
// not the program's, it puts one there that is: one that the ring has given out
// (given, by slot) and that lies in no slot any more, as the program has
// written over it; so no frame is lost.
func (m *Mem) badSlot(r *ring.Ring, k uint32, given []uint32) error {
	s := r.Slot(k)
	err := fmt.Errorf("%w: slot %d: frame %d is not the program's, or offset %d and length %d leave it", ring.ErrSlot, k, s.Buf, s.Off, s.Len)
	m.mark(r, k+1, 0, inSlot)
	if uint64(s.Buf) >= uint64(len(m.owner)) || m.owner[s.Buf] != 0 {
		// The last ones handed over are the likeliest.
		for i := range uint32(len(given)) {
			if f := given[(k-i)&uint32(len(given)-1)]; m.owner[f] == 0 {
				s.Buf = f
				break
			}
		}
	}
	m.mark(r, k+1, inSlot, 0)
	return err
}

// mark changes the owner of the frames in the program's slots from k on.
func (m *Mem) mark(r *ring.Ring, k uint32, from, to uint16) {
	for ; k != r.Tail(); k++ {
		if f := r.Slot(k).Buf; uint64(f) < uint64(len(m.owner)) && m.owner[f] == from {
			m.owner[f] = to
		}
	}
}

// recall returns the frames that a ring which has gone left with the kernel,
// and those in the slots that its program had, up to tail.
func (m *Mem) recall(r *ring.Ring, id uint16, tail uint32) {
	var got []uint32
	for f, o := range m.owner {
		if o == id {
			m.owner[f] = 0
			got = append(got, uint32(f))
		}
	}
	for k := r.Accepted(); k != tail; k++ {
		got = append(got, r.Slot(k).Buf)
	}
	m.give(got)
}

// retain counts one more port; release one fewer, and the last frees the
// memory.
func (m *Mem) retain() {
	m.mu.Lock()
	m.refs++
	m.mu.Unlock()
}

func (m *Mem) release() error {
	m.mu.Lock()
	m.refs--
	last := m.refs == 0
	m.mu.Unlock()
	if !last {
		return nil
	}
	m.region.Forget()
	return unix.Munmap(m.raw)
}

// Close gives the memory back once no port uses it. Idempotent.
func (m *Mem) Close() error {
	if !m.life.Shut() {
		return nil
	}
	return m.release()
}
