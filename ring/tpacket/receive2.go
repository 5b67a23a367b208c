package tpacket

import (
	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/abi"
	"github.com/netring/netring/ring"
)

// rx2 walks a TPACKET_V2 receive ring: frame k of the ring is slot k. A frame
// that is larger than the ring's frames (a super-frame) is in the socket's
// queue as well; it is fetched from there into a large buffer.
type rx2 struct {
	rxBase
	frame uint32      // bytes of each frame of the ring
	large *ring.Large // nil if every frame fits the ring's
	big   []uint32    // of each slot: its large buffer, 0 (the first frame's) if it has none
	gap   uint32      // Syncs in a row that found the next frame missing and its successor there
}

const (
	largeLen     = 68 << 10
	largeBufs    = 32
	largeReserve = 64 // where a frame starts in a large buffer; headroom before it
)

// newRx2 makes the walker of a ring of n frames of frame bytes.
func newRx2(b rxBase, n, frame int) *rx2 {
	d := &rx2{rxBase: b, frame: uint32(frame), big: make([]uint32, n)}
	d.at = make([]uint32, n)
	if frame < largeLen {
		d.large = ring.NewLarge(largeBufs, largeLen)
	}
	return d
}

func (d *rx2) Sync(r *ring.Ring, from, to uint32) (accepted, tail uint32, err error) {
	mask := uint32(r.Len() - 1)
	for k := from; k != to; k++ {
		d.release(k & mask)
	}
	tail = r.Tail()
	var packets, bytes, bad uint64
	for tail-to <= mask {
		k := tail & mask
		area := d.mem[uint64(k)*uint64(d.frame):][:d.frame:d.frame]
		status := word(area, abi.V2Status).Load()
		if status&unix.TP_STATUS_USER == 0 {
			if tail != r.Tail() || !d.skewed(k, mask) {
				break
			}
			*r.Slot(tail) = ring.Slot{Buf: k, Off: d.frame, Flags: ring.SlotTruncated}
			bad++
			tail++
			continue
		}
		s := r.Slot(k)
		ok, later := d.take(s, k, area, status)
		if later {
			break
		}
		if !ok {
			// A slot must stand for the frame, as slots and frames go
			// together; an empty one says that there was something.
			*s = ring.Slot{Buf: k, Off: d.frame, Flags: ring.SlotTruncated}
			bad++
		} else {
			packets++
			bytes += uint64(s.Len)
		}
		tail++
	}
	if packets+bad == 0 {
		return to, tail, d.idled()
	}
	d.idle, d.gap = 0, 0
	r.Stats.Packets.Add(packets)
	r.Stats.Bytes.Add(bytes)
	r.Stats.Drop(ring.DropMalformed, bad)
	return to, tail, nil
}

// skewAfter is how many Syncs in a row must find a gap before it is taken for
// one that stays.
const skewAfter = 1 << 12

// skewed reports whether the kernel has left out frame k for good: the frame
// after it is there, and it is not, Sync after Sync. For a moment that happens
// when two CPUs receive at once, the later one being faster. Kernels before 5.6
// also step over a frame whose offload state does not fit the virtio-net
// header; the ring would wait for it for ever.
func (d *rx2) skewed(k, mask uint32) bool {
	next := (k + 1) & mask
	if next == k || d.status(next)&unix.TP_STATUS_USER == 0 {
		d.gap = 0
		return false
	}
	d.gap++
	return d.gap >= skewAfter
}

func (d *rx2) status(k uint32) uint32 {
	return word(d.mem, int(uint64(k)*uint64(d.frame))+abi.V2Status).Load()
}

// release gives frame k back to the kernel.
func (d *rx2) release(k uint32) {
	if b := d.big[k]; b != 0 {
		d.big[k] = 0
		d.large.Give(b)
	}
	word(d.mem, int(uint64(k)*uint64(d.frame))+abi.V2Status).Store(unix.TP_STATUS_KERNEL)
}

// take describes frame k in slot s. later means that it must stay in the ring
// for now, as all large buffers are in use.
func (d *rx2) take(s *ring.Slot, k uint32, area []byte, status uint32) (ok, later bool) {
	x := desc{hdrLen: v2HdrLen, status: status,
		wire: u32(area, abi.V2Len), snap: u32(area, abi.V2Snaplen), mac: uint32(u16(area, abi.V2Mac))}
	x.tagOf(status, u16(area, abi.V2TCI), u16(area, abi.V2TPID))
	d.at[k] = 0
	if status&unix.TP_STATUS_COPY == 0 {
		return d.fill(s, k, area, &x), false
	}
	if d.large == nil {
		return d.fill(s, k, area, &x), false
	}
	buf, ok := d.large.Take()
	if !ok {
		return false, true
	}
	if d.takeLarge(s, k, buf, area, &x) {
		d.big[k] = buf
		return true, false
	}
	d.large.Give(buf)
	return d.fill(s, k, area, &x), false // what there is of it, marked truncated
}

// takeLarge fetches the whole of frame k into large buffer i from the socket's
// queue, where the kernel put it besides what fitted into the ring.
func (d *rx2) takeLarge(s *ring.Slot, k, i uint32, area []byte, x *desc) bool {
	buf := d.large.Buf(i)
	head := min(d.vnet, kernelVnet)
	n, e := d.sock.receive(buf[largeReserve-head:])
	if e != 0 || uint32(n) < head+ethHdr {
		return false
	}
	y := *x
	y.hdr, y.hdrLen = 0, 0
	y.mac, y.snap = largeReserve, uint32(n)-head
	if !d.fill(s, i, buf, &y) {
		return false
	}
	s.Flags = s.Flags&^(ring.SlotMulticast|ring.SlotBroadcast|ring.SlotOtherHost|ring.SlotOutgoing) |
		pktTypeFlags[area[v2HdrLen+abi.LLPktType]&7]
	return true
}

func (d *rx2) Meta(r *ring.Ring, k uint32, m *ring.Meta) bool {
	k &= uint32(r.Len() - 1)
	h := d.mem[uint64(k)*uint64(d.frame):][:d.frame]
	status := word(h, abi.V2Status).Load()
	var x desc
	x.tagOf(status, u16(h, abi.V2TCI), u16(h, abi.V2TPID))
	meta(m, u32(h, abi.V2Len), u32(h, abi.V2Sec), u32(h, abi.V2Nsec), status, &x, 0)
	return true
}
