package nm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/netring/netring/nm"
	"github.com/netring/netring/nm/vale"
	"github.com/netring/netring/ring"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A switch: ports of the same vale prefix are on it. The first frame goes to
// everybody, the answer to one port. A monitor counts what one port receives.
func ExampleOpen_vale() {
	ctx, space := context.Background(), &nm.Space{}
	open := func(name string) *nm.Desc {
		d, err := nm.Open(name, nm.Options{Space: space})
		check(err)
		return d
	}
	alice, bob, carol := open("vale0:alice"), open("vale0:bob"), open("vale0:carol")
	counter := open("vale0:carol/r")
	for _, d := range []*nm.Desc{alice, bob, carol, counter} {
		defer d.Close()
	}
	frame := func(dst, src byte) []byte {
		return append([]byte{2, 0, 0, 0, 0, dst, 2, 0, 0, 0, 0, src, 0x88, 0xb5}, make([]byte, 46)...)
	}

	check(alice.Inject(frame('b', 'a')))
	check(alice.Flush(ctx))
	check(bob.Inject(frame('a', 'b')))
	check(bob.Flush(ctx))

	_, err := alice.Dispatch(ctx, 1, func(p nm.Packet) error {
		fmt.Printf("alice: from %c\n", p.Frame[11])
		return nil
	})
	check(err)
	packets, size := 0, 0
	check(counter.SyncRx())
	for p := range counter.Packets() {
		packets++
		size += len(p.Frame)
	}
	fmt.Println("carol:", packets, "packet,", size, "bytes")
	for _, e := range alice.Switch().Table().Entries() {
		fmt.Println(e.MAC, "is behind", alice.Switch().Ports()[e.Port].Name)
	}
	// Output:
	// alice: from b
	// carol: 1 packet, 60 bytes
	// 02:00:00:00:00:61 is behind alice
	// 02:00:00:00:00:62 is behind bob
}

// A learning bridge of one's own, between ports of any kind; here they are
// pipes, over memory @1 for all, so that frames move by exchanging buffers.
func ExampleOpen_learningBridge() {
	space := &nm.Space{}
	open := func(brace string, i int) *nm.Desc {
		d, err := nm.Open(fmt.Sprintf("netmap:port%s%d@1", brace, i), nm.Options{Space: space})
		check(err)
		return d
	}
	var ports, stations [3]*nm.Desc
	for i := range ports {
		ports[i], stations[i] = open("{", i), open("}", i)
		defer ports[i].Close()
		defer stations[i].Close()
	}

	behind := map[[6]byte]int{} // which port each address was seen at
	bridge := func() {
		for i, in := range ports {
			check(in.SyncRx())
			for rx := in.RxRings()[0]; rx.Space() > 0; {
				f := rx.Frame(rx.Head)
				behind[[6]byte(f[6:12])] = i
				if to, ok := behind[[6]byte(f[:6])]; ok {
					ring.Move(ports[to].TxRings()[0], rx, 1)
					continue
				}
				for o, out := range ports {
					if o != i {
						ring.Copy(out.TxRings()[0], rx, rx.Head)
					}
				}
				ring.Skip(rx, 1)
			}
		}
		for _, out := range ports {
			check(out.SyncTx())
		}
	}

	for _, step := range []struct {
		from     int
		dst, src byte
	}{{0, 'b', 'a'}, {2, 'a', 'b'}, {0, 'b', 'a'}} {
		head := []byte{2, 0, 0, 0, 0, step.dst, 2, 0, 0, 0, 0, step.src, 0x88, 0xb5}
		check(stations[step.from].Inject(append(head, make([]byte, 46)...)))
		check(stations[step.from].SyncTx())
		bridge()
		fmt.Printf("%c to %c:", step.src, step.dst)
		for i, st := range stations {
			check(st.SyncRx())
			for range st.Packets() {
				fmt.Print(" station ", i)
			}
		}
		fmt.Println()
	}
	// Output:
	// a to b: station 1 station 2
	// b to a: station 0
	// a to b: station 2
}

// A capture file, written and read.
func ExampleOpen_pcap() {
	dir, err := os.MkdirTemp("", "nm")
	check(err)
	defer os.RemoveAll(dir)
	name := "pcap:" + filepath.Join(dir, "out.pcap")
	w, err := nm.Open(name, nm.Options{PcapWrite: true})
	check(err)
	for i := range 3 {
		check(w.Inject(bytes.Repeat([]byte{byte(i)}, 60+i)))
	}
	check(w.SyncTx())
	check(w.Close())

	r, err := nm.Open(name, nm.Options{})
	check(err)
	defer r.Close()
	for err == nil {
		err = r.SyncRx()
		for p := range r.Packets() {
			fmt.Println(len(p.Frame), "bytes")
		}
	}
	fmt.Println(errors.Is(err, io.EOF))
	// Output:
	// 60 bytes
	// 61 bytes
	// 62 bytes
	// true
}

// Two interfaces as one: if one has no link the other takes over.
func ExampleOpen_lagg() {
	d, err := nm.Open("lagg:eth1+eth2@lagg:proto=loadbalance,hash=l3+l4", nm.Options{})
	if err != nil {
		log.Print(err)
		return
	}
	defer d.Close()
	check(d.Inject(make([]byte, 60)))
	check(d.Flush(context.Background()))
	st, _ := d.Group()
	for _, m := range st.Members {
		fmt.Println(m.Name, m.Link, m.Frames)
	}
}

// The program decides where frames go: port 0 is the way out, and the others
// do not see each other.
func ExampleSwitchOptions() {
	const uplink = vale.PortID(0)
	isolate := func(b *vale.Batch) {
		b.Learning()
		for i, to := range b.Dst {
			switch {
			case b.In == uplink:
			case to == vale.Flood:
				b.Dst[i] = uplink
			case to != uplink && to < vale.MaxPorts:
				b.Dst[i] = vale.Filtered.Verdict()
			}
		}
	}
	space := &nm.Space{}
	up, err := nm.Open("vale0:up", nm.Options{Space: space, Switch: nm.SwitchOptions{Lookup: isolate}})
	check(err)
	defer up.Close()
	for _, name := range []string{"vale0:a", "vale0:b"} {
		d, err := nm.Open(name, nm.Options{Space: space})
		check(err)
		defer d.Close()
		check(d.Inject(append([]byte{255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, name[6]}, make([]byte, 48)...)))
		check(d.Flush(context.Background()))
	}
	for _, p := range space.Switches()[0].Ports() {
		fmt.Println(p.Name, "sent", p.Rx, "and was given", p.Tx)
	}
	// Output:
	// up sent 0 and was given 2
	// a sent 1 and was given 0
	// b sent 1 and was given 0
}

// A frame built in a buffer of the program's own, which then goes into a slot.
func ExampleDesc_ExtraBufs() {
	space := &nm.Space{}
	a, err := nm.Open("netmap:x{1", nm.Options{Space: space, ExtraBufs: 1})
	check(err)
	defer a.Close()
	b, err := nm.Open("netmap:x}1", nm.Options{Space: space})
	check(err)
	defer b.Close()

	tx, mine := a.TxRings()[0], a.ExtraBufs()
	n := copy(tx.Region().Buf(mine[0]), "kept until now")
	s := tx.Slot(tx.Head)
	s.Buf, mine[0] = mine[0], s.Buf
	s.Off, s.Len, s.Flags = 0, uint32(n), ring.SlotBufChanged
	tx.Head++
	tx.Cur = tx.Head
	check(a.SyncTx())

	check(b.SyncRx())
	p, ok := b.NextPkt()
	fmt.Printf("%s, %v\n", p.Frame, ok)
	// Output: kept until now, true
}

// Frames of several slots are put together by NextPkt and Packets; programs
// that walk rings by themselves do it so.
func ExampleReassemble() {
	space := &nm.Space{}
	a, err := nm.Open("netmap:x{1", nm.Options{Space: space})
	check(err)
	defer a.Close()
	b, err := nm.Open("netmap:x}1", nm.Options{Space: space})
	check(err)
	defer b.Close()
	check(a.Inject(make([]byte, 9000)))
	check(a.SyncTx())

	rx := b.RxRings()[0]
	check(rx.Sync())
	frame, slots := nm.Reassemble(nil, rx, rx.Head)
	rx.Head += slots
	rx.Cur = rx.Head
	fmt.Println(len(frame), "bytes in", slots, "slots")
	// Output: 9000 bytes in 5 slots
}

// Waiting: for a frame, for room, or for a time.
func ExampleDesc_Poll() {
	space := &nm.Space{}
	a, err := nm.Open("netmap:x{1@conf:slots=2", nm.Options{Space: space})
	check(err)
	defer a.Close()
	b, err := nm.Open("netmap:x}1@conf:slots=2", nm.Options{Space: space})
	check(err)
	defer b.Close()
	ctx := context.Background()
	for a.Inject(make([]byte, 60)) == nil {
	}
	ready, err := a.Poll(ctx, 0, nm.In|nm.Out) // hands over what was injected
	fmt.Println("room:", ready&nm.Out != 0, err)
	ready, err = b.Poll(ctx, -1, nm.In)
	fmt.Println("frames:", ready&nm.In != 0, err)
	for range b.Packets() {
	}
	check(b.SyncRx())
	ready, err = a.Poll(ctx, -1, nm.Out)
	fmt.Println("room:", ready&nm.Out != 0, err)
	// Output:
	// room: false <nil>
	// frames: true <nil>
	// room: true <nil>
}
