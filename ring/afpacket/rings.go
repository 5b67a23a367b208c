//go:build cgo && linux

package afpacket

import (
	"errors"
	"fmt"

	"github.com/google/gopacket/afpacket"
	"golang.org/x/sys/unix"

	"github.com/netring/netring/ring"
)

// receiver copies frames from gopacket's ring into the slots of ours. It owns
// the slots' buffers: slot k always has buffer k.
type receiver struct {
	p    *Port
	meta []ring.Meta
	seen uint64 // the kernel's counts as gopacket sums them, in 32 bit or more
	drop uint64
	frz  uint64
}

func (d *receiver) Sync(r *ring.Ring, from, to uint32) (accepted, tail uint32, err error) {
	tail = r.Tail()
	var packets, bytes, truncated uint64
	for tail-to < uint32(r.Len()) {
		data, ci, rerr := d.p.tp.ZeroCopyReadPacketData()
		if rerr != nil {
			err = d.readError(rerr)
			break
		}
		k := tail & uint32(r.Len()-1)
		s := r.Slot(k)
		*s = ring.Slot{Buf: k}
		n := copy(r.Region().Buf(k), data)
		s.Len = uint32(n)
		if n < ci.Length {
			s.Flags |= ring.SlotTruncated
			truncated++
		}
		d.meta[k] = ring.Meta{Time: ci.Timestamp.UnixNano(), WireLen: uint32(max(ci.Length, n))}
		if len(ci.AncillaryData) != 0 {
			if v, ok := ci.AncillaryData[0].(afpacket.AncillaryVLAN); ok {
				d.meta[k].HasVLAN, d.meta[k].VLAN, d.meta[k].TPID = true, uint16(v.VLAN), unix.ETH_P_8021Q
			}
		}
		packets++
		bytes += uint64(n)
		tail++
	}
	r.Stats.Packets.Add(packets)
	r.Stats.Bytes.Add(bytes)
	return to, tail, err
}

func (d *receiver) readError(err error) error {
	switch {
	case errors.Is(err, afpacket.ErrTimeout):
		return nil
	case errors.Is(err, afpacket.ErrPoll):
		return d.p.linkState()
	}
	return err
}

func (d *receiver) Meta(r *ring.Ring, k uint32, m *ring.Meta) bool {
	*m = d.meta[k&uint32(r.Len()-1)]
	return true
}

// Refresh adds up the kernel's counters. gopacket's own sum wraps at 32 bits;
// the differences do not.
func (d *receiver) Refresh(r *ring.Ring) error {
	_, st, err := d.p.tp.SocketStats()
	if err != nil {
		return fmt.Errorf("socket statistics: %w", err)
	}
	for _, c := range []struct {
		now uint
		was *uint64
		add interface{ Add(uint64) uint64 }
	}{
		{st.Packets(), &d.seen, &r.Stats.KernelPackets},
		{st.Drops(), &d.drop, &r.Stats.KernelDrops},
		{st.QueueFreezes(), &d.frz, &r.Stats.KernelFreezes},
	} {
		c.add.Add(uint64(uint32(uint64(c.now) - *c.was)))
		*c.was = uint64(c.now)
	}
	return nil
}

// sender writes each frame with one system call; a frame is done when the call
// returns. Accepted slots that the socket did not take yet wait for the next
// Sync.
type sender struct{ p *Port }

func (d *sender) Sync(r *ring.Ring, from, to uint32) (accepted, tail uint32, err error) {
	for k := from; k != to; k++ {
		s := r.Slot(k)
		own := k & uint32(r.Len()-1)
		if s.Buf != own || !r.Region().Holds(s, 0) {
			err = fmt.Errorf("%w: slot %d: buffer %d, offset %d, length %d", ring.ErrSlot, k, s.Buf, s.Off, s.Len)
			s.Buf, to = own, k
			break
		}
	}
	var packets, bytes, refused, bells uint64
	next := r.Tail() - uint32(r.Len()) // the first slot that is not sent
	for again := false; next != to && !again; bells++ {
		b := r.Region().Frame(r.Slot(next))
		werr := d.p.tp.WritePacketData(b)
		switch {
		case werr == nil:
			packets++
			bytes += uint64(len(b))
			next++
		case errors.Is(werr, unix.ENOBUFS), errors.Is(werr, unix.EAGAIN):
			r.Stats.Retries.Add(1)
			again = true
		case errors.Is(werr, unix.ENETDOWN), errors.Is(werr, unix.ENXIO), errors.Is(werr, unix.ENODEV):
			if err = d.p.linkState(); err == nil {
				err = ring.ErrLinkDown
			}
			again = true
		default: // EMSGSIZE, EINVAL: this frame's own fault
			refused++
			next++
		}
	}
	r.Stats.Packets.Add(packets)
	r.Stats.Bytes.Add(bytes)
	r.Stats.Doorbells.Add(bells)
	r.Stats.Drop(ring.DropRefused, refused)
	return to, next + uint32(r.Len()), err
}
