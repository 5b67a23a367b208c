package tpacket_test

import (
	"testing"

	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/ringtest"
	"github.com/netring/netring/ring/tpacket"
)

// TestConformance runs the drivers' suite over a veth pair. The length of the
// virtio-net header has nothing to do with that of the rings: all lengths of
// rings are tested with one of them.
func TestConformance(t *testing.T) {
	netlab.NeedNet(t)
	versions(t, func(t *testing.T, o tpacket.Options) {
		l := netlab.Setup(t, "a", "b")
		l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
		sizes := []int{2, 8, 1024}
		if o.VnetLen != ring.VnetLen {
			sizes = []int{8}
		}
		ringtest.Run(t, ringtest.Harness{
			Sizes: sizes,
			Open: func(t testing.TB, slots int) ringtest.Link {
				tx, rx := o, o
				tx.RxQueues, tx.TxSlots = -1, slots
				rx.TxQueues, rx.RxSlots = -1, slots
				if o.Version == tpacket.V3 {
					rx.Profile, rx.BlockSize = tpacket.Throughput, 80<<10
				}
				a, b := open(t, l.NS("a"), "a0", tx), open(t, l.NS("b"), "b0", rx)
				// Not more than the queue takes that the kernel receives from.
				window := min(slots, 512)
				if o.Version == tpacket.V3 {
					// In the worst case each frame holds a block.
					window = min(window, b.Granted().Rx.Blocks-2)
				}
				return ringtest.Link{TXPort: a, RXPort: b, TX: a.TxRings()[0], RX: b.RxRings()[0], Window: window}
			},
		})
	})
}
