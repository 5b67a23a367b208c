package xdp

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/netdev"
	"github.com/netring/netring/ring"
)

// receiver is the kernel's side of a receive ring. At any time each of the
// ring's frames is either lent to the kernel or in a slot of the program's.
type receiver struct {
	q       *queue
	mem     *Mem
	dev     *netdev.Device
	id      uint16
	granted []uint32 // the frame that each slot came with
	stats   unix.XDPStatistics
	gather  coalescer
}

// start lends all frames to the kernel.
func (d *receiver) start(frames []uint32) {
	for _, f := range frames {
		d.mem.lend(f, d.id)
		d.q.fill.put(f, d.mem)
	}
	d.q.fill.publish()
}

// put appends frame f to a ring of addresses that has room.
func (s *shared) put(f uint32, m *Mem) {
	s.addrs[s.prod&s.mask] = uint64(f) * uint64(m.region.BufSize())
	s.prod++
}

func (d *receiver) Sync(r *ring.Ring, from, to uint32) (accepted, tail uint32, err error) {
	// First refill: a fill ring that runs dry loses packets.
	accepted, err = d.refill(r, from, to)
	tail = d.receive(r, accepted)
	if d.q.fill.needWakeup() {
		if e := wake(d.q.fd); err == nil {
			err = later(d.dev, e)
		}
		r.Stats.Doorbells.Add(1)
	}
	return accepted, tail, err
}

// refill gives the frames of slots [from, to) to the kernel.
func (d *receiver) refill(r *ring.Ring, from, to uint32) (accepted uint32, err error) {
	fill := d.q.fill
	fill.room(to - from) // there is room: the ring has as many entries as frames
	k := from
	for ; k != to; k++ {
		s := r.Slot(k)
		if !d.mem.lend(s.Buf, d.id) {
			err = d.mem.badSlot(r, k, d.granted)
			break
		}
		fill.put(s.Buf, d.mem)
	}
	if k != from {
		fill.publish()
	}
	return k, err
}

// receive fills slots from the ring's tail on with what the kernel has put
// into the socket's receive ring.
func (d *receiver) receive(r *ring.Ring, head uint32) (tail uint32) {
	tail = r.Tail()
	rx := d.q.rx
	n := min(rx.avail(), uint32(r.Len())-(tail-head))
	if n == 0 {
		return tail
	}
	stride := uint64(d.mem.region.BufSize())
	shift := uint(0)
	for 1<<shift < stride {
		shift++
	}
	var packets, bytes, bad uint64
	for range n {
		desc := rx.descs[rx.cons&rx.mask] // read once: the memory is shared
		rx.cons++
		f, off := uint32(desc.Addr>>shift), desc.Addr&(stride-1)
		if desc.Addr>>shift > 1<<32-1 || off+uint64(desc.Len) > stride || !d.mem.back(f, d.id) {
			bad++
			continue
		}
		s := r.Slot(tail)
		*s = ring.Slot{Buf: f, Off: uint32(off), Len: desc.Len}
		d.granted[tail&uint32(len(d.granted)-1)] = f
		if desc.Options&unix.XDP_PKT_CONTD != 0 {
			s.Flags = ring.SlotMoreFrag
		} else {
			packets++
		}
		bytes += uint64(desc.Len)
		tail++
	}
	rx.consumed()
	r.Stats.Packets.Add(packets)
	r.Stats.Bytes.Add(bytes)
	r.Stats.Drop(ring.DropMalformed, bad)
	return tail
}

// Refresh adds up the socket's statistics and looks at the link.
func (d *receiver) Refresh(r *ring.Ring) error {
	st, err := statistics(d.q.fd)
	if err != nil {
		return err
	}
	full := st.Rx_ring_full - d.stats.Rx_ring_full
	empty := st.Rx_fill_ring_empty_descs - d.stats.Rx_fill_ring_empty_descs
	drops := st.Rx_dropped - d.stats.Rx_dropped + full
	d.stats = st
	r.Stats.KernelDrops.Add(drops)
	r.Stats.KernelFreezes.Add(empty)
	r.Stats.KernelPackets.Store(r.Stats.Packets.Load() + r.Stats.KernelDrops.Load())
	d.gather.look(time.Now(), r.Stats.KernelPackets.Load())
	return d.dev.State()
}

// sender is the kernel's side of a transmit ring. Slots [tail-n, accepted) are
// lent to the kernel, in this order.
type sender struct {
	q       *queue
	mem     *Mem
	dev     *netdev.Device
	id      uint16
	granted []uint32 // of each slot in the kernel's hands: its frame
	given   []uint32 // the frame that each slot was last given to the program with
	lens    []uint32 // length and, in the top bit, "more follows", as handed over
	posted  uint32   // descriptors handed over and not completed
	begun   uint64   // bytes handed over of a frame whose end has not been
	end     uint32   // the ring's tail after drain
	// touched keeps the reads of frames' first bytes from being left out. Of
	// what another core has received, they bring in the first cache lines all
	// at once, while the kernel, which copies frame by frame, would wait for
	// each.
	touched byte
}

const moreFollows = 1 << 31

func (d *sender) Sync(r *ring.Ring, from, to uint32) (accepted, tail uint32, err error) {
	accepted, err = d.post(r, from, to)
	tail = d.complete(r, r.Tail())
	if d.posted != 0 && (d.q.tx.needWakeup() || !d.q.mode.ZeroCopy) {
		r.Stats.Doorbells.Add(1)
		e := kick(d.q.fd)
		if e == unix.EAGAIN || e == unix.EBUSY || e == unix.ENOBUFS {
			r.Stats.Retries.Add(1)
		}
		if kerr := later(d.dev, e); err == nil {
			err = kerr
		}
		tail = d.complete(r, tail)
	}
	return accepted, tail, err
}

// later turns the answer to a kick into an error; nil for those that mean that
// the kernel goes on at the next one.
func later(d *netdev.Device, e unix.Errno) error {
	switch e {
	case 0, unix.EAGAIN, unix.EBUSY, unix.ENOBUFS, unix.EINTR:
		return nil
	case unix.ENETDOWN, unix.ENXIO, unix.ENODEV:
		if err := d.State(); err != nil {
			return err
		}
		return ring.ErrLinkDown
	}
	return fmt.Errorf("kick: %w: the driver may not support this mode; try another (attach=generic, zerocopy=never)", error(e))
}

// post hands the slots [from, to) to the kernel.
func (d *sender) post(r *ring.Ring, from, to uint32) (accepted uint32, err error) {
	tx := d.q.tx
	tx.room(to - from) // there is room: the ring has as many entries as slots
	stride := uint64(d.mem.region.BufSize())
	mask := uint32(len(d.lens) - 1)
	mem, touched := d.mem.raw, d.touched
	k := from
	for ; k != to; k++ {
		s := r.Slot(k)
		buf, off, n, flags := s.Buf, uint64(s.Off), s.Len, s.Flags
		outside := n == 0 || off+uint64(n) > stride || n >= moreFollows
		if total := d.frameBytes(r, k, to); !outside && total > uint64(r.MaxFrame()) {
			err = fmt.Errorf("%w: slot %d: %d bytes, at most %d with this MTU", ring.ErrTooLarge, k, total, r.MaxFrame())
			break
		}
		if outside || !d.mem.lend(buf, d.id) {
			err = d.mem.badSlot(r, k, d.given)
			break
		}
		desc := unix.XDPDesc{Addr: uint64(buf)*stride + off, Len: n}
		d.lens[k&mask] = n
		d.begun += uint64(n)
		if flags&ring.SlotMoreFrag != 0 {
			desc.Options = unix.XDP_PKT_CONTD
			d.lens[k&mask] |= moreFollows
		} else {
			d.begun = 0
		}
		d.granted[k&mask] = buf
		touched ^= mem[desc.Addr]
		tx.descs[tx.prod&tx.mask] = desc
		tx.prod++
	}
	d.touched = touched
	if k != from {
		tx.publish()
		d.posted += k - from
	}
	return k, err
}

// frameBytes is how long the frame that slot k belongs to is known to be by now.
// Of one that begins in k, all slots up to to count, so that it is refused
// before any part of it is handed over.
func (d *sender) frameBytes(r *ring.Ring, k, to uint32) uint64 {
	s := r.Slot(k)
	total := d.begun + uint64(s.Len)
	for d.begun == 0 && s.Flags&ring.SlotMoreFrag != 0 {
		if k++; k == to {
			break
		}
		s = r.Slot(k)
		total += uint64(s.Len)
	}
	return total
}

// complete takes finished frames back and returns the new tail.
func (d *sender) complete(r *ring.Ring, tail uint32) uint32 {
	n := d.q.cq.avail()
	if n == 0 {
		return tail
	}
	stride := uint64(d.mem.region.BufSize())
	mask := uint32(len(d.lens) - 1)
	var packets, bytes, bad uint64
	for range n {
		addr := d.q.cq.addrs[d.q.cq.cons&d.q.cq.mask]
		d.q.cq.cons++
		f := uint32(addr / stride)
		if addr/stride > 1<<32-1 || d.posted == 0 || !d.mem.back(f, d.id) {
			bad++
			continue
		}
		// The slot at tail is the oldest one in the kernel's hands. Frames
		// mostly come back in order; where not, exchange the two.
		at := tail & mask
		if d.granted[at] != f {
			d.swap(tail, f)
		}
		*r.Slot(tail) = ring.Slot{Buf: f}
		d.given[at] = f
		if l := d.lens[at]; l&moreFollows == 0 {
			packets++
			bytes += uint64(l)
		} else {
			bytes += uint64(l &^ moreFollows)
		}
		d.posted--
		tail++
	}
	d.q.cq.consumed()
	r.Stats.Packets.Add(packets)
	r.Stats.Bytes.Add(bytes)
	r.Stats.Drop(ring.DropMalformed, bad)
	return tail
}

// swap exchanges the record of slot tail with that of the slot whose frame is f.
func (d *sender) swap(tail, f uint32) {
	mask := uint32(len(d.lens) - 1)
	for i := uint32(1); i < d.posted; i++ {
		at, other := tail&mask, (tail+i)&mask
		if d.granted[other] == f {
			d.granted[at], d.granted[other] = d.granted[other], d.granted[at]
			d.lens[at], d.lens[other] = d.lens[other], d.lens[at]
			return
		}
	}
}

// Refresh looks at the link and at frames that the kernel refused.
func (d *sender) Refresh(r *ring.Ring) error {
	st, err := statistics(d.q.fd)
	if err != nil {
		return errors.Join(err, d.dev.State())
	}
	refused := st.Tx_invalid_descs
	if was := r.Stats.Drops[ring.DropRefused].Load(); refused > was {
		r.Stats.Drop(ring.DropRefused, refused-was)
	}
	return d.dev.State()
}
