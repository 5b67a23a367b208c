package tpacket

import (
	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/abi"
	"github.com/netring/netring/ring"
)

// rx3 walks a TPACKET_V3 receive ring. Blocks belong to the kernel until it
// closes them; a closed block is walked into slots packet by packet and goes
// back as soon as the program has passed its last packet.
type rx3 struct {
	rxBase
	block  uint32
	blocks uint32
	cur    uint32   // block that is walked, or that the kernel closes next
	oldest uint32   // first block that has not gone back
	held   uint32   // blocks from oldest on that have been walked whole
	left   uint32   // packets of block cur that are not in slots yet; 0: not begun
	next   uint32   // offset of the next of them
	end    []uint32 // of each walked block: the slot after its last packet
}

func newRx3(b rxBase, slots, block, blocks int) *rx3 {
	d := &rx3{rxBase: b, block: uint32(block), blocks: uint32(blocks), end: make([]uint32, blocks)}
	d.at = make([]uint32, slots)
	return d
}

func (d *rx3) area(b uint32) []byte {
	return d.mem[uint64(b)*uint64(d.block):][:d.block:d.block]
}

func (d *rx3) Sync(r *ring.Ring, from, to uint32) (accepted, tail uint32, err error) {
	d.release(to)
	tail = r.Tail()
	var packets, bytes, bad uint64
	for tail-to < uint32(r.Len()) && (d.left != 0 || d.open(tail)) {
		area := d.area(d.cur)
		for d.left != 0 && tail-to < uint32(r.Len()) {
			s := r.Slot(tail)
			ok, more := d.take(s, area, tail&uint32(r.Len()-1))
			if ok {
				packets++
				bytes += uint64(s.Len)
				tail++
			}
			if d.left--; !more && d.left != 0 {
				// The chain of packets leaves the block: the rest is lost.
				bad += uint64(d.left)
				d.left = 0
			}
			if !ok {
				bad++
			}
		}
		if d.left == 0 {
			d.end[d.cur] = tail
			d.held++
			if d.cur++; d.cur == d.blocks {
				d.cur = 0
			}
			d.release(to)
		}
	}
	if packets+bad == 0 {
		return to, tail, d.idled()
	}
	d.idle = 0
	r.Stats.Packets.Add(packets)
	r.Stats.Bytes.Add(bytes)
	r.Stats.Drop(ring.DropMalformed, bad)
	return to, tail, nil
}

// open begins with block cur if the kernel has closed it. Blocks without
// packets (their timeout ran out) are passed over; they go back with the one
// before.
func (d *rx3) open(tail uint32) bool {
	for d.held < d.blocks {
		area := d.area(d.cur)
		if word(area, abi.BlockStatus).Load()&unix.TP_STATUS_USER == 0 {
			return false
		}
		d.left, d.next = u32(area, abi.BlockPkts), u32(area, abi.BlockFirst)
		if most := d.block / (v3HdrLen + llLen); d.left > most {
			d.left = most // no block holds more; the walk ends at its bounds
		}
		if d.left != 0 {
			return true
		}
		d.end[d.cur] = tail
		d.held++
		if d.cur++; d.cur == d.blocks {
			d.cur = 0
		}
	}
	return false
}

// release gives the walked blocks back whose packets the program has passed.
func (d *rx3) release(head uint32) {
	for d.held != 0 && int32(head-d.end[d.oldest]) >= 0 {
		word(d.area(d.oldest), abi.BlockStatus).Store(unix.TP_STATUS_KERNEL)
		if d.oldest++; d.oldest == d.blocks {
			d.oldest = 0
		}
		d.held--
	}
}

// take describes the next packet of the block in slot s; more is false when
// none can follow it.
func (d *rx3) take(s *ring.Slot, area []byte, k uint32) (ok, more bool) {
	h := d.next
	if h < blockHdr || uint64(h)+v3HdrLen+llLen > uint64(d.block) || h%4 != 0 {
		return false, false
	}
	step := u32(area, h+abi.V3Next)
	x := desc{hdr: h, hdrLen: v3HdrLen, snap: u32(area, h+abi.V3Snaplen), wire: u32(area, h+abi.V3Len),
		status: u32(area, h+abi.V3Status), mac: uint32(u16(area, h+abi.V3Mac))}
	x.tagOf(x.status, uint16(u32(area, h+abi.V3TCI)), u16(area, h+abi.V3TPID))
	more = step >= v3HdrLen && step < d.block
	d.next = h + step
	d.at[k] = h
	return d.fill(s, d.cur, area, &x), more
}

func (d *rx3) Meta(r *ring.Ring, k uint32, m *ring.Meta) bool {
	s := r.Slot(k)
	if s.Buf >= d.blocks {
		return false
	}
	h := d.area(s.Buf)[d.at[k&uint32(r.Len()-1)]:]
	if len(h) < v3HdrLen {
		return false
	}
	var x desc
	status := u32(h, abi.V3Status)
	x.tagOf(status, uint16(u32(h, abi.V3TCI)), u16(h, abi.V3TPID))
	meta(m, u32(h, abi.V3Len), u32(h, abi.V3Sec), u32(h, abi.V3Nsec), status, &x, u32(h, abi.V3Hash))
	return true
}
