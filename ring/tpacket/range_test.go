package tpacket

import (
	"fmt"
	"testing"

	"golang.org/x/net/bpf"

	"github.com/netring/netring/ring"
)

// valid checks g against the kernel's own rules (packet_set_ring) and ours.
func valid(g Geometry, need, page int, v3 bool) error {
	switch {
	case g.BlockSize <= 0 || g.BlockSize%page != 0:
		return fmt.Errorf("block is not a multiple of the page %d", page)
	case g.FrameSize <= 0 || g.FrameSize%align != 0 || g.FrameSize > g.BlockSize:
		return fmt.Errorf("frame is not a multiple of %d within a block", align)
	case g.BlockSize/g.FrameSize*g.Blocks != g.Frames:
		return fmt.Errorf("frames do not agree with blocks")
	case g.Bytes() > maxRingBytes:
		return fmt.Errorf("more than %d bytes", int64(maxRingBytes))
	case !v3 && g.FrameSize < need:
		return fmt.Errorf("a frame of %d bytes does not fit", need)
	case !v3 && g.BlockSize%g.FrameSize != 0:
		return fmt.Errorf("frames are not all at the same distance")
	case v3 && g.BlockSize < v3MinBlock(need, page):
		return fmt.Errorf("a frame of %d bytes does not fit a block", need)
	}
	return nil
}

// TestGeometryEveryMTU goes over the whole range of MTUs.
func TestGeometryEveryMTU(t *testing.T) {
	for _, page := range []int{4096, 16384, 65536} {
		for _, vnet := range []int{0, ring.VnetLen, ring.VnetLenMrg} {
			for mtu := 68; mtu <= 65535; mtu++ {
				for _, need := range []int{frameNeed(mtu, vnet), txNeed(mtu, vnet)} {
					g, err := solveV2(need, 256, page, maxBlockV2)
					if err == nil {
						err = valid(g, need, page, false)
					}
					if err != nil || g.Frames != 256 {
						t.Fatalf("page %d, MTU %d, header %d: %+v: %v", page, mtu, vnet, g, err)
					}
				}
				need := max(mtu+ethHdr+vlanTag, largestTCP) + vnet
				g, err := solveV3(need, 1<<18, 8<<20, page)
				if err == nil {
					err = valid(g, need, page, true)
				}
				if err != nil {
					t.Fatalf("V3, page %d, MTU %d, header %d: %+v: %v", page, mtu, vnet, g, err)
				}
			}
		}
	}
}

func TestValidate(t *testing.T) {
	if err := (&Options{}).Validate(); err != nil {
		t.Errorf("zero value refused: %v", err)
	}
	for _, o := range []Options{
		{Profile: 9}, {Version: 1}, {RxQueues: -2}, {RxQueues: 257}, {TxQueues: -2}, {TxQueues: 257}, {RxQueues: -1, TxQueues: -1},
		{RxSlots: 3}, {RxSlots: 1 << 21}, {TxSlots: -1}, {Fanout: 9}, {Fanout: FanoutRollover, Rollover: true}, {VnetLen: 11},
		{BlockSize: -1}, {BlockSize: 1 << 27}, {BlockTimeout: 1}, {BlockTimeout: 1<<63 - 1}, {Timestamp: 9}, {FlowHash: true},
		{DrainTimeout: -1}, {Filter: make([]bpf.RawInstruction, 4097)},
	} {
		if o.Validate() == nil {
			t.Errorf("%+v accepted", o)
		}
	}
}
