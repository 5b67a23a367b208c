package tpacket

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/abi"
	"github.com/netring/netring/internal/netdev"
	"github.com/netring/netring/ring"
)

// transmitter is the kernel's doorbell; a fake kernel stands in for it in
// tests.
type transmitter interface {
	doorbell() (took int, e unix.Errno)
	// writable waits until the kernel has finished something, at most d.
	writable(d time.Duration) error
}

// tx fills a TPACKET_V2 transmit ring: slot k has frame k. The kernel sends
// frames strictly in ring order and stops for ever at one that is not marked,
// so they are marked in order and without holes. A frame is done when its
// status is AVAILABLE again.
//
// The ring is set to PACKET_LOSS: the kernel passes over a frame that it
// refuses, where it would else wait in its place for a better one. What it
// refused then shows in the doorbell's answer only, which is the sum of the
// bytes that it took.
type tx struct {
	bell  transmitter
	dev   *netdev.Device
	mem   []byte
	frame uint32 // bytes of each frame
	vnet  uint32
	mask  uint32

	direct func(frame []byte) unix.Errno   // sends one frame past the ring, nil where that does not pay
	most   uint32                          // bytes of the largest complete frame that goes past the ring: beyond the MTU the socket refuses some tags
	large  *ring.Large                     // buffers that frames come in to go past the ring, nil without direct
	lens   []uint32                        // of each handed over slot: bytes of its frame, and its marks
	unsent uint32                          // first slot that the kernel has not begun to send
	last   uint32                          // the slot after the last one that went by the ring
	begun  bool                            // unsent is set
	done   struct{ refused, bytes uint64 } // refused since the last complete
	stuck  stuck                           // the frame that the kernel does not get rid of
	remake func() (successor, error)       // a new socket with new memory; nil where that cannot be
}

// sent marks the length of a frame that went out past the ring; its place in
// the ring is passed over.
const sent = 1 << 30

// lenMask is what remains of a length without its marks.
const lenMask = sent - 1

// directMin is the size from which a frame goes past the ring where direct is
// set. The ring lends its pages to the packet; a device without hardware, which
// hands the packet to a local receiver, has to copy them then, on top of what it
// does for a packet of its own.
const directMin = 4096

// risky marks the length of a frame with a virtio-net header of somebody
// else's making, which the kernel may refuse.
const risky = 1 << 31

// linear is the length up to which the whole frame is named as header in the
// virtio-net header (unless it is a super-frame), so that the kernel copies it
// into the packet's linear part and needs no page fragment for it. A fragment
// of a frame that an ordinary MTU lets through costs more than its copy, above
// all where the packet stays in this host, which copies it then into a page of
// its own.
const linear = 2048

func newTx(bell transmitter, dev *netdev.Device, mem []byte, g Geometry, vnet int) *tx {
	return &tx{bell: bell, dev: dev, mem: mem, frame: uint32(g.FrameSize), vnet: uint32(vnet),
		mask: uint32(g.Frames - 1), lens: make([]uint32, g.Frames)}
}

func (d *tx) at(k uint32) []byte {
	return d.mem[uint64(k&d.mask)*uint64(d.frame):][:d.frame:d.frame]
}

func (d *tx) status(k uint32) uint32 { return word(d.at(k), abi.V2Status).Load() }

func (d *tx) Sync(r *ring.Ring, from, to uint32) (accepted, tail uint32, err error) {
	if !d.begun {
		d.unsent, d.last, d.begun = from, from, true
	}
	accepted, err = d.post(r, from, to)
	if d.unsent != accepted {
		if kerr := d.kick(r, accepted); err == nil {
			err = kerr
		}
	}
	return accepted, d.complete(r, r.Tail()), err
}

// post marks the frames of slots [from, to) for sending.
func (d *tx) post(r *ring.Ring, from, to uint32) (uint32, error) {
	off, room, most := txOffset+d.vnet, d.frame-txOffset-d.vnet, uint32(r.MaxFrame())
	for k := from; k != to; k++ {
		s := r.Slot(k)
		// Read once: the slot is plain memory of the program's.
		buf, n, flags := s.Buf, s.Len, s.Flags
		if buf != k&d.mask && d.large.Taken(buf) {
			if !d.postLarge(r, k) {
				return k, d.bad(r, k)
			}
			continue
		}
		if buf != k&d.mask || s.Off != off || n < ethHdr || n > room || n > most && flags&ring.SlotGSO == 0 {
			return k, d.bad(r, k)
		}
		frame := d.at(k)
		d.lens[k&d.mask] = n
		switch {
		case d.vnet == 0:
		case flags&ring.SlotVnet == 0:
			plainHeader(frame[txOffset:off], n)
		default:
			d.lens[k&d.mask] |= risky
			if flags&ring.SlotGSO == 0 && n <= linear {
				linearHeader(frame[txOffset:off], n)
			}
		}
		if d.direct != nil && d.mayPass(n, flags) && d.past(r, k, frame[txOffset:off+n]) {
			d.mark(frame, 0)
			continue
		}
		d.last = k + 1
		d.mark(frame, n+d.vnet)
	}
	return to, nil
}

// mark hands a frame of the ring, with size bytes, over to the kernel. None has
// no bytes: it passes that one over.
func (d *tx) mark(frame []byte, size uint32) {
	binary.NativeEndian.PutUint32(frame[abi.V2Len:], size)
	word(frame, abi.V2Status).Store(unix.TP_STATUS_SEND_REQUEST)
}

// mayPass reports whether a frame of n bytes may go past the ring.
func (d *tx) mayPass(n uint32, flags ring.SlotFlags) bool {
	return n >= directMin && (flags&ring.SlotGSO != 0 || n <= d.most)
}

// postLarge is post of slot k, which names a large buffer: the frame goes past
// the ring from there, or else by the ring's own, which it fits. False if the
// slot is wrong.
func (d *tx) postLarge(r *ring.Ring, k uint32) bool {
	s := *r.Slot(k)
	b := d.large.Buf(s.Buf)
	if s.Off < d.vnet || s.Len < ethHdr || s.Len > d.frame-txOffset-d.vnet || uint64(s.Off)+uint64(s.Len) > uint64(len(b)) ||
		s.Len > uint32(r.MaxFrame()) && s.Flags&ring.SlotGSO == 0 {
		return false
	}
	b = b[s.Off-d.vnet : s.Off+s.Len]
	d.lens[k&d.mask] = s.Len | risky
	if s.Flags&ring.SlotVnet == 0 {
		plainHeader(b[:d.vnet], s.Len)
	}
	frame, size := d.at(k), uint32(0)
	if !d.mayPass(s.Len, s.Flags) || !d.past(r, k, b) {
		size = uint32(copy(frame[txOffset:], b))
		d.last = k + 1
	}
	d.large.Give(s.Buf)
	r.Slot(k).Buf = k & d.mask
	d.mark(frame, size)
	return true
}

// bad says what is wrong with slot k, and repairs what is not the program's to
// repair: what buffer it named is anybody's guess.
func (d *tx) bad(r *ring.Ring, k uint32) error {
	s := *r.Slot(k)
	own, off, room := k&d.mask, txOffset+d.vnet, d.frame-txOffset-d.vnet
	if s.Buf == own && s.Off == off && s.Len >= ethHdr && s.Len <= room {
		return fmt.Errorf("%w: slot %d: %d bytes, at most %d with this MTU", ring.ErrTooLarge, k, s.Len, r.MaxFrame())
	}
	r.Slot(k).Buf = own
	d.large.Recover(r, k, r.Tail())
	return fmt.Errorf("%w: slot %d: buffer %d, offset %d, length %d: must be buffer %d, offset %d, length %d to %d", ring.ErrSlot,
		k, s.Buf, s.Off, s.Len, own, off, ethHdr, room)
}

// past sends the frame of slot k past the ring, after everything before it; it
// reports false if that cannot be done now.
func (d *tx) past(r *ring.Ring, k uint32, frame []byte) bool {
	if d.owes() && (d.kick(r, k) != nil || d.owes()) {
		return false
	}
	r.Stats.Doorbells.Add(1)
	switch d.direct(frame) {
	case 0:
		d.lens[k&d.mask] |= sent
	case unix.EINVAL, unix.EMSGSIZE: // this frame's own fault
		d.lens[k&d.mask] |= sent
		d.done.refused++
		d.done.bytes += uint64(d.lens[k&d.mask] & lenMask)
	default:
		return false // the ring finds out what is wrong
	}
	return true
}

// owes reports whether something before the slots to come, other than places of
// frames that went past the ring, has not been sent.
func (d *tx) owes() bool { return int32(d.last-d.unsent) > 0 }

// plainHeader writes the virtio-net header of a frame that needs nothing done.
func plainHeader(h []byte, n uint32) {
	var v ring.Vnet
	if n <= linear {
		v.HdrLen = uint16(n)
	}
	v.Encode(h)
}

// linearHeader makes the whole frame header in the virtio-net header of one that
// is no super-frame, where that says less.
func linearHeader(h []byte, n uint32) {
	var v ring.Vnet
	if v.Decode(h); v.GSOType == ring.VnetGSONone && uint32(v.HdrLen) < n {
		v.HdrLen = uint16(n)
		v.Encode(h[:ring.VnetLen])
	}
}

// kick rings the doorbell for the slots [unsent, accepted). Those that the
// kernel did not take for want of memory wait for the next Sync.
func (d *tx) kick(r *ring.Ring, accepted uint32) error {
	r.Stats.Doorbells.Add(1)
	took, e := d.bell.doorbell()
	first, sum := d.unsent, uint64(0)
	for d.unsent != accepted && d.status(d.unsent)&unix.TP_STATUS_SEND_REQUEST == 0 {
		if l := d.lens[d.unsent&d.mask]; l&sent == 0 {
			sum += uint64(l & lenMask)
		}
		d.unsent++
	}
	if e == 0 && uint64(took) < sum {
		d.refused(first, d.unsent, sum-uint64(took))
	}
	left := d.unsent != accepted
	if left && (e == unix.ENOMEM || e == unix.ENOBUFS) {
		d.insist(e)
	}
	return d.answer(r, e, left)
}

// answer turns the doorbell's errno into an error; nil for those that mean
// "later".
func (d *tx) answer(r *ring.Ring, e unix.Errno, left bool) error {
	switch e {
	case 0:
	case unix.EAGAIN, unix.ENOBUFS, unix.EINTR, unix.EBUSY, unix.ENOMEM:
		// The socket's send buffer, or the queueing discipline, is full, or
		// the first frame is one that insist gives up on.
	case unix.ENETDOWN, unix.ENXIO, unix.ENODEV:
		if d.dev != nil {
			if err := d.dev.State(); err != nil {
				return err
			}
		}
		return ring.ErrLinkDown
	default:
		return fmt.Errorf("doorbell: %w", error(e))
	}
	if left {
		r.Stats.Retries.Add(1)
	}
	return nil
}

// complete takes back the slots that are done, in order, and returns the tail.
func (d *tx) complete(r *ring.Ring, tail uint32) uint32 {
	var packets, bytes uint64
	for oldest := tail - uint32(r.Len()); oldest != d.unsent; oldest++ {
		if d.status(oldest) != unix.TP_STATUS_AVAILABLE {
			break
		}
		packets++
		bytes += uint64(d.lens[oldest&d.mask] & lenMask)
		*r.Slot(oldest) = ring.Slot{Buf: oldest & d.mask, Off: txOffset + d.vnet}
		tail++
	}
	d.count(r, packets, bytes)
	return tail
}

// count adds finished slots, with so many bytes, to the counters: as sent, but
// for what was refused among them.
func (d *tx) count(r *ring.Ring, packets, bytes uint64) {
	if packets == 0 {
		return
	}
	gone := min(d.done.refused, packets)
	r.Stats.Packets.Add(packets - gone)
	r.Stats.Bytes.Add(bytes - min(d.done.bytes, bytes))
	r.Stats.Drop(ring.DropRefused, gone)
	d.done.refused -= gone
	d.done.bytes -= min(d.done.bytes, bytes)
}

// drain rings the doorbell until all that was handed over is sent, at most for
// d long; what is left is counted as closed. The ring's owner has left.
func (d *tx) drain(r *ring.Ring, timeout time.Duration) {
	tail := r.Tail()
	for deadline := time.Now().Add(timeout); ; {
		tail = d.complete(r, tail)
		left := r.Accepted() + uint32(r.Len()) - tail
		if left == 0 {
			return
		}
		wait := time.Until(deadline)
		if wait <= 0 {
			r.Stats.Drop(ring.DropClosed, uint64(left))
			return
		}
		if d.unsent != r.Accepted() {
			if d.kick(r, r.Accepted()) != nil {
				deadline = time.Now() // the link is down: count what is left
				continue
			}
		}
		if d.bell.writable(min(wait, 10*time.Millisecond)) != nil {
			deadline = time.Now()
		}
	}
}

// Refresh looks at the link.
func (d *tx) Refresh(*ring.Ring) error {
	if d.dev == nil {
		return nil
	}
	return d.dev.State()
}
