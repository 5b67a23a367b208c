package tpacket_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/tpacket"
)

func TestMain(m *testing.M) { netlab.Main(m) }

func open(t testing.TB, ns *netlab.NS, name string, o tpacket.Options) *tpacket.Port {
	t.Helper()
	var p *tpacket.Port
	err := ns.Do(func() (err error) {
		p, err = tpacket.Open(name, o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// await syncs r until it has a slot for the program; it gives up after two
// seconds without one.
func await(t testing.TB, r *ring.Ring) bool {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Second); ; {
		if err := r.Sync(); err != nil {
			t.Fatal(err)
		}
		if r.Space() > 0 {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		ev := int16(unix.POLLIN)
		if r.Dir() == ring.TX {
			ev = unix.POLLOUT
		}
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(r.FD()), Events: ev}}, 20); err != nil && !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
	}
}

// put writes frame b into r's next free slot.
func put(t testing.TB, r *ring.Ring, b []byte) {
	t.Helper()
	if r.Space() == 0 && !await(t, r) {
		t.Fatal("transmit ring full for two seconds")
	}
	s := r.Slot(r.Head)
	s.Len, s.Flags = uint32(copy(r.Buf(r.Head), b)), 0
	if int(s.Len) != len(b) {
		t.Fatalf("frame of %d bytes does not fit a buffer", len(b))
	}
	r.Head++
	r.Cur = r.Head
}

func flush(t testing.TB, r *ring.Ring) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Second); r.Pending() > 0; {
		if err := r.Sync(); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d frames not sent", r.Pending())
		}
	}
}

// get returns the next received frame, a copy.
func get(t testing.TB, r *ring.Ring) ([]byte, ring.Slot, ring.Meta) {
	t.Helper()
	if r.Space() == 0 && !await(t, r) {
		t.Fatal("nothing received for two seconds")
	}
	var m ring.Meta
	r.Meta(r.Head, &m)
	b, s := bytes.Clone(r.Frame(r.Head)), *r.Slot(r.Head)
	r.Head++
	r.Cur = r.Head
	return b, s, m
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
	sizes := []int{60, 61, 64, 127, 256, 257, 1000, 1499, 1514, mtu + 14}
	tags := [][]uint32{nil, {0x81000064}, {0x88a80065}, {0x88a80066, 0x81000067}, {0x81000000}, {0x8100a00a}}
	seq := 0
	for _, way := range [][2]*tpacket.Port{{a, b}, {b, a}} {
		tx, rx := way[0].TxRings()[0], way[1].RxRings()[0]
		for _, size := range sizes {
			for _, tag := range tags {
				for _, dst := range []string{unicast, stranger, multicast, broadcast} {
					seq++
					n := size + 4*len(tag)
					if len(tag) > 0 {
						n = min(n, mtu+14+4) // a second tag is within the MTU
						if o.NoVnet && tag[0]>>16 != 0x8100 {
							n = min(n, mtu+14) // the kernel allows room for this tag only
						}
					}
					want := frame(dst, tag, n, seq)
					put(t, tx, want)
					if err := tx.Sync(); err != nil {
						t.Fatal(err)
					}
					got, s, m := get(t, rx)
					if !bytes.Equal(got, want) {
						t.Fatalf("size %d tags %x: got %d bytes % x, want %d % x", size, tag, len(got), got[:24], len(want), want[:24])
					}
					if s.Flags&ring.SlotVnet != 0 {
						t.Fatalf("size %d tags %x: complete frame marked unfinished", size, tag)
					}
					if dst == broadcast && s.Flags&ring.SlotBroadcast == 0 || dst == multicast && s.Flags&ring.SlotMulticast == 0 {
						t.Errorf("destination % x: flags %b", dst, s.Flags)
					}
					if age := time.Since(time.Unix(0, m.Time)); m.Time == 0 || age < 0 || age > time.Minute {
						t.Fatalf("timestamp %d is %v old", m.Time, age)
					}
					if len(tag) > 0 && (!m.HasVLAN || uint32(m.TPID)<<16|uint32(m.VLAN) != tag[0]) && s.Flags&ring.SlotVLAN != 0 {
						t.Errorf("tag %x: meta %+v", tag[0], m)
					}
				}
			}
		}
		flush(t, tx)
		if got := tx.Stats.Packets.Load(); got != uint64(len(sizes)*len(tags)*4) {
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
				deadline := time.Now().Add(20 * time.Second)
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

func TestSuperFrames(t *testing.T) {
	netlab.NeedNet(t)
	for _, o := range []tpacket.Options{
		{Version: tpacket.V2}, {Version: tpacket.V3}, {Version: tpacket.V2, VnetLen: 12}, {Version: tpacket.V3, VnetLen: 12},
	} {
		t.Run(fmt.Sprintf("V%d/vnet%d", o.Version, o.VnetLen), func(t *testing.T) {
			l := netlab.Setup(t, "a", "b")
			l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
			tx, rx := open(t, l.NS("a"), "a0", o).TxRings()[0], open(t, l.NS("b"), "b0", o).RxRings()[0]
			for i := range 2 * 40 { // more than there are large buffers
				size := 60000 - i
				if i%3 == 0 {
					size = 1600 + i // fits a frame of a V2 ring
				}
				want := superFrame(size)
				if tx.Space() == 0 {
					await(t, tx)
				}
				s := tx.Slot(tx.Head)
				s.Len = uint32(copy(tx.Buf(tx.Head), want))
				if !tx.SetVnet(tx.Head, &ring.Vnet{Flags: ring.VnetNeedCsum, GSOType: ring.VnetGSOTCPv4, HdrLen: 54, GSOSize: 1448, CsumStart: 34, CsumOffset: 16}) {
					t.Fatal("no room for the header")
				}
				tx.Head++
				tx.Cur = tx.Head
				if err := tx.Sync(); err != nil {
					t.Fatal(err)
				}
				if rx.Space() == 0 && !await(t, rx) {
					t.Fatalf("super-frame %d did not arrive", i)
				}
				var h ring.Vnet
				got := rx.Frame(rx.Head)
				if !bytes.Equal(got, want) || !rx.Vnet(rx.Head, &h) {
					t.Fatalf("got %d bytes, header %+v, flags %b", len(got), h, rx.Slot(rx.Head).Flags)
				}
				if h.GSOType != ring.VnetGSOTCPv4 || h.GSOSize != 1448 || h.CsumStart != 34 || h.CsumOffset != 16 {
					t.Fatalf("header %+v", h)
				}
				rx.Head++
				rx.Cur = rx.Head
			}
			flush(t, tx)
		})
	}
}

// superFrame is a TCP segment of size bytes in all with a partial checksum.
func superFrame(size int) []byte {
	b := make([]byte, size)
	copy(b, unicast+"\x02\x00\x00\x00\x00\x01\x08\x00")
	ip := b[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, 6
	binary.BigEndian.PutUint16(ip[2:], uint16(size-14))
	copy(ip[12:], "\x0a\x00\x00\x01\x0a\x00\x00\x02")
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum>>16+sum))
	ip[32], ip[33] = 0x50, 0x10
	for i := 40; i < len(ip); i++ {
		ip[i] = byte(i)
	}
	return b
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
		put(t, tx, frame(unicast, nil, 60+i, i))
		if i%7 == 3 {
			bad++ // a header that contradicts the frame
			tx.SetVnet(tx.Head-1, &ring.Vnet{Flags: ring.VnetNeedCsum, HdrLen: 2000, CsumStart: 34, CsumOffset: 16})
		}
		if i%5 == 0 {
			if err := tx.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	flush(t, tx)
	for i := range n {
		if i%7 == 3 {
			continue
		}
		if got, _, _ := get(t, rx); !bytes.Equal(got, frame(unicast, nil, 60+i, i)) {
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
			put(t, tx, frame(unicast, nil, 60, i))
		}
		flush(t, tx)
		seen, rings := map[uint32]int{}, 0
		for deadline := time.Now().Add(2 * time.Second); len(seen) < 90 && time.Now().Before(deadline); {
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

func TestOpenErrors(t *testing.T) {
	netlab.NeedNet(t)
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	in := func(name string, o tpacket.Options) error {
		return l.NS("a").Do(func() error {
			p, err := tpacket.Open(name, o)
			if err == nil {
				p.Close()
			}
			return err
		})
	}
	if err := in("nosuch", tpacket.Options{}); !errors.Is(err, ring.ErrNoInterface) || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("unknown interface: %v", err)
	}
	for _, o := range []tpacket.Options{{Version: 1}, {RxSlots: 3}, {VnetLen: 11}, {BlockSize: 4096, Version: tpacket.V3}, {FlowHash: true}, {RxQueues: -1, TxQueues: -1}, {Fanout: tpacket.FanoutRollover, Rollover: true}} {
		if in("a0", o) == nil {
			t.Errorf("%+v accepted", o)
		}
	}
}

func TestLinkDownAndGone(t *testing.T) {
	netlab.NeedNet(t)
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	p, peer := open(t, l.NS("a"), "a0", tpacket.Options{}), open(t, l.NS("b"), "b0", tpacket.Options{})
	tx, rx, far := p.TxRings()[0], p.RxRings()[0], peer.RxRings()[0]
	run := func(ns string, args ...string) {
		t.Helper()
		if out, err := l.NS(ns).Exec("ip", args...); err != nil {
			t.Fatal(out, err)
		}
	}
	run("a", "link", "set", "a0", "down")
	put(t, tx, frame(unicast, nil, 60, 1))
	if err := tx.Sync(); !errors.Is(err, ring.ErrLinkDown) {
		t.Errorf("send while down: %v", err)
	}
	if err := rx.Refresh(); !errors.Is(err, ring.ErrLinkDown) {
		t.Errorf("receive ring while down: %v", err)
	}
	if tx.Pending() != 1 {
		t.Errorf("%d frames pending, want the 1 that was not lost", tx.Pending())
	}
	run("a", "link", "set", "a0", "up")
	deadline := time.Now().Add(2 * time.Second)
	for rx.Refresh() != nil && time.Now().Before(deadline) {
	}
	flush(t, tx)
	if got, _, _ := get(t, far); !bytes.Equal(got, frame(unicast, nil, 60, 1)) {
		t.Errorf("after up: got % x", got)
	}
	run("b", "link", "del", "b0")
	if err := rx.Refresh(); !errors.Is(err, ring.ErrGone) {
		t.Errorf("receive ring of a deleted interface: %v", err)
	}
	put(t, tx, frame(unicast, nil, 60, 2))
	if err := tx.Sync(); !errors.Is(err, ring.ErrGone) {
		t.Errorf("send on a deleted interface: %v", err)
	}
	var err error
	for range 1 << 15 {
		if err = rx.Sync(); err != nil {
			break
		}
	}
	if !errors.Is(err, ring.ErrGone) {
		t.Errorf("a receive ring that can bring nothing any more never says so: %v", err)
	}
}

func TestCloseDuringTraffic(t *testing.T) {
	netlab.NeedNet(t)
	versions(t, func(t *testing.T, o tpacket.Options) {
		l := netlab.Setup(t, "a", "b")
		l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
		for range 5 {
			a, b := open(t, l.NS("a"), "a0", o), open(t, l.NS("b"), "b0", o)
			done := make(chan error, 2)
			var moved atomic.Int64
			go func() {
				tx := a.TxRings()[0]
				for {
					if err := tx.Enter(); err != nil {
						done <- err
						return
					}
					for tx.Space() > 0 {
						tx.Slot(tx.Head).Len = uint32(copy(tx.Buf(tx.Head), frame(unicast, nil, 60, 0)))
						tx.Head++
					}
					tx.Cur = tx.Head
					err := tx.Sync()
					tx.Exit()
					if err != nil && !errors.Is(err, ring.ErrClosed) {
						done <- err
						return
					}
				}
			}()
			go func() {
				rx := b.RxRings()[0]
				for {
					if err := rx.Enter(); err != nil {
						done <- err
						return
					}
					err := rx.Sync()
					for ; err == nil && rx.Space() > 0; rx.Head++ {
						moved.Add(int64(rx.Frame(rx.Head)[20])>>8 + 1)
					}
					rx.Cur = rx.Head
					rx.Exit()
					if err != nil && !errors.Is(err, ring.ErrClosed) {
						done <- err
						return
					}
				}
			}()
			for deadline := time.Now().Add(2 * time.Second); moved.Load() < 500 && time.Now().Before(deadline); {
				runtime.Gosched()
			}
			if err := errors.Join(a.Close(), b.Close()); err != nil {
				t.Error(err)
			}
			for range 2 {
				if err := <-done; !errors.Is(err, ring.ErrClosed) {
					t.Error(err)
				}
			}
			if moved.Load() == 0 {
				t.Error("nothing moved before Close")
			}
		}
	})
}

func TestCloseWakesWaiter(t *testing.T) {
	netlab.NeedNet(t)
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	rx := open(t, l.NS("a"), "a0", tpacket.Options{TxQueues: -1})
	r := rx.RxRings()[0]
	if err := r.Enter(); err != nil {
		t.Fatal(err)
	}
	woke := make(chan int16)
	go func() {
		p := []unix.PollFd{{Fd: int32(r.FD()), Events: unix.POLLIN}, {Fd: int32(r.WakeFD()), Events: unix.POLLIN}}
		for {
			if _, err := unix.Poll(p, -1); !errors.Is(err, unix.EINTR) {
				break
			}
		}
		r.Exit()
		woke <- p[1].Revents
	}()
	if err := rx.Close(); err != nil {
		t.Fatal(err)
	}
	if ev := <-woke; ev&unix.POLLIN == 0 {
		t.Errorf("woken by %x", ev)
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

func TestPermission(t *testing.T) {
	if os.Getuid() == 0 && netlab.Root() {
		t.Skip("root may")
	}
	if netlab.Available() == nil {
		t.Skip("root of a user namespace may")
	}
	if _, err := tpacket.Open("lo", tpacket.Options{}); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "CAP_NET_RAW") {
		t.Errorf("open without privilege: %v", err)
	}
}

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
