package tpacket_test

import (
	"bytes"
	"encoding/binary"
	"errors"
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

// superFrame is a TCP segment of size bytes in all, behind tags, with a partial
// checksum, and the header that says so.
func superFrame(tags []uint32, size int) ([]byte, ring.Vnet) {
	b := []byte(unicast + "\x02\x00\x00\x00\x00\x01")
	for _, t := range tags {
		b = binary.BigEndian.AppendUint32(b, t)
	}
	b = append(b, 8, 0)
	l3 := len(b)
	b = append(b, make([]byte, size-l3)...)
	ip := b[l3:]
	ip[0], ip[8], ip[9] = 0x45, 64, 6
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
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
	return b, ring.Vnet{Flags: ring.VnetNeedCsum, GSOType: ring.VnetGSOTCPv4, HdrLen: uint16(l3 + 40), GSOSize: 1448,
		CsumStart: uint16(l3 + 20), CsumOffset: 16}
}

// putSuper is [ringtest.Put] of a frame with a header.
func putSuper(t testing.TB, tx *ring.Ring, frame []byte, v ring.Vnet) {
	t.Helper()
	ringtest.Put(t, tx, frame)
	if !tx.SetVnet(tx.Head-1, &v) {
		t.Fatal("no room for the header")
	}
}

// wantSuper compares the next received frame, but for the length of its headers,
// which is the kernel's guess.
func wantSuper(t testing.TB, rx *ring.Ring, want []byte, v ring.Vnet) {
	t.Helper()
	if rx.Space() == 0 {
		ringtest.Await(t, rx)
	}
	var h ring.Vnet
	if got := rx.Frame(rx.Head); !bytes.Equal(got, want) || !rx.Vnet(rx.Head, &h) {
		t.Fatalf("got %d bytes, want %d; header %+v, flags %b", len(got), len(want), h, rx.Slot(rx.Head).Flags)
	}
	if h.HdrLen = v.HdrLen; h != v {
		t.Fatalf("header %+v, want %+v", h, v)
	}
	rx.Head++
	rx.Cur = rx.Head
}

// TestSuperFrames: super-frames arrive as they were sent, with headers that count
// from the first byte of the frame, tags included: the kernel takes the outer
// tag out and counts without it.
func TestSuperFrames(t *testing.T) {
	netlab.NeedNet(t)
	for _, o := range []tpacket.Options{
		{Version: tpacket.V2}, {Version: tpacket.V3}, {Version: tpacket.V2, VnetLen: 12}, {Version: tpacket.V3, VnetLen: 12},
	} {
		t.Run(fmt.Sprintf("V%d/vnet%d", o.Version, o.VnetLen), func(t *testing.T) {
			l := netlab.Setup(t, "a", "b")
			l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
			tx, rx := open(t, l.NS("a"), "a0", o).TxRings()[0], open(t, l.NS("b"), "b0", o).RxRings()[0]
			tags := [][]uint32{nil, {0x81000064}, {0x88a80066, 0x81000067}, {0x81000000}}
			for i := range 2 * 40 { // more than there are large buffers
				size := 60000 - i
				if i%3 == 0 {
					size = 1600 + i // fits a frame of a V2 ring
				}
				want, v := superFrame(tags[i/3%len(tags)], size)
				putSuper(t, tx, want, v)
				ringtest.Flush(t, tx)
				wantSuper(t, rx, want, v)
			}
		})
	}
}

// between is a port on either side of a forwarder, and the forwarder's two.
func between(t *testing.T, o tpacket.Options) (from, in, out, to *tpacket.Port) {
	t.Helper()
	l := netlab.Setup(t, "a", "b", "c")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	l.Pair(t, "b", "b1", "c", "c0", netlab.VethOpts{})
	return open(t, l.NS("a"), "a0", o), open(t, l.NS("b"), "b0", o), open(t, l.NS("b"), "b1", o), open(t, l.NS("c"), "c0", o)
}

// TestForwardSuper: what is too large for the receive ring's frames crosses a
// forwarder without a copy between its rings, in order with small frames, as
// often as one likes.
func TestForwardSuper(t *testing.T) {
	netlab.NeedNet(t)
	from, in, out, to := between(t, tpacket.Options{Profile: tpacket.LowMemory})
	src, rx, tx, dst := from.TxRings()[0], in.RxRings()[0], out.TxRings()[0], to.RxRings()[0]
	exchanged := 0
	for round := range 40 {
		type sent struct {
			frame []byte
			v     ring.Vnet
		}
		var all []sent
		for i := range 5 {
			f, v := superFrame(nil, 2500+round*700+i*6000)
			if i == 3 {
				f, v = superFrame([]uint32{0x81000005}, 1700) // fits the ring
			}
			all = append(all, sent{f, v})
			putSuper(t, src, f, v)
		}
		ringtest.Flush(t, src)
		for i := 0; i < len(all); {
			if rx.Space() == 0 {
				ringtest.Await(t, rx)
			}
			first := tx.Head
			i += ring.Move(tx, rx, len(all)-i)
			for k := first; k != tx.Head; k++ {
				if tx.Slot(k).Buf >= uint32(tx.Region().Bufs()) {
					exchanged++
				}
			}
			if err := rx.Sync(); err != nil { // the frames must not live in it any more
				t.Fatal(err)
			}
		}
		ringtest.Flush(t, tx)
		for _, s := range all {
			wantSuper(t, dst, s.frame, s.v)
		}
	}
	if p, d := tx.Stats.Packets.Load(), tx.Stats.Dropped(); p != 200 || d != 0 || exchanged != 160 {
		t.Errorf("%d frames sent, %d dropped, %d without a copy; want 200, 0, 160", p, d, exchanged)
	}
}

// inside calls f again and again, inside of both rings, until one is closed or f
// fails.
func inside(a, b *ring.Ring, f func() error) error {
	for {
		if err := a.Enter(); err != nil {
			return err
		}
		err := b.Enter()
		if err == nil {
			err = f()
			b.Exit()
		}
		a.Exit()
		if err != nil {
			return err
		}
		runtime.Gosched()
	}
}

// TestCloseWhileForwarding: both ports of a forwarder close under super-frames,
// whose buffers are the other port's by then.
func TestCloseWhileForwarding(t *testing.T) {
	netlab.NeedNet(t)
	for _, first := range []string{"in", "out"} {
		t.Run(first, func(t *testing.T) {
			from, in, out, to := between(t, tpacket.Options{Profile: tpacket.LowMemory})
			src, rx, tx, dst := from.TxRings()[0], in.RxRings()[0], out.TxRings()[0], to.RxRings()[0]
			big, v := superFrame(nil, 30000)
			var moved atomic.Int64
			done := make(chan error, 2)
			go func() {
				done <- inside(src, dst, func() error {
					if src.Space() > 0 {
						src.Slot(src.Head).Len = uint32(copy(src.Buf(src.Head), big))
						src.SetVnet(src.Head, &v)
						src.Head++
						src.Cur = src.Head
					}
					dst.Head = dst.Tail()
					dst.Cur = dst.Head
					return errors.Join(src.Sync(), dst.Sync())
				})
			}()
			go func() {
				done <- inside(rx, tx, func() error {
					if err := rx.Sync(); err != nil {
						return err
					}
					moved.Add(int64(ring.Move(tx, rx, 8)))
					return tx.Sync()
				})
			}()
			for deadline := time.Now().Add(patience); moved.Load() < 200 && time.Now().Before(deadline); {
				runtime.Gosched()
			}
			if moved.Load() < 200 {
				t.Errorf("%d frames moved in %v", moved.Load(), patience)
			}
			ports := []*tpacket.Port{in, out, from, to}
			if first == "out" {
				ports = []*tpacket.Port{out, in, to, from}
			}
			for _, p := range ports {
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			}
			for range 2 {
				if err := <-done; !errors.Is(err, ring.ErrClosed) {
					t.Error(err)
				}
			}
		})
	}
}
