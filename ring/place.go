package ring

// fate is what [Ring.put] did with a frame.
type fate uint8

const (
	waits fate = iota // dst has no room
	lost              // dst cannot carry it
	sent
)

// layout is how a frame goes into a transmit ring.
type layout struct {
	slots uint32
	bytes uint32
	swap  bool // by exchanging buffers, slot by slot
}

// put passes the frame in the c slots of src from k to dst's head, which
// advances; with swap, buffers may be exchanged.
func (dst *Ring) put(src *Ring, k, c uint32, swap bool) (fate, Cause) {
	if dst.tail == dst.Head {
		return waits, 0
	}
	l, cause, ok := dst.layout(src, k, c, swap)
	switch {
	case !ok:
		return lost, cause
	case l.slots > dst.tail-dst.Head:
		return waits, 0
	case l.swap:
		dst.exchange(src, k, c)
	case !dst.refill(src, k, l):
		return lost, DropOversize
	}
	dst.Head += l.slots
	return sent, 0
}

// layout says how the frame in the c slots of src from k goes into dst, or why
// dst cannot carry it.
func (dst *Ring) layout(src *Ring, k, c uint32, swap bool) (l layout, cause Cause, ok bool) {
	first := &src.slots[k&src.mask]
	flags, total := first.Flags, uint64(0)
	for i := range c {
		s := &src.slots[(k+i)&src.mask]
		if !src.region.Holds(s, 0) {
			return l, DropMalformed, false
		}
		total += uint64(s.Len)
		flags |= s.Flags & SlotTruncated
	}
	unfinished := flags&SlotVnet != 0
	switch {
	case flags&SlotTruncated != 0:
		return l, DropTruncated, false
	case unfinished && dst.vnet == 0:
		return l, DropOffload, false
	case total > MaxFrame || total > uint64(dst.maxFrame) && !flags.super():
		return l, DropOversize, false
	case unfinished && (src.vnet == 0 || !src.region.Holds(first, int(src.vnet))):
		return l, DropMalformed, false
	}
	l = layout{slots: dst.slotsFor(uint32(total)), bytes: uint32(total)}
	// Headers of another length must be written anew, and so must the frame.
	if swap && (c == 1 || dst.multi) && !(unfinished && src.vnet != dst.vnet) {
		l.slots, l.swap = c, true
	}
	// With more slots than dst has there will never be room.
	return l, DropOversize, l.slots <= uint32(len(dst.slots))
}

// slotsFor is the number of slots that a copy of n bytes takes.
func (dst *Ring) slotsFor(n uint32) uint32 {
	part := dst.region.stride - dst.offset
	if !dst.multi || n <= part || part == 0 {
		return 1
	}
	return (n + part - 1) / part
}

// exchange swaps the buffers of c slots of src from k with those at dst's head.
func (dst *Ring) exchange(src *Ring, k, c uint32) {
	carried := slotCarried
	for i := range c {
		s, d := &src.slots[(k+i)&src.mask], &dst.slots[(dst.Head+i)&dst.mask]
		s.Buf, d.Buf = d.Buf, s.Buf
		d.Off, d.Len, d.Flags = s.Off, s.Len, s.Flags&carried|SlotBufChanged
		s.Flags |= SlotBufChanged
		carried &^= SlotVnet | SlotGSO // the first slot's alone
	}
}

// refill copies a frame, which starts at slot k of src, into the slots at dst's
// head; false if one of them names no buffer that is large enough.
func (dst *Ring) refill(src *Ring, k uint32, l layout) bool {
	first := &src.slots[k&src.mask]
	flags := first.Flags & slotCarried &^ SlotMoreFrag
	var from []byte // what is left of slot k-1
	for i, left := uint32(0), l.bytes; i != l.slots; i++ {
		d := &dst.slots[(dst.Head+i)&dst.mask]
		d.Off, d.Len, d.Flags = dst.offset, left, flags
		if i+1 != l.slots {
			d.Len, d.Flags = dst.region.stride-dst.offset, flags|SlotMoreFrag
		}
		to := dst.region.Frame(d)
		if to == nil {
			return false
		}
		left -= d.Len
		if flags&SlotVnet != 0 {
			dst.copyVnet(d, src, first)
			flags &^= SlotVnet | SlotGSO // the first slot's alone
		}
		for len(to) != 0 {
			if len(from) == 0 {
				from = src.region.Frame(&src.slots[k&src.mask])
				k++
				continue
			}
			m := copy(to, from)
			to, from = to[m:], from[m:]
		}
	}
	return true
}

// copyVnet carries the virtio-net header of s over to d.
func (dst *Ring) copyVnet(d *Slot, src *Ring, s *Slot) {
	from, to := src.region.span(s, src.vnet), dst.region.span(d, dst.vnet)
	copy(to[:VnetLen], from[:VnetLen])
	clear(to[VnetLen:dst.vnet])
}
