// Package abi names the places of fields in the kernel's packet-ring structures
// (linux/if_packet.h, linux/virtio_net.h), which drivers read and write in mapped
// memory, as bytes, and holds the structures of system calls that
// golang.org/x/sys/unix lacks. Its tests compare every number with the
// structures of x/sys or with the kernel's headers.
//
// All of them but struct ifreq have the same layout on every architecture.
// Numbers are in the machine's byte order.
package abi

// Align is TPACKET_ALIGNMENT: headers and addresses in a ring start at multiples
// of it.
const Align = 16

// struct tpacket2_hdr: the head of each frame of a V2 ring.
const (
	V2Status  = 0 // the word that says whose the frame is
	V2Len     = 4 // bytes on the wire; to send: bytes to send
	V2Snaplen = 8 // bytes that are there
	V2Mac     = 12
	V2Sec     = 16
	V2Nsec    = 20
	V2TCI     = 24
	V2TPID    = 26
	SizeofV2  = 32
)

// struct tpacket3_hdr: the head of each frame in a block of a V3 ring.
const (
	V3Next    = 0 // bytes to the next frame's header
	V3Sec     = 4
	V3Nsec    = 8
	V3Snaplen = 12
	V3Len     = 16
	V3Status  = 20
	V3Mac     = 24
	V3Hash    = 28
	V3TCI     = 32 // 32 bits
	V3TPID    = 36
	SizeofV3  = 48
)

// struct tpacket_block_desc: the head of each block of a V3 ring.
const (
	BlockStatus = 8 // the word that says whose the block is
	BlockPkts   = 12
	BlockFirst  = 16 // offset of the first frame's header in the block
	SizeofBlock = 48
)

// FillHash is TP_FT_REQ_FILL_RXHASH, in the feature word of tpacket_req3.
const FillHash = 1

// struct sockaddr_ll, which follows the head of a received frame.
const (
	LLPktType = 10
	SizeofLL  = 20
)
