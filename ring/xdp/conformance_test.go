package xdp_test

import (
	"fmt"
	"testing"

	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/ring/ringtest"
	"github.com/netring/netring/ring/xdp"
)

// TestConformance runs the drivers' suite over a veth pair, one for each link
// that the suite opens.
func TestConformance(t *testing.T) {
	netlab.NeedNet(t)
	netlab.NeedRoot(t)
	for _, at := range []xdp.Attach{xdp.AttachNative, xdp.AttachGeneric} {
		t.Run(at.String(), func(t *testing.T) {
			l := netlab.Setup(t, "a", "b")
			n := 0
			ringtest.Run(t, ringtest.Harness{
				Open: func(t testing.TB, slots int) ringtest.Link {
					n++
					from, to := fmt.Sprint("a", n), fmt.Sprint("b", n)
					l.Pair(t, "a", from, "b", to, netlab.VethOpts{})
					a := open(t, l.NS("a"), from, nil, xdp.Options{Slots: slots, TXOnly: true})
					b := open(t, l.NS("b"), to, nil, xdp.Options{Slots: slots, Attach: at})
					return ringtest.Link{TXPort: a, RXPort: b, TX: a.TxRings()[0], RX: b.RxRings()[0]}
				},
			})
		})
	}
}
