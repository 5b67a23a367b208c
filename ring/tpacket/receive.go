package tpacket

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/abi"
	"github.com/netring/netring/internal/netdev"
	"github.com/netring/netring/ring"
)

// socket is what a receive ring asks of its socket; a fake kernel stands in
// for it in tests.
type socket interface {
	receive(b []byte) (int, unix.Errno)
	statistics(s *ring.Counters) error
}

// rxBase is what the walkers of both ring versions share. The walker owns all
// of mem but the frames in slots that belong to the program.
type rxBase struct {
	sock socket
	dev  *netdev.Device
	mem  []byte
	vnet uint32
	at   []uint32 // of each slot: where its frame's header lies in its buffer
	idle uint32   // Syncs since the last that brought something
}

// kernelVnet is the virtio-net header that receive sockets ask the kernel for,
// whatever the ring has: with PACKET_VNET_HDR_SZ of 12 the kernel leaves 12
// bytes before the frame and writes the header into the last 10 of them
// (tpacket_rcv, Linux 6.4 to 6.18 at least).
const kernelVnet = ring.VnetLen

// desc is one received frame as the kernel describes it, read once.
type desc struct {
	hdr      uint32 // offset of the header in area
	hdrLen   uint32
	mac      uint32 // offset of the frame from the header
	snap     uint32 // bytes that are there
	wire     uint32 // bytes that there were
	status   uint32
	tci      uint16
	tpid     uint16
	tagValid bool
}

// fill describes the frame d in area, which is buffer buf of the region, in
// slot s. It puts a VLAN tag back that the kernel took out: the addresses, and
// the virtio-net header before them, move 4 bytes towards the header, which
// the kernel leaves room for. It reports false for a frame that contradicts
// itself or the bounds of area.
func (x *rxBase) fill(s *ring.Slot, buf uint32, area []byte, d *desc) bool {
	if d.mac < d.hdrLen+llLen+x.vnet+vlanTag || d.mac > 1<<16 || d.snap > 1<<26 ||
		uint64(d.hdr)+uint64(d.mac)+uint64(d.snap) > uint64(len(area)) {
		return false
	}
	off := d.hdr + d.mac
	s.Buf, s.Len = buf, d.snap
	s.Flags = pktTypeFlags[area[d.hdr+alignUp32(d.hdrLen)+abi.LLPktType]&7]
	if d.snap < d.wire {
		s.Flags |= ring.SlotTruncated
	}
	if x.vnet != 0 {
		h := area[off-kernelVnet : off]
		if h[0]&ring.VnetNeedCsum != 0 || h[1] != ring.VnetGSONone {
			s.Flags |= ring.SlotVnet
			if h[1] != ring.VnetGSONone {
				s.Flags |= ring.SlotGSO
			}
			if x.vnet != kernelVnet {
				copy(area[off-x.vnet:], h)
				clear(area[off-x.vnet+kernelVnet : off])
			}
		}
	}
	if d.tagValid && d.snap >= 12 {
		off = x.insertTag(s, area, off, d)
	}
	s.Off = off
	return true
}

// pktTypeFlags are the flags for sll_pkttype: for this host, broadcast,
// multicast, other host, outgoing, and three values that are not used.
var pktTypeFlags = [8]ring.SlotFlags{1: ring.SlotBroadcast, 2: ring.SlotMulticast, 3: ring.SlotOtherHost, 4: ring.SlotOutgoing}

func alignUp32(n uint32) uint32 { return (n + align - 1) &^ (align - 1) }

// insertTag puts the tag of d back into the frame at off and returns where it
// starts then. The offsets of the virtio-net header count from the start of the
// frame as it is in the ring, where the tag is not: so does every kernel that
// has packet sockets with that header (packet_rcv and tpacket_rcv, which tell
// virtio_net_hdr_from_skb of no tag, Linux 2.6.27 to 6.18 at least). A test
// holds a live kernel to it.
func (x *rxBase) insertTag(s *ring.Slot, area []byte, off uint32, d *desc) uint32 {
	copy(area[off-x.vnet-vlanTag:], area[off-x.vnet:off+12])
	binary.BigEndian.PutUint16(area[off+8:], d.tpid)
	binary.BigEndian.PutUint16(area[off+10:], d.tci)
	off -= vlanTag
	s.Len += vlanTag
	s.Flags |= ring.SlotVLAN
	if s.Flags&ring.SlotVnet != 0 {
		var v ring.Vnet
		h := area[off-x.vnet : off]
		v.Decode(h)
		v.HdrLen += vlanTag
		v.CsumStart += vlanTag
		v.Encode(h[:ring.VnetLen])
	}
	return off
}

// tagOf reads the status bits that say whether tci and tpid mean anything.
func (d *desc) tagOf(status uint32, tci, tpid uint16) {
	d.tagValid = status&unix.TP_STATUS_VLAN_VALID != 0
	d.tci, d.tpid = tci, tpid
	if status&unix.TP_STATUS_VLAN_TPID_VALID == 0 {
		d.tpid = unix.ETH_P_8021Q
	}
}

// idled counts a Sync that brought nothing. Every so often it looks whether
// the interface is still there, so that a ring that can bring nothing any more
// says so; the owner is told at once by poll(2) and by Refresh.
func (x *rxBase) idled() error {
	const often = 1 << 14
	if x.idle++; x.idle%often != 0 || x.dev == nil {
		return nil
	}
	return x.dev.State()
}

// Refresh adds the kernel's counters up and looks at the link.
func (x *rxBase) Refresh(r *ring.Ring) error {
	if err := x.sock.statistics(&r.Stats); err != nil {
		return fmt.Errorf("socket statistics: %w", err)
	}
	if x.dev == nil {
		return nil
	}
	return x.dev.State()
}

// meta fills m from the fields of a V2 or V3 header.
func meta(m *ring.Meta, wire, sec, nsec, status uint32, d *desc, hash uint32) {
	*m = ring.Meta{
		Time: int64(sec)*1e9 + int64(nsec), Hardware: status&unix.TP_STATUS_TS_RAW_HARDWARE != 0,
		WireLen: wire, Hash: hash,
	}
	if d.tagValid {
		m.HasVLAN, m.VLAN, m.TPID = true, d.tci, d.tpid
	}
}

func u32(b []byte, off uint32) uint32 { return binary.NativeEndian.Uint32(b[off:]) }
func u16(b []byte, off uint32) uint16 { return binary.NativeEndian.Uint16(b[off:]) }
