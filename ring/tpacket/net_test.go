package tpacket_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/ringtest"
	"github.com/netring/netring/ring/tpacket"
)

// patience bounds what a test waits for. Only a test that fails takes so long:
// it is meant for the slowest machine.
const patience = 30 * time.Second

func TestMain(m *testing.M) { netlab.Main(m) }

func open(t testing.TB, ns *netlab.NS, name string, o tpacket.Options) *tpacket.Port {
	t.Helper()
	return netlab.Open(t, ns, func() (*tpacket.Port, error) { return tpacket.Open(name, o) })
}

// frame is a test frame: addresses, tags, EtherType, then a pattern.
func frame(dst string, tags []uint32, size, seq int) []byte {
	b := append([]byte(dst), "\x02\x00\x00\x00\x00\x01"...)
	for _, t := range tags {
		b = binary.BigEndian.AppendUint32(b, t)
	}
	b = append(b, 0x88, 0xb5)
	b = binary.BigEndian.AppendUint32(b, uint32(seq))
	for i := len(b); i < size; i++ {
		b = append(b, byte(i*7)^byte(seq))
	}
	return b
}

const (
	unicast   = "\x02\x00\x00\x00\x00\x02"
	stranger  = "\x02\x00\x00\x00\x00\x99"
	multicast = "\x01\x00\x5e\x01\x02\x03"
	broadcast = "\xff\xff\xff\xff\xff\xff"
)

var destinations = []string{unicast, stranger, multicast, broadcast}

// versions runs f for each kind of receive ring and header.
func versions(t *testing.T, f func(t *testing.T, o tpacket.Options)) {
	for _, v := range []tpacket.Version{tpacket.V2, tpacket.V3} {
		for _, vnet := range []int{0, ring.VnetLen, ring.VnetLenMrg} {
			t.Run(fmt.Sprintf("V%d/vnet%d", v, vnet), func(t *testing.T) {
				f(t, tpacket.Options{Version: v, VnetLen: vnet, NoVnet: vnet == 0, Profile: tpacket.LowMemory})
			})
		}
	}
}

func TestDelivery(t *testing.T) {
	netlab.NeedNet(t)
	for _, mtu := range []int{1500, 9000} {
		t.Run(fmt.Sprint("mtu", mtu), func(t *testing.T) {
			versions(t, func(t *testing.T, o tpacket.Options) { delivery(t, o, mtu) })
		})
	}
}

func delivery(t *testing.T, o tpacket.Options, mtu int) {
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{MTU: mtu})
	a, b := open(t, l.NS("a"), "a0", o), open(t, l.NS("b"), "b0", o)
	sizes := []int{60, 61, 64, 127, 256, 257, 1000, 1499, 1514}
	if mtu > 1500 {
		sizes = []int{60, 2048, mtu + 14}
	}
	tags := [][]uint32{nil, {0x81000064}, {0x88a80065}, {0x88a80066, 0x81000067}, {0x81000000}, {0x8100a00a}}
	seq := 0
	for _, way := range [][2]*tpacket.Port{{a, b}, {b, a}} {
		tx, rx := way[0].TxRings()[0], way[1].RxRings()[0]
		for _, size := range sizes {
			for _, tag := range tags {
				n := size + 4*len(tag)
				if len(tag) > 0 {
					n = min(n, mtu+14+4) // a second tag is within the MTU
					if o.NoVnet && tag[0]>>16 != 0x8100 {
						n = min(n, mtu+14) // the kernel allows room for this tag only
					}
				}
				deliver(t, tx, rx, tag, n, seq)
				seq += len(destinations)
			}
		}
		if got := tx.Stats.Packets.Load(); got != uint64(len(sizes)*len(tags)*len(destinations)) {
			t.Errorf("%d frames completed", got)
		}
	}
	// Nothing more: no duplicate, and no reflection of what a port sent.
	for _, p := range []*tpacket.Port{a, b} {
		rx := p.RxRings()[0]
		if err := rx.Sync(); err != nil || rx.Space() != 0 {
			t.Errorf("%s: %d frames too many, %v", p.Name(), rx.Space(), err)
		}
	}
}

// deliver sends a frame to each kind of destination and compares what arrives.
func deliver(t *testing.T, tx, rx *ring.Ring, tag []uint32, n, seq int) {
	t.Helper()
	for i, dst := range destinations {
		ringtest.Put(t, tx, frame(dst, tag, n, seq+i))
	}
	ringtest.Flush(t, tx)
	for i, dst := range destinations {
		want := frame(dst, tag, n, seq+i)
		got, s, m := ringtest.Get(t, rx)
		if !bytes.Equal(got, want) {
			t.Fatalf("tags %x: got %d bytes % x, want %d % x", tag, len(got), got[:24], len(want), want[:24])
		}
		if s.Flags&ring.SlotVnet != 0 {
			t.Fatalf("size %d tags %x: complete frame marked unfinished", n, tag)
		}
		if dst == broadcast && s.Flags&ring.SlotBroadcast == 0 || dst == multicast && s.Flags&ring.SlotMulticast == 0 {
			t.Errorf("destination % x: flags %b", dst, s.Flags)
		}
		if age := time.Since(time.Unix(0, m.Time)); m.Time == 0 || age < -time.Minute || age > time.Minute {
			t.Fatalf("timestamp %d is %v old", m.Time, age)
		}
		if len(tag) > 0 && (!m.HasVLAN || uint32(m.TPID)<<16|uint32(m.VLAN) != tag[0]) && s.Flags&ring.SlotVLAN != 0 {
			t.Errorf("tag %x: meta %+v", tag[0], m)
		}
	}
}

// TestStream sends numbered frames through small rings in both directions at
// once: order, no loss within a window, wrap.
func TestStream(t *testing.T) {
	netlab.NeedNet(t)
	versions(t, func(t *testing.T, o tpacket.Options) {
		o.RxSlots, o.TxSlots = 64, 16
		l := netlab.Setup(t, "a", "b")
		l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
		ports := [2]*tpacket.Port{open(t, l.NS("a"), "a0", o), open(t, l.NS("b"), "b0", o)}
		const n = 3000
		var received [2]atomic.Uint32
		done := make(chan error, 4)
		for dir := range 2 {
			tx, rx := ports[dir].TxRings()[0], ports[1-dir].RxRings()[0]
			tx.Seed(1<<32 - 128)
			rx.Seed(1<<32 - 128)
			go func() {
				for seq := uint32(0); seq < n || tx.Pending() > 0; {
					for ; tx.Space() > 0 && seq < min(n, received[dir].Load()+32); seq++ {
						b := frame(unicast, nil, 60+int(seq)%1400, int(seq))
						tx.Slot(tx.Head).Len = uint32(copy(tx.Buf(tx.Head), b))
						tx.Head++
						tx.Cur = tx.Head
					}
					if err := tx.Sync(); err != nil {
						done <- err
						return
					}
					runtime.Gosched()
				}
				done <- nil
			}()
			go func() {
				deadline := time.Now().Add(patience)
				for seq := uint32(0); seq < n; {
					if err := rx.Sync(); err != nil {
						done <- err
						return
					}
					for ; rx.Space() > 0; seq++ {
						if want := frame(unicast, nil, 60+int(seq)%1400, int(seq)); !bytes.Equal(rx.Frame(rx.Head), want) {
							done <- fmt.Errorf("frame %d: got % x", seq, rx.Frame(rx.Head)[:20])
							return
						}
						rx.Head++
						rx.Cur = rx.Head
					}
					received[dir].Store(seq)
					if time.Now().After(deadline) {
						done <- fmt.Errorf("stuck at frame %d", seq)
						return
					}
					runtime.Gosched()
				}
				done <- nil
			}()
		}
		for range 4 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestRefused: frames that the kernel refuses are counted and passed over, the
// others arrive, and the counts agree with the interface's.
func TestRefused(t *testing.T) {
	netlab.NeedNet(t)
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	tx := open(t, l.NS("a"), "a0", tpacket.Options{RxQueues: -1, TxSlots: 16}).TxRings()[0]
	rx := open(t, l.NS("b"), "b0", tpacket.Options{TxQueues: -1}).RxRings()[0]
	const n = 100
	bad := 0
	for i := range n {
		ringtest.Put(t, tx, frame(unicast, nil, 60+i, i))
		if i%7 == 3 {
			bad++ // a header that contradicts the frame
			v := ring.Vnet{Flags: ring.VnetNeedCsum, HdrLen: 2000, CsumStart: 34, CsumOffset: 16}
			if i%2 == 0 {
				v.HdrLen, v.CsumStart = 0, 1000
			}
			tx.SetVnet(tx.Head-1, &v)
		}
		if i%5 == 0 {
			if err := tx.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	ringtest.Flush(t, tx)
	for i := range n {
		if i%7 == 3 {
			continue
		}
		if got, _, _ := ringtest.Get(t, rx); !bytes.Equal(got, frame(unicast, nil, 60+i, i)) {
			t.Fatalf("frame %d: got % x", i, got[:20])
		}
	}
	sent, refused := tx.Stats.Packets.Load(), tx.Stats.Drops[ring.DropRefused].Load()
	if sent != uint64(n-bad) || refused != uint64(bad) {
		t.Errorf("sent %d, refused %d; want %d and %d", sent, refused, n-bad, bad)
	}
	c, err := l.NS("a").Counters("a0")
	if err != nil || c.TxPackets != sent {
		t.Errorf("the interface counts %d packets sent, %v; we %d", c.TxPackets, err, sent)
	}
}

func TestFanout(t *testing.T) {
	netlab.NeedNet(t)
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	tx := open(t, l.NS("a"), "a0", tpacket.Options{RxQueues: -1}).TxRings()[0]
	for _, f := range []tpacket.Fanout{tpacket.FanoutHash, tpacket.FanoutLB, tpacket.FanoutCPU, tpacket.FanoutQM, tpacket.FanoutRollover} {
		rx := open(t, l.NS("b"), "b0", tpacket.Options{RxQueues: 3, TxQueues: -1, Fanout: f, Rollover: f != tpacket.FanoutRollover, Defrag: true, Profile: tpacket.LowMemory}).RxRings()
		for i := range 90 {
			ringtest.Put(t, tx, frame(unicast, nil, 60, i))
		}
		ringtest.Flush(t, tx)
		seen, rings := map[uint32]int{}, 0
		for deadline := time.Now().Add(patience); len(seen) < 90 && time.Now().Before(deadline); {
			for _, r := range rx {
				if err := r.Sync(); err != nil {
					t.Fatal(err)
				}
				for ; r.Space() > 0; r.Head++ {
					seen[binary.BigEndian.Uint32(r.Frame(r.Head)[14:])]++
				}
				r.Cur = r.Head
			}
		}
		for _, r := range rx {
			if r.Stats.Packets.Load() > 0 {
				rings++
			}
		}
		if len(seen) != 90 {
			t.Errorf("mode %d: %d of 90 frames", f, len(seen))
		}
		for seq, c := range seen {
			if c != 1 {
				t.Errorf("mode %d: frame %d %d times", f, seq, c)
			}
		}
		if f == tpacket.FanoutLB && rings != 3 {
			t.Errorf("round robin used %d of 3 rings", rings)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	netlab.NeedNet(t)
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	tx := open(t, l.NS("a"), "a0", tpacket.Options{}).TxRings()[0]
	rx := open(t, l.NS("b"), "b0", tpacket.Options{}).RxRings()[0]
	b := frame(unicast, nil, 60, 0)
	if n := testing.AllocsPerRun(100, func() {
		for range 32 {
			s := tx.Slot(tx.Head)
			s.Len = uint32(copy(tx.Buf(tx.Head), b))
			tx.Head++
			tx.Cur = tx.Head
		}
		for tx.Pending() > 0 {
			if tx.Sync() != nil {
				break
			}
		}
		rx.Sync()
		rx.Head = rx.Tail()
		rx.Cur = rx.Head
	}); n != 0 {
		t.Errorf("%v allocations for 32 frames", n)
	}
}
