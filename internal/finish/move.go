package finish

import "github.com/netring/netring/ring"

// Move is [ring.Move] for a dst that may carry no virtio-net header: frames
// that dst cannot take unfinished are finished on the way. A super-frame moves
// once dst has room for all of its segments. What cannot be finished is
// dropped and counted in dst.Stats. Call it for frames of one slot each: an
// unfinished frame of several slots is dropped (offload).
//
// The caller owns both rings.
func Move(dst, src *ring.Ring, n int) int {
	if dst.VnetLen() != 0 {
		return ring.Move(dst, src, n)
	}
	done := 0
	for done < n {
		// All that needs no finishing goes in one piece.
		if run := plain(src, n-done); run > 0 {
			moved := ring.Move(dst, src, run)
			done += moved
			if moved < run {
				break
			}
			continue
		}
		if !moveOne(dst, src) {
			break
		}
		done++
	}
	return done
}

// plain counts the whole frames at the head of src, up to n, that come before
// an unfinished one.
func plain(src *ring.Ring, n int) int {
	count, start := 0, true
	for k := src.Head; k != src.Tail() && count < n; k++ {
		flags := src.Slot(k).Flags
		if start && flags&ring.SlotVnet != 0 {
			break
		}
		if start = flags&ring.SlotMoreFrag == 0; start {
			count++
		}
	}
	return count
}

// moveOne finishes the frame at src's head and moves it; false if src has no
// whole one or dst no room.
func moveOne(dst, src *ring.Ring) bool {
	if dst.Space() == 0 || !whole(src) {
		return false
	}
	var v ring.Vnet
	s := src.Slot(src.Head)
	frame := src.Frame(src.Head)
	if cause, ok := usable(src, src.Head, frame, &v); !ok {
		dst.Stats.Drop(cause, 1)
		return skip(src)
	}
	if v.GSOType != ring.VnetGSONone {
		return segment(dst, frame, &v) && skip(src)
	}
	if err := Checksum(frame, &v); err != nil {
		dst.Stats.Drop(Cause(err), 1)
		return skip(src)
	}
	s.Flags &^= ring.SlotVnet
	return ring.Move(dst, src, 1) == 1
}

// whole reports whether all slots of the frame at src's head are there.
func whole(src *ring.Ring) bool {
	for k := src.Head; k != src.Tail(); k++ {
		if src.Slot(k).Flags&ring.SlotMoreFrag == 0 {
			return true
		}
	}
	return false
}

// skip passes over the frame at src's head.
func skip(src *ring.Ring) bool { return ring.Skip(src, 1) == 1 }

// Copy is [ring.Copy] for a dst that may carry no virtio-net header: the copy
// is finished on the way, and src is left as it is.
func Copy(dst, src *ring.Ring, k uint32) bool {
	if !ring.NeedsFinish(dst, src, k) {
		return ring.Copy(dst, src, k)
	}
	if dst.Space() == 0 {
		return false
	}
	var v ring.Vnet
	frame := src.Frame(k)
	cause, ok := usable(src, k, frame, &v)
	switch {
	case !ok:
	case v.GSOType != ring.VnetGSONone:
		return segment(dst, frame, &v)
	case len(frame) > dst.MaxFrame() || len(frame) > len(dst.Buf(dst.Head)):
		cause = ring.DropOversize
	default:
		buf := dst.Buf(dst.Head)
		copy(buf, frame)
		err := Checksum(buf[:len(frame)], &v)
		if err == nil {
			push(dst, len(frame))
			return true
		}
		cause = Cause(err)
	}
	dst.Stats.Drop(cause, 1)
	return true
}

// usable reads the virtio-net header of slot k, whose frame is given, or tells
// why it cannot be finished.
func usable(src *ring.Ring, k uint32, frame []byte, v *ring.Vnet) (ring.Cause, bool) {
	s := src.Slot(k)
	switch {
	case s.Flags&ring.SlotTruncated != 0:
		return ring.DropTruncated, false
	case s.Flags&ring.SlotMoreFrag != 0:
		return ring.DropOffload, false
	case frame == nil || !src.Vnet(k, v):
		return ring.DropMalformed, false
	}
	return 0, true
}

// segment cuts a super-frame into dst; false if it has no room for all of it
// now but will have.
func segment(dst *ring.Ring, frame []byte, v *ring.Vnet) bool {
	var s Segments
	if err := s.Init(frame, v); err != nil {
		dst.Stats.Drop(Cause(err), 1)
		return true
	}
	switch {
	case s.MaxLen() > dst.MaxFrame():
		dst.Stats.Drop(ring.DropOversize, 1)
		return true
	case s.Len() > dst.Len():
		dst.Stats.Drop(ring.DropOffload, 1)
		return true
	case s.Len() > dst.Space():
		return false
	}
	for s.i < s.n {
		buf := dst.Buf(dst.Head)
		if len(buf) < s.MaxLen() {
			// Buffers smaller than MaxFrame, or a slot that names none.
			dst.Stats.Drop(ring.DropOversize, 1)
			return true
		}
		push(dst, s.Next(buf))
	}
	return true
}

// push passes the frame of n bytes that has been written to dst's head.
func push(dst *ring.Ring, n int) {
	s := dst.Slot(dst.Head)
	s.Len, s.Flags = uint32(n), 0
	dst.Head++
	dst.Cur = dst.Head
}
