package ring

// Move passes up to n frames from the head of receive ring src to the head of
// transmit ring dst and returns how many it took from src. Within one region
// it exchanges buffers; otherwise it copies each payload once, with its
// virtio-net header. Both heads advance; neither ring is synced.
//
// Fewer than n means that src has no more whole frames or dst no more room. A
// frame that dst cannot carry is dropped and counted in dst.Stats: oversize,
// malformed (a slot that names memory outside of its buffer), or offload (it
// is unfinished and dst has no virtio-net header; finish such frames first,
// see [NeedsFinish]), or truncated.
//
// The caller owns both rings.
func Move(dst, src *Ring, n int) int {
	var drops [NumCauses]uint64
	swap := dst.region == src.region
	done, moved := 0, uint32(0)
	for ; done < n; done++ {
		k := src.chain(src.Head)
		if k == 0 {
			break
		}
		if dst.tail-dst.Head == 0 {
			break
		}
		var used uint32
		var cause Cause
		switch {
		case k == 1 && !swap:
			used, cause = dst.copyOne(src, src.Head)
		case k == 1:
			used, cause = dst.swapOne(src, src.Head)
		default:
			if dst.multi && dst.tail-dst.Head < k && k <= uint32(len(dst.slots)) {
				k = 0 // wait for room
				break
			}
			used, cause = dst.moveChain(src, src.Head, k, swap)
		}
		if k == 0 {
			break
		}
		if used == 0 {
			drops[cause]++
		}
		dst.Head += used
		src.Head += k
		moved += used
	}
	if moved != 0 {
		dst.Cur = dst.Head
	}
	if src.Cur-src.Head > src.tail-src.Head {
		src.Cur = src.Head
	}
	for c, d := range drops {
		dst.Stats.Drop(Cause(c), d)
	}
	return done
}

// Copy copies the frame at slot k of src into dst's head and leaves src as it
// is: to send one frame to several ports. It reports false if dst has no room;
// a frame that dst cannot carry is counted as [Move] does and reported as true.
func Copy(dst, src *Ring, k uint32) bool {
	c := src.chain(k)
	if c == 0 {
		return true
	}
	if room := dst.tail - dst.Head; room == 0 || dst.multi && room < c && c <= uint32(len(dst.slots)) {
		return false
	}
	var used uint32
	var cause Cause
	if c == 1 {
		used, cause = dst.copyOne(src, k)
	} else {
		used, cause = dst.moveChain(src, k, c, false)
	}
	if used == 0 {
		dst.Stats.Drop(cause, 1)
	}
	dst.Head += used
	dst.Cur = dst.Head
	return true
}

// Skip passes over up to n whole frames at the head of src and returns how
// many; nothing is counted.
func Skip(src *Ring, n int) int {
	done := 0
	for ; done < n; done++ {
		k := src.chain(src.Head)
		if k == 0 {
			break
		}
		src.Head += k
	}
	if src.Cur-src.Head > src.tail-src.Head {
		src.Cur = src.Head
	}
	return done
}

// NeedsFinish reports whether the frame at slot k of src must be finished in
// software (checksum, segmentation) before dst can send it.
func NeedsFinish(dst, src *Ring, k uint32) bool {
	return dst.vnet == 0 && src.slots[k&src.mask].Flags&SlotVnet != 0
}

// chain returns the number of slots of the frame that starts at slot k, 0 if
// its end has not arrived.
func (r *Ring) chain(k uint32) uint32 {
	for i := uint32(0); i != r.tail-k; i++ {
		if r.slots[(k+i)&r.mask].Flags&SlotMoreFrag == 0 {
			return i + 1
		}
	}
	return 0
}

// fits says whether a frame of n bytes and flags f may be sent through r.
func (r *Ring) fits(n uint32, f SlotFlags) (Cause, bool) {
	if f&(SlotVnet|SlotTruncated) != 0 {
		if f&SlotTruncated != 0 {
			return DropTruncated, false
		}
		if r.vnet == 0 {
			return DropOffload, false
		}
	}
	if n > r.maxFrame && !f.super() {
		return DropOversize, false
	}
	return 0, true
}

// copyOne copies the one-slot frame at slot k of src into dst's head; used is
// 1, or 0 with the cause of the drop.
func (dst *Ring) copyOne(src *Ring, k uint32) (used uint32, cause Cause) {
	s, d := &src.slots[k&src.mask], &dst.slots[dst.Head&dst.mask]
	if c, ok := dst.fits(s.Len, s.Flags); !ok {
		return 0, c
	}
	from := src.region.Frame(s)
	if from == nil {
		return 0, DropMalformed
	}
	d.Off, d.Len = dst.offset, s.Len
	to := dst.region.Frame(d)
	if to == nil {
		return 0, DropOversize
	}
	copy(to, from)
	d.Flags = s.Flags & slotCarried
	if s.Flags&SlotVnet != 0 && !dst.copyVnet(d, src, s) {
		return 0, DropMalformed
	}
	return 1, 0
}

// copyVnet carries the virtio-net header of s over to d.
func (dst *Ring) copyVnet(d *Slot, src *Ring, s *Slot) bool {
	from, to := src.region.span(s, src.vnet), dst.region.span(d, dst.vnet)
	if from == nil || to == nil || src.vnet == 0 {
		return false
	}
	copy(to[:VnetLen], from[:VnetLen])
	for i := uint32(VnetLen); i < dst.vnet; i++ {
		to[i] = 0
	}
	return true
}

// swapOne exchanges the buffers of src's slot k and dst's head.
func (dst *Ring) swapOne(src *Ring, k uint32) (used uint32, cause Cause) {
	s, d := &src.slots[k&src.mask], &dst.slots[dst.Head&dst.mask]
	if c, ok := dst.fits(s.Len, s.Flags); !ok {
		return 0, c
	}
	before := 0
	if s.Flags&SlotVnet != 0 {
		if src.vnet != dst.vnet {
			// The headers differ in length: what lies before the frame must
			// be written anew for dst.
			return dst.copyOne(src, k)
		}
		before = int(src.vnet)
	}
	if !src.region.Holds(s, before) {
		return 0, DropMalformed
	}
	s.Buf, d.Buf = d.Buf, s.Buf
	d.Off, d.Len = s.Off, s.Len
	d.Flags = s.Flags&slotCarried | SlotBufChanged
	s.Flags |= SlotBufChanged
	return 1, 0
}

// moveChain moves the frame in the k slots of src from start: slot by slot if
// dst takes frames of several slots, else joined into one slot of dst.
func (dst *Ring) moveChain(src *Ring, start, k uint32, swap bool) (used uint32, cause Cause) {
	var total uint64
	for i := range k {
		s := &src.slots[(start+i)&src.mask]
		if !src.region.Holds(s, 0) {
			return 0, DropMalformed
		}
		total += uint64(s.Len)
	}
	first := &src.slots[start&src.mask]
	if total > uint64(dst.maxFrame) && !dst.multi && !first.Flags.super() || total > MaxFrame {
		return 0, DropOversize
	}
	if dst.multi && k > uint32(len(dst.slots)) {
		return 0, DropOversize // there will never be room
	}
	if c, ok := dst.fits(0, first.Flags); !ok {
		return 0, c
	}
	if !dst.multi {
		return dst.join(src, start, k, uint32(total))
	}
	head := dst.Head
	defer func() { dst.Head = head }()
	for i := range k {
		one := dst.copyOne
		if swap {
			one = dst.swapOne
		}
		// A part that does not fit leaves an unfinished chain behind head,
		// which the caller never hands over; its buffers are all in place.
		if used, cause = one(src, start+i); used == 0 {
			return 0, cause
		}
		dst.Head++
	}
	return k, 0
}

// join copies the k slots of src from start into dst's one head slot.
func (dst *Ring) join(src *Ring, start, k, total uint32) (used uint32, cause Cause) {
	d := &dst.slots[dst.Head&dst.mask]
	d.Off, d.Len = dst.offset, total
	to := dst.region.Frame(d)
	if to == nil {
		return 0, DropOversize
	}
	first := &src.slots[start&src.mask]
	for i := range k {
		to = to[copy(to, src.region.Frame(&src.slots[(start+i)&src.mask])):]
	}
	d.Flags = first.Flags & slotCarried &^ SlotMoreFrag
	if first.Flags&SlotVnet != 0 && !dst.copyVnet(d, src, first) {
		return 0, DropMalformed
	}
	return 1, 0
}
