package tpacket_test

import (
	"fmt"
	"testing"

	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/ring/ringtest"
	"github.com/netring/netring/ring/tpacket"
)

// TestConformance runs the drivers' suite over a veth pair, one for each link
// that the suite opens.
func TestConformance(t *testing.T) {
	netlab.NeedNet(t)
	versions(t, func(t *testing.T, o tpacket.Options) {
		l := netlab.Setup(t, "a", "b")
		n := 0
		ringtest.Run(t, ringtest.Harness{
			Open: func(t testing.TB, slots int) ringtest.Link {
				n++
				from, to := fmt.Sprint("a", n), fmt.Sprint("b", n)
				l.Pair(t, "a", from, "b", to, netlab.VethOpts{})
				tx, rx := o, o
				tx.RxQueues, tx.TxSlots = -1, slots
				rx.TxQueues, rx.RxSlots = -1, slots
				if o.Version == tpacket.V3 {
					rx.Profile, rx.BlockSize = tpacket.Throughput, 80<<10
				}
				a, b := open(t, l.NS("a"), from, tx), open(t, l.NS("b"), to, rx)
				window := slots
				if o.Version == tpacket.V3 {
					// In the worst case each frame holds a block.
					window = min(slots, b.Granted().Rx.Blocks-2)
				}
				return ringtest.Link{TXPort: a, RXPort: b, TX: a.TxRings()[0], RX: b.RxRings()[0], Window: window}
			},
		})
	})
}
