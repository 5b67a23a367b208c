package ring

import "encoding/binary"

// MaxFrame is the largest frame that a slot can describe: a 64 KiB
// segmentation super-frame with its link, network and transport headers.
const MaxFrame = 65535 + 256

// Slot describes one frame, or one part of a frame of several slots. It is
// 16 bytes of plain data; the owner of the slot (see the package comment) may
// write all of it. Buf is an index into the ring's [Region]; Off and Len are
// bytes within that buffer.
type Slot struct {
	Buf   uint32
	Off   uint32
	Len   uint32
	Flags SlotFlags
}

// SlotFlags tell what is special about a slot. Zero is an ordinary, complete
// frame with finished checksums.
type SlotFlags uint32

const (
	// SlotMoreFrag: the frame goes on in the next slot.
	SlotMoreFrag SlotFlags = 1 << iota
	// SlotBufChanged: the program put another buffer into the slot. Drivers
	// here compare Buf anyway; the flag is for programs that mark it.
	SlotBufChanged
	// SlotVnet: a virtio-net header of [Ring.VnetLen] bytes lies directly
	// before the frame and says what is unfinished about it: a checksum, or
	// that it is a segmentation super-frame. Without the flag the frame is
	// complete, whatever the bytes before it are.
	SlotVnet
	// SlotGSO: the frame is a super-frame, several packets long. Only
	// together with SlotVnet.
	SlotGSO
	// SlotTruncated: the frame was longer than what the driver could store.
	// Len is what is there; [Ring.Meta] has the length on the wire.
	SlotTruncated
	// SlotVLAN: the kernel had taken a VLAN tag out and the driver has put it
	// back; the frame starts with the tag in place.
	SlotVLAN
	// SlotMulticast, SlotBroadcast and SlotOtherHost are the kernel's view of
	// whom a received frame is for; none of them means "for this host".
	SlotMulticast
	SlotBroadcast
	SlotOtherHost
	// SlotOutgoing: the host itself sent this frame (only where the port was
	// opened to see those).
	SlotOutgoing
)

// super reports whether the flags are a super-frame's, which no MaxFrame bounds.
func (f SlotFlags) super() bool { return f&(SlotVnet|SlotGSO) == SlotVnet|SlotGSO }

// slotCarried are the flags that travel with a frame from ring to ring.
const slotCarried = SlotMoreFrag | SlotVnet | SlotGSO | SlotTruncated | SlotVLAN |
	SlotMulticast | SlotBroadcast | SlotOtherHost

// Lengths of a virtio-net header before a frame.
const (
	VnetLen      = 10 // without the merged-buffers count
	VnetLenMrg   = 12 // with it
	maxVnetLen   = VnetLenMrg
	VnetNeedCsum = 1 // Vnet.Flags: finish the checksum at CsumStart+CsumOffset
	VnetCsumOK   = 2 // Vnet.Flags: the checksum has been verified
	VnetGSONone  = 0 // Vnet.GSOType and below
	VnetGSOTCPv4 = 1
	VnetGSOUDP   = 3 // UDP fragmentation
	VnetGSOTCPv6 = 4
	VnetGSOUDPL4 = 5 // UDP segmentation: each segment a datagram
	VnetGSOECN   = 0x80
)

// Vnet is the virtio-net header in front of a frame whose slot has
// [SlotVnet]. Offsets count from the first byte of the frame. In memory it is
// in the machine's byte order, as the kernel wants it.
type Vnet struct {
	Flags      uint8
	GSOType    uint8
	HdrLen     uint16 // link, network and transport headers of a super-frame
	GSOSize    uint16 // payload bytes of each segment
	CsumStart  uint16
	CsumOffset uint16
}

// Decode reads the header from b, which has at least [VnetLen] bytes.
func (v *Vnet) Decode(b []byte) {
	_ = b[VnetLen-1]
	v.Flags = b[0]
	v.GSOType = b[1]
	v.HdrLen = binary.NativeEndian.Uint16(b[2:])
	v.GSOSize = binary.NativeEndian.Uint16(b[4:])
	v.CsumStart = binary.NativeEndian.Uint16(b[6:])
	v.CsumOffset = binary.NativeEndian.Uint16(b[8:])
}

// Encode writes the header to b, which has [VnetLen] or [VnetLenMrg] bytes or
// more; bytes past the header proper, up to VnetLenMrg, are cleared.
func (v *Vnet) Encode(b []byte) {
	_ = b[VnetLen-1]
	b[0] = v.Flags
	b[1] = v.GSOType
	binary.NativeEndian.PutUint16(b[2:], v.HdrLen)
	binary.NativeEndian.PutUint16(b[4:], v.GSOSize)
	binary.NativeEndian.PutUint16(b[6:], v.CsumStart)
	binary.NativeEndian.PutUint16(b[8:], v.CsumOffset)
	for i := VnetLen; i < len(b) && i < VnetLenMrg; i++ {
		b[i] = 0
	}
}

// Meta is what a driver knows about a received frame beyond its slot.
type Meta struct {
	Time     int64  // nanoseconds since the Unix epoch, 0 when unknown
	Hardware bool   // Time is the device's
	WireLen  uint32 // bytes on the wire, more than Slot.Len if truncated
	Hash     uint32 // the device's or kernel's flow hash, 0 when unknown
	VLAN     uint16 // outermost tag control information, if HasVLAN
	TPID     uint16 // its EtherType
	HasVLAN  bool   // a tag was taken out of the frame by the kernel
}
