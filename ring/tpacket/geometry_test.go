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

func TestGeometry(t *testing.T) {
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

// TestGeometryRefused: what cannot be is refused, not clamped.
func TestGeometryRefused(t *testing.T) {
	for _, c := range [][4]int{
		{2048, 3, 4096, 1 << 18},        // not a power of two
		{2048, 0, 4096, 1 << 18},        // none
		{0, 256, 4096, 1 << 18},         // nothing to hold
		{2048, 256, 5000, 1 << 18},      // no page size
		{70000, 1 << 20, 4096, 1 << 18}, // 4 GiB wrap of 32 bits and more
		{2048, 1 << 21, 4096, 1 << 18},  // 4 GiB exactly
		{2048, 1, 4096, 1 << 18},        // half a page
	} {
		if g, err := solveV2(c[0], c[1], c[2], c[3]); err == nil {
			t.Errorf("%v accepted: %+v", c, g)
		}
	}
	if g, err := solveV3(70000, 4096, 1<<20, 4096); err == nil {
		t.Errorf("V3 block smaller than a frame accepted: %+v", g)
	}
	if g, err := solveV3(2048, 1<<20, 1<<32, 4096); err == nil {
		t.Errorf("V3 ring of 4 GiB accepted: %+v", g)
	}
}

// TestSmaller: each answer to ENOMEM is a valid ring, and they end.
func TestSmaller(t *testing.T) {
	for _, need := range []int{200, 1700, 9200, 66000} {
		g, err := solveV2(need, 1024, 4096, maxBlockV2)
		if err != nil {
			t.Fatal(err)
		}
		steps, bytes := 0, g.Bytes()
		for ok := true; ok; steps++ {
			if err := valid(g, need, 4096, false); err != nil || g.Frames&(g.Frames-1) != 0 || g.Bytes() > bytes {
				t.Fatalf("step %d: %+v: %v", steps, g, err)
			}
			bytes = g.Bytes()
			g, ok = g.smaller(4096, 4096)
		}
		if steps < 3 || steps > 40 {
			t.Errorf("frame of %d: %d steps", need, steps)
		}
	}
	need := largestTCP
	g, err := solveV3(need, 1<<18, 8<<20, 4096)
	if err != nil {
		t.Fatal(err)
	}
	for ok := true; ok; g, ok = g.smaller(v3MinBlock(need, 4096), 4096) {
		if err := valid(g, need, 4096, true); err != nil {
			t.Fatalf("%+v: %v", g, err)
		}
	}
}

// arp is "tcpdump -ddd arp" for an Ethernet interface.
const arp = "4\n40 0 0 12\n21 0 1 2054\n6 0 0 262144\n6 0 0 0\n"

func TestParseFilter(t *testing.T) {
	for _, text := range []string{arp, "4,40 0 0 12,21 0 1 2054,6 0 0 262144,6 0 0 0"} {
		raw, err := ParseFilter(text)
		if err != nil {
			t.Fatal(err)
		}
		prog, ok := bpf.Disassemble(raw)
		if !ok {
			t.Fatalf("not all of %v is known", raw)
		}
		vm, err := bpf.NewVM(prog)
		if err != nil {
			t.Fatal(err)
		}
		frame := make([]byte, 60)
		if n, err := vm.Run(frame); n != 0 || err != nil {
			t.Errorf("other frame: %d, %v", n, err)
		}
		frame[12], frame[13] = 8, 6
		if n, err := vm.Run(frame); n != 262144 || err != nil {
			t.Errorf("ARP: %d, %v", n, err)
		}
	}
	for _, text := range []string{"", "\n", "x", "0", "2\n6 0 0 0", "1\n6 0 0", "1\n6 0 0 0 0", "1\n6 300 0 0", "1\n-6 0 0 0", "1\n6 0 0 4294967296", "99999\n6 0 0 0"} {
		if p, err := ParseFilter(text); err == nil {
			t.Errorf("%q accepted: %v", text, p)
		}
	}
}

func FuzzParseFilter(f *testing.F) {
	f.Add(arp)
	f.Add("1\n6 0 0 0")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParseFilter(text)
		if err == nil && (len(p) == 0 || len(p) > 4096) {
			t.Errorf("%d instructions", len(p))
		}
	})
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
