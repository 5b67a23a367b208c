package tpacket_test

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/ring/tpacket"
)

// dropAll attaches a program to an interface that drops what it receives: the
// cheapest sink that takes the packet out of the sender's hands.
func dropAll(b *testing.B, ns *netlab.NS, name string) {
	b.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "BSD",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}})
	if err != nil {
		b.Skip("a sink needs the privilege to load programs: ", err)
	}
	index, err := ns.Index(name)
	if err != nil {
		b.Fatal(err)
	}
	var l link.Link
	err = ns.Do(func() error {
		l, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: index})
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close(); prog.Close() })
}

// BenchmarkSend fills and kicks a transmit ring over veth, with so many frames
// a doorbell.
func BenchmarkSend(b *testing.B) {
	netlab.NeedNet(b)
	for _, o := range []struct {
		name string
		tpacket.Options
	}{
		{"vnet", tpacket.Options{}},
		{"plain", tpacket.Options{NoVnet: true}},
	} {
		for _, batch := range []int{1, 4, 8, 16, 32, 64, 128} {
			b.Run(fmt.Sprintf("%s/batch%d", o.name, batch), func(b *testing.B) {
				l := netlab.Setup(b, "a", "b")
				l.Pair(b, "a", "a0", "b", "b0", netlab.VethOpts{})
				dropAll(b, l.NS("b"), "b0")
				o.RxQueues = -1
				tx := open(b, l.NS("a"), "a0", o.Options).TxRings()[0]
				f := frame(stranger, nil, 60, 0)
				b.ReportAllocs()
				for b.Loop() {
					for n := 0; n < batch; {
						for ; n < batch && tx.Space() > 0; n++ {
							tx.Slot(tx.Head).Len = uint32(copy(tx.Buf(tx.Head), f))
							tx.Head++
						}
						tx.Cur = tx.Head
						if err := tx.Sync(); err != nil {
							b.Fatal(err)
						}
					}
				}
				b.ReportMetric(float64(batch)*float64(b.N)/b.Elapsed().Seconds(), "pkts/s")
			})
		}
	}
}
