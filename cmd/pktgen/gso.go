package main

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/offload"
	"github.com/netring/netring/internal/packet"
	"github.com/netring/netring/ring"
)

// maxSegments is how many datagrams the kernel of that release cuts out of one
// super-frame: UDP_MAX_SEGMENTS, 64 before Linux 6.9 and 128 since.
func maxSegments(release string) int {
	var major, minor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n == 2 && (major > 6 || major == 6 && minor >= 9) {
		return 128
	}
	return 64
}

// segmentation asks who will cut the super-frames, and warns if nobody does.
func (p *plan) segmentation() error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Errorf("kernel version: %w", err)
	}
	p.maxSegments = maxSegments(unix.ByteSliceToString(u.Release[:]))
	by, err := offload.UDPSegmenter(p.spec.Name)
	if err != nil {
		return err
	}
	if p.segmentedBy = by.String(); by == offload.NotSegmented {
		p.log.Warn("nobody cuts the super-frames: the other end gets them whole, with unfinished checksums; packets are counted as frames on a wire would be",
			"port", p.spec.Name, "remedy", "ethtool -K "+p.spec.Name+" tx-udp-segmentation off")
	}
	return nil
}

// superFrames fills the ring with UDP super-frames: many datagrams of one flow
// behind one header, which the kernel or the device cuts into frames. The
// counts are of the frames on the wire.
type superFrames struct {
	t       *sender
	size    int // of each frame
	payload int // of each datagram
	l3, l4  int
	segs    int      // datagrams in a full super-frame
	burst   int      // super-frames per doorbell, at most
	inSlot  []uint32 // of each slot handed over: its datagrams
	done    uint32   // first slot that is not completed
	begun   bool
	refused uint64 // super-frames, as of the last collect
}

func newSuperFrames(t *sender) (*superFrames, error) {
	if t.r.VnetLen() == 0 {
		return nil, errors.New("engine gso needs the virtio-net header: leave vnet=off out")
	}
	f := &superFrames{t: t, size: t.j.frames.Sizes.Max(), inSlot: make([]uint32, t.r.Len())}
	off := t.b.PayloadOffset()
	f.l4 = off - 8
	f.l3 = 14 + 4*len(t.j.frames.Tags)
	f.payload = f.size - off
	if f.payload < 1 {
		return nil, fmt.Errorf("engine gso: frames of %d bytes have no payload: use at least %d", f.size, off+1)
	}
	room := 65535 - (off - 14)
	f.segs = min(t.j.maxSegments, room/f.payload)
	if f.segs < 2 {
		return nil, fmt.Errorf("engine gso: frames of %d bytes are too large to be joined", f.size)
	}
	f.burst = min(t.j.burst, max(1, cached/(f.segs*f.payload)))
	return f, nil
}

// cached is how many bytes of super-frames go with one doorbell, but for one
// that has more: as many as a core's nearest cache still has when the kernel
// comes to read them. With more it was 20 % slower.
const cached = 32 << 10

// fill puts super-frames into the ring: as many frames as are due, at most a
// burst of super-frames.
func (f *superFrames) fill(due uint64) (cost uint64) {
	t, r := f.t, f.t.r
	if !f.begun {
		f.done, f.begun = r.Tail()-uint32(r.Len()), true
	}
	each := t.j.rates.cost(f.size)
	for n := 0; n < f.burst && r.Space() > 0 && cost+each <= due; n++ {
		segs := min(uint64(f.segs), (due-cost)/each)
		if t.bound {
			segs = min(segs, t.left)
		}
		if segs == 0 {
			break
		}
		f.build(int(segs))
		f.inSlot[r.Head&uint32(len(f.inSlot)-1)] = uint32(segs)
		r.Head++
		cost += segs * each
		if t.bound {
			t.left -= segs
		}
	}
	r.Cur = r.Head
	return cost
}

// build makes a super-frame of segs datagrams in the ring's head slot.
func (f *superFrames) build(segs int) {
	t, r := f.t, f.t.r
	buf := r.Buf(r.Head)
	n := t.b.Next(buf, nil)
	first := n - f.payload
	for end := first + segs*f.payload; n < end; {
		n += copy(buf[n:end], buf[first:n])
	}
	s := r.Slot(r.Head)
	s.Len, s.Flags = uint32(n), 0
	if segs == 1 {
		return // an ordinary, complete frame
	}
	ip, udp := buf[f.l3:n], buf[f.l4:n]
	var addrs []byte
	if t.j.frames.Src.First.Is4() {
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		binary.BigEndian.PutUint16(ip[10:], packet.IPv4Checksum(ip[:20]))
		addrs = ip[12:20]
	} else {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-40))
		addrs = ip[8:40]
	}
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	// A partial checksum: the sum of the pseudo header, not inverted.
	half := len(addrs) / 2
	binary.BigEndian.PutUint16(udp[6:], ^packet.Fold(packet.PseudoSum(addrs[:half], addrs[half:], packet.ProtoUDP, len(udp))))
	r.SetVnet(r.Head, &ring.Vnet{Flags: ring.VnetNeedCsum, GSOType: ring.VnetGSOUDPL4, HdrLen: uint16(f.l4 + 8),
		GSOSize: uint16(f.payload), CsumStart: uint16(f.l4), CsumOffset: 6})
}

// collect counts the frames of the super-frames that are done.
func (f *superFrames) collect() {
	r := f.t.r
	refused := r.Stats.Drops[ring.DropRefused].Load()
	var sent, gone uint64
	for end := r.Tail() - uint32(r.Len()); f.done != end; f.done++ {
		n := uint64(f.inSlot[f.done&uint32(len(f.inSlot)-1)])
		if refused > f.refused {
			f.refused++
			gone += n
			continue
		}
		sent += n
	}
	f.t.n.packets.Add(sent)
	f.t.n.bytes.Add(sent * uint64(f.size))
	f.t.n.refused.Add(gone)
}
