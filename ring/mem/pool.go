package mem

import (
	"fmt"
	"sync"

	"github.com/netring/netring/ring"
)

// maxBufs bounds a Pool.
const maxBufs = 1 << 28

// Who has a buffer, by the Pool's book.
const (
	free    = iota // the Pool
	lent           // a driver: it is in flight, or its slot is not back yet
	taken          // a program, by Take
	firstID        // from here on: a program, in a slot of the ring with this identity
)

// Pool is memory for pairs: buffers of one size. Its methods may be called by
// any goroutine.
type Pool struct {
	region *ring.Region
	life   *ring.Life

	// holder says who has each buffer. An entry is read and written by whoever
	// owns the buffer at the time, without a lock.
	holder []uint32

	mu   sync.Mutex
	free []uint32
	refs int    // open pairs, plus one until Close
	next uint32 // identity of the next ring
}

// NewPool makes a Pool of bufs buffers of bufSize bytes each. The memory is the
// Go heap's; pages that are never touched take none.
func NewPool(bufs, bufSize int) (*Pool, error) {
	if bufs < 1 || bufs > maxBufs {
		return nil, fmt.Errorf("mem: pool of %d buffers: must be between 1 and %d", bufs, maxBufs)
	}
	if bufSize < 1 || bufSize > maxBuf || bufs > int(^uint(0)>>1)/bufSize {
		return nil, fmt.Errorf("mem: pool of %d buffers of %d bytes: must be between 1 and %d bytes, and fit the address space", bufs, bufSize, maxBuf)
	}
	region, err := ring.NewRegion(make([]byte, bufs*bufSize), bufSize)
	if err != nil {
		return nil, fmt.Errorf("mem: pool: %w", err)
	}
	p := &Pool{region: region, life: ring.NewLife(), refs: 1, next: firstID, free: make([]uint32, bufs), holder: make([]uint32, bufs)}
	for i := range p.free {
		p.free[i] = uint32(bufs - 1 - i)
	}
	return p, nil
}

// Region returns the buffers.
func (p *Pool) Region() *ring.Region { return p.region }

// Free returns the number of buffers that nobody has.
func (p *Pool) Free() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.free)
}

// Take fills bufs with the indexes of free buffers, which are the program's
// until [Pool.Give], and returns how many there were.
func (p *Pool) Take(bufs []uint32) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.take(bufs, taken)
}

// take is Take for holder who; p.mu is held.
func (p *Pool) take(bufs []uint32, who uint32) int {
	n := min(len(bufs), len(p.free))
	last := len(p.free) - n
	for i := range n {
		bufs[i] = p.free[len(p.free)-1-i]
		p.holder[bufs[i]] = who
	}
	p.free = p.free[:last]
	return n
}

// Give returns buffers that the program has: taken, or found in a slot where it
// put another one. The first that it has not ends Give with an error; those
// before it are returned.
func (p *Pool) Give(bufs ...uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range bufs {
		if uint64(b) >= uint64(len(p.holder)) || p.holder[b] < taken {
			return fmt.Errorf("mem: give buffer %d: not in the program's hands", b)
		}
		p.holder[b] = free
		p.free = append(p.free, b)
	}
	return nil
}

// Close gives the memory back once no pair uses it. A second call does nothing.
func (p *Pool) Close() error {
	if p.life.Shut() {
		p.release()
	}
	return nil
}

// attach takes want buffers for a new pair, which has ids rings, and the
// identity of the first of these.
func (p *Pool) attach(want, ids int) (bufs []uint32, id uint32, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.life.Closed():
		return nil, 0, fmt.Errorf("pool: %w", ring.ErrClosed)
	case want > len(p.free):
		return nil, 0, fmt.Errorf("the pool has %d free buffers, need %d: make it larger or the rings smaller", len(p.free), want)
	case uint64(p.next)+uint64(ids) > 1<<32-1:
		return nil, 0, fmt.Errorf("the pool has served %d rings: make a new one", p.next-firstID)
	}
	p.refs++
	id = p.next
	p.next += uint32(ids)
	bufs = make([]uint32, want)
	p.take(bufs, lent)
	return bufs, id, nil
}

// release drops the reference of a pair or of the Pool's user.
func (p *Pool) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refs--; p.refs == 0 {
		p.region.Forget()
		p.free = nil
	}
}

// owned reports whether buffer b is in a program's hands.
func (p *Pool) owned(b uint32) bool { return uint64(b) < uint64(len(p.holder)) && p.holder[b] >= taken }

// repair puts a buffer into slot k of r, whose program wrote one there that it
// does not have: was, which the driver had put there, or, if the program has
// handed that over in another slot, the one that it left out.
func (p *Pool) repair(r *ring.Ring, k, was, id uint32) {
	used := make(map[uint32]bool, r.Len())
	for i := r.Accepted(); i != r.Tail(); i++ {
		// Slots before k are handed over: their buffers are not owned.
		if i != k {
			used[r.Slot(i).Buf] = true
		}
	}
	s := r.Slot(k)
	if p.owned(was) && !used[was] {
		s.Buf = was
		return
	}
	for b, h := range p.holder {
		if h == id && !used[uint32(b)] {
			s.Buf = uint32(b)
			return
		}
	}
	s.Buf = was
}

// collect takes back the buffers of a pair whose both ends are closed: found,
// with duplicates where a program made some, and then as many as are missing
// from what was last seen with the pair's ids rings.
func (p *Pool) collect(found []uint32, id uint32, ids int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	missing := 0
	put := func(b uint32) {
		p.holder[b] = free
		p.free = append(p.free, b)
	}
	for _, b := range found {
		if uint64(b) < uint64(len(p.holder)) && p.holder[b] != free {
			put(b)
		} else {
			missing++
		}
	}
	for b := 0; missing > 0 && b < len(p.holder); b++ {
		if h := p.holder[b]; h >= id && h < id+uint32(ids) {
			put(uint32(b))
			missing--
		}
	}
}
