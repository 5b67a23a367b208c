package tpacket

import (
	"fmt"
	"testing"

	"github.com/netring/netring/ring"
)

func mtus() []int {
	m := []int{68, 576, 1280, 1499, 1500, 1501, 2000, 2048, 4000, 4096, 8192, 9000, 16384, 32768, 65520, 65534, 65535}
	for i := 69; i < 65535; i += 997 {
		m = append(m, i)
	}
	return m
}

func TestGeometryV2(t *testing.T) {
	for _, page := range []int{4 << 10, 16 << 10, 64 << 10} {
		for _, mtu := range mtus() {
			for _, vnet := range []int{0, 10, 12} {
				for _, need := range []int{frameNeed(mtu, vnet), txNeed(mtu, vnet)} {
					for _, n := range []int{1, 2, 16, 64, 256, 1024, 4096} {
						g, err := solveV2(need, n, page, maxBlockV2)
						if err != nil {
							checkRefusal(t, need, n, page, err)
							continue
						}
						checkV2(t, g, need, n, page)
						for steps := 0; ; steps++ {
							small, ok := g.smaller(page, page)
							if !ok {
								break
							}
							if small.Bytes() > g.Bytes() || steps > 40 || small.Frames < 1 {
								t.Fatalf("%+v is followed by %+v", g, small)
							}
							g = small
							checkV2(t, g, need, g.Frames, page)
						}
					}
				}
			}
		}
	}
}

// checkRefusal: only too few slots for a page, or more memory than there may
// be, is refused.
func checkRefusal(t *testing.T, need, n, page int, err error) {
	t.Helper()
	if n*alignUp(need, 256) >= page*2 && int64(n)*int64(alignUp(need, page)) <= maxRingBytes {
		t.Fatalf("need %d, %d slots, page %d: %v", need, n, page, err)
	}
}

// checkV2 has the conditions that packet_set_ring wants, and those of a region
// whose buffers are the frames.
func checkV2(t *testing.T, g Geometry, need, n, page int) {
	t.Helper()
	switch {
	case g.FrameSize < need || g.FrameSize%align != 0:
		t.Fatalf("need %d: frame size of %+v", need, g)
	case g.BlockSize%page != 0 || g.BlockSize%g.FrameSize != 0 || g.BlockSize < g.FrameSize:
		t.Fatalf("need %d, page %d: block size of %+v", need, page, g)
	case g.Frames != n || g.Frames != g.BlockSize/g.FrameSize*g.Blocks || g.Frames&(g.Frames-1) != 0:
		t.Fatalf("%d slots: frames of %+v", n, g)
	case g.Bytes() > maxRingBytes:
		t.Fatalf("%+v has %d bytes", g, g.Bytes())
	case g.FrameSize > 4*need && g.FrameSize > page && g.FrameSize > 256:
		t.Fatalf("need %d: %+v wastes memory", need, g)
	}
}

func TestGeometryV3(t *testing.T) {
	for _, page := range []int{4 << 10, 16 << 10, 64 << 10} {
		for _, mtu := range mtus() {
			need := max(mtu+ethHdr+vlanTag, largestTCP) + ring.VnetLenMrg
			for _, total := range []int{1 << 20, 8 << 20} {
				g, err := solveV3(need, 1<<18, total, page)
				if err != nil {
					t.Fatalf("mtu %d, page %d: %v", mtu, page, err)
				}
				least := v3MinBlock(need, page)
				for steps := 0; ; steps++ {
					if g.BlockSize%page != 0 || g.BlockSize < least || g.Frames != g.BlockSize/g.FrameSize*g.Blocks || g.Blocks < 2 || steps > 40 {
						t.Fatalf("mtu %d, page %d, step %d: %+v", mtu, page, steps, g)
					}
					small, ok := g.smaller(least, page)
					if !ok {
						break
					}
					g = small
				}
			}
			if _, err := solveV3(need, page, 1<<20, page); err == nil && page < need {
				t.Fatalf("a block of %d bytes for frames of %d", page, need)
			}
		}
	}
}

func TestGeometryRefuses(t *testing.T) {
	for _, c := range [][3]int{{0, 64, 4096}, {2048, 63, 4096}, {2048, 0, 4096}, {2048, 64, 4095}, {2048, 64, 2048}, {70000, 1 << 20, 4096}} {
		if g, err := solveV2(c[0], c[1], c[2], maxBlockV2); err == nil {
			t.Errorf("%v gives %+v", c, g)
		}
	}
	if g, err := solveV3(70000, 1<<30+4096, 0, 4096); err == nil {
		t.Errorf("%+v", g)
	}
}

func ExampleGeometry_Bytes() {
	g, err := solveV2(frameNeed(1500, ring.VnetLen), 1024, 4096, maxBlockV2)
	fmt.Println(g.FrameSize, g.Bytes()>>20, err)
	// Output: 2048 2 <nil>
}
