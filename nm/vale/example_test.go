package vale_test

import (
	"fmt"
	"log"

	"github.com/netring/netring/nm/vale"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/mem"
	"github.com/netring/netring/sched"
)

// A switch with three ports: a station sends to an unknown address, is
// answered, and then sends to a known one.
func Example() {
	sw, err := vale.New(vale.Options{})
	if err != nil {
		log.Fatal(err)
	}
	pool, err := mem.NewPool(3*mem.Options{}.Bufs(), mem.DefaultBufSize)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	var near, far [3]*mem.Port
	for i := range near {
		if near[i], far[i], err = mem.Pair(mem.Options{Pool: pool}); err != nil {
			log.Fatal(err)
		}
		defer near[i].Close()
		defer far[i].Close()
		q, err := sched.NewQueue(near[i].TxRings()[0], sched.Options{Clock: new(sched.Clock)})
		if err != nil {
			log.Fatal(err)
		}
		if _, err := sw.Add(fmt.Sprintf("port %d", i), []ring.Egress{q}); err != nil {
			log.Fatal(err)
		}
	}

	send := func(from int, dst, src vale.MAC) {
		tx := far[from].TxRings()[0]
		d, s := dst.Bytes(), src.Bytes()
		b := tx.Buf(tx.Head)
		copy(b, d[:])
		copy(b[6:], s[:])
		tx.Slot(tx.Head).Len = 60
		tx.Head++
		tx.Cur = tx.Head
		_ = tx.Sync() // errors are left out of this example from here on
	}
	turn := func() {
		for i, p := range near {
			rx := p.RxRings()[0]
			_ = rx.Sync()
			sw.Forward(0, vale.PortID(i), rx, rx.Space())
		}
		_ = sw.Flush(0)
		for i, p := range far {
			rx := p.RxRings()[0]
			_ = rx.Sync()
			fmt.Printf("  port %d got %d\n", i, ring.Skip(rx, rx.Space()))
		}
	}

	const alice, bob = vale.MAC(0x0200000000aa), vale.MAC(0x0200000000bb)
	fmt.Println("alice, at port 0, to bob:")
	send(0, bob, alice)
	turn()
	fmt.Println("bob, at port 2, to alice:")
	send(2, alice, bob)
	turn()
	for _, e := range sw.Table().Entries() {
		fmt.Printf("%v is behind port %d\n", e.MAC, e.Port)
	}
	// Output:
	// alice, at port 0, to bob:
	//   port 0 got 0
	//   port 1 got 1
	//   port 2 got 1
	// bob, at port 2, to alice:
	//   port 0 got 1
	//   port 1 got 0
	//   port 2 got 0
	// 02:00:00:00:00:aa is behind port 0
	// 02:00:00:00:00:bb is behind port 2
}

// A lookup of one's own on top of learning: port 0 is the way out, and the
// other ports do not see each other.
func ExampleOptions_lookup() {
	const uplink = vale.PortID(0)
	sw, err := vale.New(vale.Options{Lookup: func(b *vale.Batch) {
		b.Learning()
		if b.In == uplink {
			return
		}
		for i, to := range b.Dst {
			if to == vale.Flood {
				b.Dst[i] = uplink
			} else if to != uplink && to < vale.MaxPorts {
				b.Dst[i] = vale.Filtered.Verdict()
			}
		}
	}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(sw.Ports()), "ports yet")
	// Output: 0 ports yet
}
