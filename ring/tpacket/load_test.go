package tpacket_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/ringtest"
	"github.com/netring/netring/ring/tpacket"
)

func ip(t *testing.T, ns *netlab.NS, args ...string) {
	t.Helper()
	if out, err := ns.Exec("ip", args...); err != nil {
		t.Fatal(out, err)
	}
}

// pump sends and receives as fast as it can until a ring answers with an error
// that Is not ErrLinkDown, and returns that and the number of frames filled.
func pump(tx, rx *ring.Ring) (filled uint64, errTX, errRX error) {
	f := frame(unicast, nil, 60, 0)
	ends := make(chan error, 1)
	go func() {
		for {
			for tx.Space() > 0 {
				tx.Slot(tx.Head).Len = uint32(copy(tx.Buf(tx.Head), f))
				tx.Head++
				filled++
			}
			tx.Cur = tx.Head
			if err := tx.Sync(); err != nil && !errors.Is(err, ring.ErrLinkDown) {
				ends <- err
				return
			}
			runtime.Gosched()
		}
	}()
	for errRX == nil {
		err := rx.Sync()
		if err == nil {
			err = rx.Refresh()
		}
		if err != nil && !errors.Is(err, ring.ErrLinkDown) {
			errRX = err
		}
		rx.Head = rx.Tail()
		rx.Cur = rx.Head
		runtime.Gosched()
	}
	errTX = <-ends
	return filled, errTX, errRX
}

// TestDownUpAndDeleteUnderLoad: while both directions are busy, the link goes
// down, comes back, and the interface is deleted. Frames flow again after the
// first, both rings say gone after the last, and nothing is lost track of.
func TestDownUpAndDeleteUnderLoad(t *testing.T) {
	netlab.NeedNet(t)
	versions(t, func(t *testing.T, o tpacket.Options) {
		l := netlab.Setup(t, "a", "b")
		l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
		a, b := open(t, l.NS("a"), "a0", o), open(t, l.NS("b"), "b0", o)
		tx, rx := a.TxRings()[0], b.RxRings()[0]
		type ends struct {
			filled uint64
			tx, rx error
		}
		done := make(chan ends, 1)
		go func() {
			n, errTX, errRX := pump(tx, rx)
			done <- ends{n, errTX, errRX}
		}()
		// flows waits until the receiver has n frames more.
		flows := func(when string) {
			t.Helper()
			want := rx.Stats.Packets.Load() + 500
			for deadline := time.Now().Add(patience); rx.Stats.Packets.Load() < want; runtime.Gosched() {
				if time.Now().After(deadline) {
					t.Fatalf("no traffic %s", when)
				}
			}
		}
		flows("at first")
		for range 3 {
			ip(t, l.NS("a"), "link", "set", "a0", "down")
			ip(t, l.NS("a"), "link", "set", "a0", "up")
			flows("after down and up of the sender's side")
			ip(t, l.NS("b"), "link", "set", "b0", "down")
			ip(t, l.NS("b"), "link", "set", "b0", "up")
			flows("after down and up of the receiver's side")
		}
		ip(t, l.NS("b"), "link", "del", "b0")
		var e ends
		select {
		case e = <-done:
			if !errors.Is(e.tx, ring.ErrGone) || !errors.Is(e.rx, ring.ErrGone) {
				t.Errorf("after the interface was deleted: transmit %v, receive %v", e.tx, e.rx)
			}
		case <-time.After(patience):
			t.Fatal("the rings do not notice that the interface is gone")
		}
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Error(err)
		}
		if got := tx.Stats.Packets.Load() + tx.Stats.Dropped(); got != e.filled {
			t.Errorf("%d frames sent or dropped under a cause, %d filled", got, e.filled)
		}
	})
}

// TestResetStuckRing: a queue that lets nothing out for minutes fills the ring;
// Reset makes it usable, at once, in the middle.
func TestResetStuckRing(t *testing.T) {
	netlab.NeedNet(t)
	for _, o := range []tpacket.Options{{TxSlots: 16}, {TxSlots: 16, NoVnet: true}} {
		t.Run(fmt.Sprintf("vnet=%v", !o.NoVnet), func(t *testing.T) {
			l := netlab.Setup(t, "a", "b")
			l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
			if out, err := l.NS("a").Exec("tc", "qdisc", "add", "dev", "a0", "root", "tbf", "rate", "8bit", "burst", "100", "limit", "100000"); err != nil {
				t.Skip("a stuck device needs tc and sch_tbf: ", out, err)
			}
			o.RxQueues = -1
			tx := open(t, l.NS("a"), "a0", o).TxRings()[0]
			rx := open(t, l.NS("b"), "b0", tpacket.Options{TxQueues: -1}).RxRings()[0]
			n := 0
			for ; tx.Space() > 0 && n < 100; n++ { // the queue lets one out, or two
				ringtest.Put(t, tx, frame(unicast, nil, 90, n))
				if n%3 == 0 {
					if err := tx.Sync(); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := tx.Sync(); err != nil || tx.Space() != 0 {
				t.Fatalf("ring is not stuck: %d free, %v", tx.Space(), err)
			}
			held := tx.Pending()
			if err := l.NS("a").Do(tx.Reset); err != nil {
				t.Fatal(err)
			}
			if tx.Space() != 16 || tx.Stats.Drops[ring.DropClosed].Load() != uint64(held) {
				t.Errorf("%d free, %d closed after Reset; want 16, %d", tx.Space(), tx.Stats.Drops[ring.DropClosed].Load(), held)
			}
			if out, err := l.NS("a").Exec("tc", "qdisc", "del", "dev", "a0", "root"); err != nil {
				t.Fatal(out, err)
			}
			for rx.Sync() == nil && rx.Space() > 0 { // what got out before
				rx.Head = rx.Tail()
				rx.Cur = rx.Head
			}
			for i := range 100 {
				want := frame(unicast, nil, 60+i, 1000+i)
				ringtest.Put(t, tx, want)
				if err := tx.Sync(); err != nil {
					t.Fatal(err)
				}
				if got, _, _ := ringtest.Get(t, rx); !bytes.Equal(got, want) {
					t.Fatalf("frame %d after Reset: got % x", i, got[:20])
				}
			}
			ringtest.Flush(t, tx)
			if got := tx.Stats.Packets.Load() + tx.Stats.Dropped(); got != uint64(n+100) {
				t.Errorf("%d sent or dropped, %d filled", got, n+100)
			}
		})
	}
}

// TestGranted: the report agrees with the rings, for each profile and version.
func TestGranted(t *testing.T) {
	netlab.NeedNet(t)
	l := netlab.Setup(t, "a", "b")
	for i, mtu := range []int{68, 1500, 65535} {
		name := fmt.Sprint("a", i)
		l.Pair(t, "a", name, "b", fmt.Sprint("b", i), netlab.VethOpts{MTU: mtu})
		for _, p := range []tpacket.Profile{tpacket.Throughput, tpacket.Latency, tpacket.LowMemory} {
			for _, v := range []tpacket.Version{tpacket.V2, tpacket.V3} {
				port := open(t, l.NS("a"), name, tpacket.Options{Profile: p, Version: v})
				g := port.Granted()
				if g.TxSlots != port.TxRings()[0].Len() || g.RxSlots != port.RxRings()[0].Len() || g.VnetLen != ring.VnetLen {
					t.Errorf("MTU %d: granted %+v", mtu, g)
				}
				if max := int64(26 << 20); g.Rx.Bytes()+g.Tx.Bytes() > max {
					t.Errorf("MTU %d, profile %d, V%d: %d bytes of rings", mtu, p, v, g.Rx.Bytes()+g.Tx.Bytes())
				}
				if err := port.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// TestImpossibleOffload: a super-frame that the kernel cannot segment, on a
// device that cannot either, does not hold up what follows it.
func TestImpossibleOffload(t *testing.T) {
	netlab.NeedNet(t)
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	if out, err := l.NS("a").Exec("ethtool", "-K", "a0", "tso", "off", "gso", "off", "tx", "off"); err != nil {
		t.Skip("needs ethtool: ", out, err)
	}
	tx := open(t, l.NS("a"), "a0", tpacket.Options{RxQueues: -1, TxSlots: 16}).TxRings()[0]
	rx := open(t, l.NS("b"), "b0", tpacket.Options{TxQueues: -1}).RxRings()[0]
	for i := range 20 {
		ringtest.Put(t, tx, frame(unicast, nil, 3000+i, i)) // no IP packet
		tx.SetVnet(tx.Head-1, &ring.Vnet{Flags: ring.VnetNeedCsum, GSOType: ring.VnetGSOTCPv4, HdrLen: 54, GSOSize: 1448, CsumStart: 34, CsumOffset: 16})
		good := frame(unicast, nil, 100, i)
		ringtest.Put(t, tx, good)
		ringtest.Flush(t, tx)
		if got, _, _ := ringtest.Get(t, rx); !bytes.Equal(got, good) {
			t.Fatalf("behind impossible frame %d: got % x", i, got[:20])
		}
	}
	if p, d := tx.Stats.Packets.Load(), tx.Stats.Dropped(); p+d != 40 {
		t.Errorf("%d sent and %d dropped of 40", p, d)
	}
	c, err := l.NS("a").Counters("a0")
	if err != nil || c.TxPackets != tx.Stats.Packets.Load() {
		t.Errorf("the interface counts %d sent, %v; we %d", c.TxPackets, err, tx.Stats.Packets.Load())
	}
}
