package tpacket_test

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/ring"
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
// a doorbell. The checksum of some is left to the device, as local senders do.
func BenchmarkSend(b *testing.B) {
	netlab.NeedNet(b)
	csum := &ring.Vnet{Flags: ring.VnetNeedCsum, CsumStart: 34, CsumOffset: 6}
	for _, o := range []struct {
		name string
		tpacket.Options
		size    int
		header  *ring.Vnet
		batches []int
	}{
		{"vnet", tpacket.Options{}, 60, nil, []int{1, 4, 8, 16, 32, 64, 128}},
		{"vnet1514", tpacket.Options{}, 1514, nil, []int{64}},
		{"csum", tpacket.Options{}, 60, csum, []int{64}},
		{"csum1514", tpacket.Options{}, 1514, csum, []int{64}},
		{"plain", tpacket.Options{NoVnet: true}, 60, nil, []int{1, 4, 8, 16, 32, 64, 128}},
	} {
		for _, batch := range o.batches {
			b.Run(fmt.Sprintf("%s/batch%d", o.name, batch), func(b *testing.B) {
				l := netlab.Setup(b, "a", "b")
				l.Pair(b, "a", "a0", "b", "b0", netlab.VethOpts{})
				dropAll(b, l.NS("b"), "b0")
				o.RxQueues = -1
				tx := open(b, l.NS("a"), "a0", o.Options).TxRings()[0]
				f := frame(stranger, nil, o.size, 0)
				b.ReportAllocs()
				for b.Loop() {
					for n := 0; n < batch; {
						for ; n < batch && tx.Space() > 0; n++ {
							s := tx.Slot(tx.Head)
							s.Len, s.Flags = uint32(copy(tx.Buf(tx.Head), f)), 0
							if o.header != nil {
								tx.SetVnet(tx.Head, o.header)
							}
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
