package tpacket

import (
	"fmt"

	"github.com/netring/netring/internal/abi"
	"github.com/netring/netring/ring"
)

const (
	align      = abi.Align
	v2HdrLen   = abi.SizeofV2
	v3HdrLen   = abi.SizeofV3
	blockHdr   = abi.SizeofBlock
	llLen      = abi.SizeofLL
	ethHdr     = 14
	vlanTag    = 4
	txOffset   = v2HdrLen // where the kernel looks for data in a transmit frame
	largestTCP = 65535 + ethHdr + vlanTag
)

// Geometry is the shape of one ring, as PACKET_RX_RING and PACKET_TX_RING take
// it. Blocks are what the kernel allocates in one piece; frames do not cross
// them.
type Geometry struct {
	BlockSize int // bytes, a multiple of the page size
	Blocks    int
	FrameSize int // bytes, a multiple of 16
	Frames    int // FrameSize frames of all blocks
}

// Bytes is the memory of the ring.
func (g Geometry) Bytes() int64 { return int64(g.BlockSize) * int64(g.Blocks) }

// maxRingBytes bounds a ring; the kernel's own arithmetic is 32 bit.
const maxRingBytes = 1 << 31

// rxHeadroom is what the kernel puts before a frame's data in a V2 receive
// frame, for an Ethernet header of 14 bytes.
func rxHeadroom(vnet int) int { return alignUp(v2HdrLen+llLen+16, align) + vnet }

// solveV2 finds the geometry for n frames of at least need bytes each, in
// blocks of at most maxBlock bytes where one frame allows that. All frames
// have the same distance from each other, so block size is a whole number of
// frames: frame sizes are powers of two up to a page, whole pages above.
func solveV2(need, n, page, maxBlock int) (Geometry, error) {
	if need < 1 || n < 1 || n&(n-1) != 0 || page < 4096 || page&(page-1) != 0 {
		return Geometry{}, fmt.Errorf("%d frames of %d bytes with pages of %d: must be a power of two of frames", n, need, page)
	}
	frame := alignUp(need, page)
	if need <= page {
		for frame = 256; frame < need; frame *= 2 {
		}
	}
	// The largest power of two of frames that is a block of at most maxBlock
	// and a whole number of pages.
	per := 1
	for per*frame%page != 0 || per < n && int64(per)*2*int64(frame) <= int64(maxBlock) {
		per *= 2
	}
	if per > n {
		return Geometry{}, fmt.Errorf("%d frames of %d bytes do not fill a page of %d: use at least %d slots", n, frame, page, per)
	}
	g := Geometry{BlockSize: per * frame, Blocks: n / per, FrameSize: frame, Frames: n}
	if g.Bytes() > maxRingBytes {
		return Geometry{}, fmt.Errorf("%d slots of %d bytes need %d bytes: at most %d; use fewer slots", n, frame, g.Bytes(), int64(maxRingBytes))
	}
	return g, nil
}

// solveV3 finds the geometry for total bytes in blocks of block bytes, each
// large enough for one frame of need bytes.
func solveV3(need, block, total, page int) (Geometry, error) {
	block = alignUp(block, page)
	if least := v3MinBlock(need, page); block < least {
		return Geometry{}, fmt.Errorf("block size %d: a frame of %d bytes needs at least %d", block, need, least)
	}
	n := max(total/block, 2)
	if int64(n)*int64(block) > maxRingBytes {
		return Geometry{}, fmt.Errorf("ring of %d bytes: at most %d", int64(n)*int64(block), int64(maxRingBytes))
	}
	// V3 packs frames whatever the frame size; the kernel only wants the
	// numbers to agree.
	const frame = 2048
	return Geometry{BlockSize: block, Blocks: n, FrameSize: frame, Frames: block / frame * n}, nil
}

// v3MinBlock is the least size of a block that takes a frame of need bytes.
func v3MinBlock(need, page int) int {
	return alignUp(blockHdr+alignUp(v3HdrLen+llLen+16, align)+need+align, page)
}

// smaller returns the geometry to try when the kernel has no memory for g:
// blocks of half the size, while a block holds a frame and is a page at least;
// after that half the blocks. False if there is nothing smaller.
func (g Geometry) smaller(minBlock, page int) (Geometry, bool) {
	half := g.BlockSize / 2
	if half >= minBlock && half%page == 0 && half%g.FrameSize == 0 {
		g.BlockSize, g.Blocks = half, g.Blocks*2
		return g, true
	}
	if g.Blocks < 4 {
		return g, false
	}
	g.Blocks /= 2
	g.Frames /= 2
	return g, true
}

// frameNeed is the bytes of a receive frame for an MTU: headers, one tag that
// stays in the data, and the frame.
func frameNeed(mtu, vnet int) int { return rxHeadroom(vnet) + mtu + ethHdr + vlanTag }

// txNeed is the bytes of a transmit frame: with a virtio-net header it holds
// the largest super-frame.
func txNeed(mtu, vnet int) int {
	n := mtu + ethHdr + vlanTag
	if vnet != 0 {
		n = max(n, largestTCP)
	}
	return txOffset + vnet + n
}

func alignUp(n, to int) int { return (n + to - 1) / to * to }

// The largest buffer that a frame can need fits what a slot can describe.
const _ = uint(ring.MaxFrame - largestTCP)
