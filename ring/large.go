package ring

// Large are the large buffers of one ring, for the few frames that its others
// are too small for (super-frames). Each is memory of its own. At first no slot
// names one: a driver, or [Move], takes one that is spare and names it in a
// slot, and the driver gives it back when it is done with the slot.
//
// Between two rings that have large buffers of one size, [Move] does not copy
// the frame in one: the rings exchange the memory of two of them. So memory
// wanders from ring to ring, and each ring has as many buffers as ever. There
// is no lock: all of it belongs to the owner of the ring.
type Large struct {
	first uint32 // index in the region of bufs[0]
	size  int
	bufs  [][]byte
	spare []uint32 // of bufs, last in first out: what was used last is in the cache
	taken []bool   // of bufs: not spare
}

// NewLarge returns n spare buffers of size bytes.
func NewLarge(n, size int) *Large {
	l := &Large{size: size, bufs: make([][]byte, n), spare: make([]uint32, 0, n), taken: make([]bool, n)}
	for i := range l.bufs {
		// One by one, so that none keeps others alive where it wanders to.
		l.bufs[i] = make([]byte, size)
		l.spare = append(l.spare, uint32(n-1-i))
	}
	return l
}

// Buf returns the buffer of index i in the region, nil if it is none of these.
func (l *Large) Buf(i uint32) []byte {
	if l == nil || i-l.first >= uint32(len(l.bufs)) {
		return nil
	}
	return l.bufs[i-l.first]
}

// Spare returns how many buffers can be taken.
func (l *Large) Spare() int { return len(l.spare) }

// Take takes a spare buffer and returns its index in the region; false if there
// is none.
func (l *Large) Take() (uint32, bool) {
	n := len(l.spare)
	if n == 0 {
		return 0, false
	}
	i := l.spare[n-1]
	l.spare, l.taken[i] = l.spare[:n-1], true
	return l.first + i, true
}

// Taken reports whether buffer i of the region is one of these, and not spare.
func (l *Large) Taken(i uint32) bool {
	return l != nil && i-l.first < uint32(len(l.taken)) && l.taken[i-l.first]
}

// Give makes buffer i of the region spare, if it is one of these and taken.
func (l *Large) Give(i uint32) {
	if l.Taken(i) {
		l.taken[i-l.first] = false
		l.spare = append(l.spare, i-l.first)
	}
}

// Recover makes all buffers spare but those that r's slots [from, to) name: for
// a driver whose program has written over slots that named some.
func (l *Large) Recover(r *Ring, from, to uint32) {
	if l == nil {
		return
	}
	clear(l.taken)
	for ; from != to; from++ {
		if i := r.Slot(from).Buf - l.first; i < uint32(len(l.taken)) {
			l.taken[i] = true
		}
	}
	l.spare = l.spare[:0]
	for i, taken := range l.taken {
		if !taken {
			l.spare = append(l.spare, uint32(i))
		}
	}
}

// takeLarge passes the frame at src's head, if it is in a large buffer, to dst's
// by exchanging that for one of dst's; false if the frame must go another way.
func (dst *Ring) takeLarge(src *Ring) bool {
	s, d := &src.slots[src.Head&src.mask], &dst.slots[dst.Head&dst.mask]
	from, to := src.region.large, dst.region.large
	if to == nil || from == to || !from.Taken(s.Buf) || from.size != to.size || dst.tail == dst.Head {
		return false
	}
	// What lies before the frame must be room enough for dst, and be as dst
	// reads it.
	if s.Flags&(SlotMoreFrag|SlotVnet) != SlotVnet || src.vnet != dst.vnet {
		return false
	}
	if _, _, ok := dst.layout(src, src.Head, 1, false); !ok {
		return false
	}
	i := d.Buf
	if !to.Taken(i) {
		var ok bool
		if i, ok = to.Take(); !ok {
			return false
		}
	}
	a, b := &from.bufs[s.Buf-from.first], &to.bufs[i-to.first]
	*a, *b = *b, *a
	*d = Slot{Buf: i, Off: s.Off, Len: s.Len, Flags: s.Flags & slotCarried}
	src.Head++
	dst.Head++
	return true
}
