package ring

import "fmt"

// Region is memory cut into count buffers of stride bytes each. Rings over the
// same Region can exchange buffers by index. The driver that made the memory
// owns it; after Close a Region has no buffers.
//
// A Region of one ring may have large buffers besides, see [Large]; their
// indexes follow. It has no lock: whose a buffer is follows from the slot that
// names it.
type Region struct {
	mem    []byte
	stride uint32
	count  uint32
	large  *Large
}

// NewRegion cuts mem into buffers of stride bytes; a rest that does not fill a
// buffer is left unused.
func NewRegion(mem []byte, stride int) (*Region, error) {
	if stride <= 0 || int64(stride) > 1<<31 {
		return nil, fmt.Errorf("ring: region: buffer size %d: must be between 1 and %d", stride, int64(1)<<31)
	}
	count := len(mem) / stride
	if count == 0 || int64(count) > 1<<31 {
		return nil, fmt.Errorf("ring: region: %d bytes hold %d buffers of %d: must be between 1 and %d", len(mem), count, stride, int64(1)<<31)
	}
	return &Region{mem: mem, stride: uint32(stride), count: uint32(count)}, nil
}

// WithLarge gives the region large buffers, after its own; for drivers, before
// rings are made.
func (g *Region) WithLarge(l *Large) {
	l.first = g.count
	g.large = l
}

// BufSize returns the bytes of each buffer that is not large, headroom included.
func (g *Region) BufSize() int { return int(g.stride) }

// Bufs returns the number of buffers that are not large, 0 after Close.
func (g *Region) Bufs() int { return int(g.count) }

// Buf returns the whole of buffer i, nil if there is no such buffer.
func (g *Region) Buf(i uint32) []byte {
	if i >= g.count {
		return g.large.Buf(i)
	}
	o := uint64(i) * uint64(g.stride)
	return g.mem[o : o+uint64(g.stride) : o+uint64(g.stride)]
}

// Frame returns the Len bytes at Off of the slot's buffer, with no capacity
// beyond them; nil if any of that lies outside of the buffer.
func (g *Region) Frame(s *Slot) []byte {
	return g.span(s, 0)
}

// span is Frame with before more bytes in front.
func (g *Region) span(s *Slot, before uint32) []byte {
	off, n := s.Off-before, uint64(s.Len)+uint64(before)
	if s.Buf >= g.count {
		b := g.large.Buf(s.Buf)
		if s.Off < before || uint64(off)+n > uint64(len(b)) {
			return nil
		}
		return b[off : uint64(off)+n : uint64(off)+n]
	}
	if s.Off < before || uint64(off)+n > uint64(g.stride) {
		return nil
	}
	o := uint64(s.Buf)*uint64(g.stride) + uint64(off)
	return g.mem[o : o+n : o+n]
}

// Holds reports whether the slot's frame, with before bytes of headroom, lies
// within one buffer of the region.
func (g *Region) Holds(s *Slot, before int) bool {
	size := uint64(g.stride)
	if s.Buf >= g.count {
		b := g.large.Buf(s.Buf)
		if b == nil {
			return false
		}
		size = uint64(len(b))
	}
	return uint64(s.Off) >= uint64(before) && uint64(s.Off)+uint64(s.Len) <= size
}

// Forget makes the region empty. For the driver, once nobody is inside and
// before it unmaps.
func (g *Region) Forget() {
	g.mem, g.count, g.large = nil, 0, nil
}
