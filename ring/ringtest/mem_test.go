package ringtest_test

import (
	"testing"

	"github.com/netring/netring/ring/mem"
	"github.com/netring/netring/ring/ringtest"
)

func TestMem(t *testing.T) {
	ringtest.Run(t, ringtest.Harness{
		Lossless: true,
		MinFrame: 32,
		Open: func(t testing.TB, slots int) ringtest.Link {
			a, b, err := mem.Pair(mem.Options{Slots: slots, Extra: 3})
			if err != nil {
				t.Fatal(err)
			}
			spare := make([]uint32, 3)
			if n := a.Pool().Take(spare); n != 3 {
				t.Fatalf("%d extra buffers, want 3", n)
			}
			t.Cleanup(func() {
				if err := a.Close(); err != nil {
					t.Error(err)
				}
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			})
			return ringtest.Link{TXPort: a, RXPort: b, TX: a.TxRings()[0], RX: b.RxRings()[0], Spare: spare}
		},
	})
}
