package ring

// Move passes up to n frames from the head of receive ring src to the head of
// transmit ring dst and returns how many it took from src. Within one region
// it exchanges buffers; otherwise it copies each payload once, with its
// virtio-net header: into one slot, or as many as dst's buffers make of it
// where dst takes frames of several. An unfinished frame in a large buffer goes
// without a copy where dst has such, too ([Large]). Both heads advance; neither
// ring is synced.
//
// Fewer than n means that src has no more whole frames or dst no room for all
// of the next one ([Needs]). A frame that dst cannot carry is dropped and
// counted in dst.Stats: malformed (a slot that names memory outside of its
// buffer), truncated, offload (it is unfinished and dst has no virtio-net
// header; finish such frames first, see [NeedsFinish]), or oversize.
//
// The caller owns both rings.
func Move(dst, src *Ring, n int) int {
	var drops [NumCauses]uint64
	from, swap := dst.Head, dst.region == src.region
	done := 0
	for done < n {
		if swap {
			done += dst.swapPlain(src, n-done)
		} else {
			done += dst.copyPlain(src, n-done)
		}
		c := src.chain(src.Head)
		if done == n || c == 0 {
			break
		}
		if dst.takeLarge(src) {
			done++
			continue
		}
		how, cause := dst.put(src, src.Head, c, swap)
		if how == waits {
			break
		}
		if how == lost {
			drops[cause]++
		}
		src.Head += c
		done++
	}
	if dst.Head != from {
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
	how, cause := dst.put(src, k, c, false)
	if how == lost {
		dst.Stats.Drop(cause, 1)
	}
	dst.Cur = dst.Head
	return how != waits
}

// Needs returns how many free slots of dst the frame at slot k of src asks for
// before Move, or with copied Copy, takes it; 0 if its end has not arrived.
func Needs(dst, src *Ring, k uint32, copied bool) uint32 {
	c := src.chain(k)
	if c == 0 {
		return 0
	}
	if l, _, ok := dst.layout(src, k, c, !copied && dst.region == src.region); ok {
		return l.slots
	}
	return 1
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

// slotOdd are the flags of slots that ask for a closer look than the loops over
// plain frames take.
const slotOdd = SlotMoreFrag | SlotVnet | SlotTruncated

// plainRun returns up to n slots from both heads, as many of dst as of src,
// that do not wrap in either ring.
func (dst *Ring) plainRun(src *Ring, n int) (to, from []Slot) {
	to, from = dst.slots[dst.Head&dst.mask:], src.slots[src.Head&src.mask:]
	m := min(uint64(n), uint64(dst.tail-dst.Head), uint64(src.tail-src.Head), uint64(len(to)), uint64(len(from)))
	return to[:m], from[:m]
}

// passed advances both heads.
func (dst *Ring) passed(src *Ring, n int) {
	dst.Head += uint32(n)
	src.Head += uint32(n)
}

// swapPlain exchanges the buffers of up to n plain frames at the head of src for
// dst's and returns how many; it ends where [Ring.put] must decide. Both rings
// are over one region.
func (dst *Ring) swapPlain(src *Ring, n int) (done int) {
	for done < n {
		to, from := dst.plainRun(src, n-done)
		m := swapRun(to, from, src.region, dst.maxFrame)
		dst.passed(src, m)
		done += m
		if m == 0 || m < len(from) {
			break
		}
	}
	return done
}

func swapRun(to, from []Slot, g *Region, largest uint32) int {
	bufs, stride := g.count, uint64(g.stride)
	to = to[:len(from)]
	for i := range from {
		s, d := &from[i], &to[i]
		b, off, n, flags := s.Buf, s.Off, s.Len, s.Flags
		if flags&slotOdd != 0 || n > largest || b >= bufs || uint64(off)+uint64(n) > stride {
			return i
		}
		s.Buf, s.Flags = d.Buf, flags|SlotBufChanged
		*d = Slot{Buf: b, Off: off, Len: n, Flags: flags&slotCarried | SlotBufChanged}
	}
	return len(from)
}

// copyPlain is swapPlain for rings over different regions, which copies.
func (dst *Ring) copyPlain(src *Ring, n int) (done int) {
	for done < n {
		to, from := dst.plainRun(src, n-done)
		m := dst.copyRun(to, from, src.region)
		dst.passed(src, m)
		done += m
		if m == 0 || m < len(from) {
			break
		}
	}
	return done
}

func (dst *Ring) copyRun(to, from []Slot, g *Region) int {
	to = to[:len(from)]
	for i := range from {
		s, d := &from[i], &to[i]
		if s.Flags&slotOdd != 0 || s.Len > dst.maxFrame {
			return i
		}
		frame := g.Frame(s)
		d.Off, d.Len, d.Flags = dst.offset, s.Len, s.Flags&slotCarried
		room := dst.region.Frame(d)
		if frame == nil || room == nil {
			return i
		}
		copy(room, frame)
	}
	return len(from)
}
