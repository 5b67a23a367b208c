//go:build cgo && linux

package afpacket_test

import (
	"fmt"
	"testing"

	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/ring/afpacket"
	"github.com/netring/netring/ring/ringtest"
)

func TestMain(m *testing.M) { netlab.Main(m) }

func open(t testing.TB, ns *netlab.NS, name string, o afpacket.Options) *afpacket.Port {
	t.Helper()
	return netlab.Open(t, ns, func() (*afpacket.Port, error) { return afpacket.Open(name, o) })
}

// TestConformance runs the drivers' suite over a veth pair, one for each link
// that the suite opens.
func TestConformance(t *testing.T) {
	netlab.NeedNet(t)
	l := netlab.Setup(t, "a", "b")
	n := 0
	ringtest.Run(t, ringtest.Harness{
		Open: func(t testing.TB, slots int) ringtest.Link {
			n++
			from, to := fmt.Sprint("a", n), fmt.Sprint("b", n)
			l.Pair(t, "a", from, "b", to, netlab.VethOpts{})
			o := afpacket.Options{Slots: slots}
			a, b := open(t, l.NS("a"), from, o), open(t, l.NS("b"), to, o)
			// Not more than the queue takes that the kernel receives from.
			return ringtest.Link{TXPort: a, RXPort: b, TX: a.TxRings()[0], RX: b.RxRings()[0], Window: min(slots, 512)}
		},
	})
}
