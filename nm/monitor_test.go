package nm_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/netring/netring/nm"
	"github.com/netring/netring/ring"
)

// TestMonitor: copies come before the owner reads, and whether it does or not;
// the owner's traffic is what it is without.
func TestMonitor(t *testing.T) {
	s := &nm.Space{}
	d := ports(t, s, 3, "@conf:slots=64")
	rx, tx, both := open(t, s, "vale0:p1/r"), open(t, s, "vale0:p1/t"), open(t, s, "vale0:p1/rt")
	if len(rx.TxRings()) != 0 {
		t.Error("a monitor can send")
	}
	in := []([]byte){etherFrame(bcast, macA, 1, 60), etherFrame(bcast, macA, 2, 1500)}
	send(t, d[0], in...)
	want(t, "received", rx, in...)
	out := etherFrame(macA, macB, 3, 60)
	send(t, d[1], out)
	want(t, "sent", tx, out)
	known := etherFrame(macB, macA, 4, 60)
	send(t, d[0], known)
	want(t, "both", both, in[0], in[1], out, known)
	want(t, "received", rx, known)
	want(t, "sent", tx)
	want(t, "owner", d[1], in[0], in[1], known)
	want(t, "peer", d[0], out)

	// A monitor that does not read loses frames, counted; the owner does not.
	slow := open(t, s, "vale0:p1/r@conf:slots=4")
	var all [][]byte
	for i := range 30 {
		all = append(all, etherFrame(macB, macA, i, 60))
	}
	send(t, d[0], all...)
	want(t, "owner", d[1], all...)
	want(t, "slow monitor", slow, all[:4]...)
	// A frame that the owner has no room for is not received, and not seen.
	for range 3 {
		send(t, d[0], all...)
	}
	got := 0
	must(t, d[1].SyncRx())
	for range d[1].Packets() {
		got++
	}
	seen := 0
	must(t, rx.SyncRx())
	for range rx.Packets() {
		seen++
	}
	if got != 64 || seen != 30+64 {
		t.Errorf("the owner received %d frames, the monitor %d", got, seen-30)
	}

	must(t, tx.Close())
	must(t, d[1].Close())
	if _, err := both.Poll(limit(t), -1, nm.In); err != nil {
		t.Errorf("what was there when the port closed: %v", err)
	}
	for range both.Packets() {
	}
	if _, err := both.Poll(limit(t), -1, nm.In); !errors.Is(err, ring.ErrGone) {
		t.Errorf("the monitored port is closed: %v", err)
	}
	must(t, both.Close())
	must(t, rx.Close())
}

// TestExtraBufs: packets travel in buffers of the extra list, and all of them
// come back.
func TestExtraBufs(t *testing.T) {
	for _, names := range [][2]string{{"vale0:a", "vale0:b"}, {"netmap:x{1", "netmap:x}1"}, {"vale0:x{1", "vale0:x}1"}, {"netmap:x{1@3", "netmap:x}1@3"}, {"vale0:a@3", "vale0:b@3"}} {
		s := &nm.Space{}
		o := nm.Options{Space: s, ExtraBufs: 7}
		a, err := nm.Open(names[0]+"@conf:slots=4", o)
		must(t, err)
		b, err := nm.Open(names[1]+"@conf:slots=4", o)
		must(t, err)
		extra := a.ExtraBufs()
		if len(extra) != 7 || len(b.ExtraBufs()) != 7 {
			t.Fatalf("%s: %d and %d extra buffers, want 7 each", names[0], len(extra), len(b.ExtraBufs()))
		}
		tx := a.TxRings()[0]
		for i := range 50 {
			// The frame is built in an extra buffer, which goes into the slot.
			k := i % len(extra)
			buf := tx.Region().Buf(extra[k])
			f := etherFrame(bcast, macA, i, 60+i)
			n := copy(buf[64:], f)
			slot := tx.Slot(tx.Head)
			slot.Buf, extra[k] = extra[k], slot.Buf
			slot.Off, slot.Len, slot.Flags = 64, uint32(n), ring.SlotBufChanged
			tx.Head++
			tx.Cur = tx.Head
			must(t, a.SyncTx())
			want(t, names[1], b, f)
			must(t, a.Flush(limit(t)))
		}
		must(t, errors.Join(a.Close(), b.Close()))
	}
	if _, err := nm.Open("pcap:x", nm.Options{ExtraBufs: 1}); err == nil {
		t.Error("extra buffers of a file")
	}
}

// TestMultiSlot sends frames of 50 to 10049 bytes, in as many slots as it
// takes, through what has slots of any kind.
func TestMultiSlot(t *testing.T) {
	for _, c := range []struct{ name, a, b string }{
		{"pipe", "netmap:x{1", "netmap:x}1"},
		{"switch", "vale0:a", "vale0:b"},
		{"switch with copy", "vale0:a@1", "vale0:b@2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &nm.Space{}
			a, b := open(t, s, c.a+"@conf:slots=16"), open(t, s, c.b+"@conf:slots=16")
			if c.a[0] == 'v' {
				open(t, s, "vale0:c@conf:slots=16") // two ports alone are a wire
			}
			rnd := rand.New(rand.NewPCG(1, 2))
			ctx := limit(t)
			for i := range 1000 {
				f := etherFrame(macB, macA, i, 50+rnd.IntN(10000))
				must(t, a.Inject(f))
				must(t, a.SyncTx())
				if _, err := b.Poll(ctx, -1, nm.In); err != nil {
					t.Fatalf("frame %d of %d bytes: %v", i, len(f), err)
				}
				p, ok := b.NextPkt()
				if !ok || string(p.Frame) != string(f) {
					t.Fatalf("frame %d of %d bytes: %v, got %d in %d slots", i, len(f), ok, len(p.Frame), p.Slots)
				}
				if room := len(a.TxRings()[0].Buf(a.TxRings()[0].Head)); p.Slots != uint32((len(f)+room-1)/room) {
					t.Fatalf("%d bytes took %d slots", len(f), p.Slots)
				}
				must(t, b.SyncRx())
				must(t, a.Flush(ctx))
			}
			// Half of a frame is never seen.
			r := a.TxRings()[0]
			for range 3 {
				r.Slot(r.Head).Len, r.Slot(r.Head).Flags = 60, ring.SlotMoreFrag
				r.Head++
			}
			r.Cur = r.Head
			must(t, a.SyncTx())
			if got, err := b.Poll(ctx, 0, nm.In); got != 0 || err != nil {
				t.Errorf("an unfinished frame is visible: %v, %v", got, err)
			}
		})
	}
}

// TestSwitchRings: each ring of a port leads to the ring of the same number,
// and a port may be bound by one.
func TestSwitchRings(t *testing.T) {
	s := &nm.Space{}
	a, b := open(t, s, "vale0:a@conf:rings=3"), open(t, s, "vale0:b@conf:rings=2")
	one := open(t, s, "vale0:one-1@conf:rings=2")
	mute := open(t, s, "vale0:mute/T")
	if len(one.RxRings()) != 1 || one.RxRings()[0].Index() != 1 || len(mute.RxRings()) != 0 {
		t.Fatal("other rings than the names select")
	}
	for i := range 3 {
		f := etherFrame(bcast, macA, i, 60)
		send(t, a, f) // Inject takes the rings in turn
		want(t, fmt.Sprint("ring ", i), one, f)
	}
	must(t, b.SyncRx())
	if n := [2]int{b.RxRings()[0].Space(), b.RxRings()[1].Space()}; n != [2]int{2, 1} {
		t.Errorf("rings of b got %v frames of rings 0, 1 and 2", n)
	}
	send(t, mute, etherFrame(macA, macC, 9, 60))
	if st := stats(t, a, 3); st.Dropped[ring.DropFilter] != 3 || st.Rx != 1 {
		t.Errorf("a port that only sends: %+v", st)
	}
}
