package nm_test

import (
	"context"
	"fmt"
	"log"

	"github.com/netring/netring/nm"
)

// A packet counter on an interface.
func ExampleOpen() {
	d, err := nm.Open("netmap:eth0/R", nm.Options{})
	if err != nil {
		log.Print(err)
		return
	}
	defer d.Close()
	var packets, bytes int
	for packets < 1000 {
		if _, err := d.Poll(context.Background(), -1, nm.In); err != nil {
			log.Print(err)
			return
		}
		for p := range d.Packets() {
			packets++
			bytes += len(p.Frame)
		}
	}
	fmt.Println(packets, "packets,", bytes, "bytes")
}

// A pipe between two ends of one process.
func ExampleDesc_Inject() {
	a, err := nm.Open("netmap:demo{1", nm.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	b, err := nm.Open("netmap:demo}1", nm.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()

	for _, s := range []string{"one", "two", "three"} {
		if err := a.Inject([]byte(s)); err != nil {
			log.Fatal(err)
		}
	}
	if err := a.SyncTx(); err != nil {
		log.Fatal(err)
	}
	_, err = b.Dispatch(context.Background(), 3, func(p nm.Packet) error {
		fmt.Printf("%s\n", p.Frame)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// one
	// two
	// three
}

// Frames built where they lie.
func ExampleDesc_FreeSlots() {
	a, err := nm.Open("netmap:build{1", nm.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	n := 0
	for r, k := range a.FreeSlots() {
		r.Slot(k).Len = uint32(copy(r.Buf(k), "payload"))
		r.Slot(k).Flags = 0
		if n++; n == 4 {
			break // this one is not handed over
		}
	}
	fmt.Println(a.TxRings()[0].Pending())
	// Output: 3
}

func ExampleParsePort() {
	p, err := nm.ParsePort("netmap:eth0-2/R@conf:slots=1024")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(p.Name, p.Ring, p.Flags == nm.RXOnly)
	_, err = nm.ParsePort("netmap:eth0@conf:slots=1000")
	fmt.Println(err)
	// Output:
	// eth0 2 true
	// nm: port "netmap:eth0@conf:slots=1000": option conf: slots=1000: must be a power of two up to 1048576
}
