package tpacket

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/ring"
)

// kernel is either of the fake receive rings.
type kernel interface {
	deliver(p packet) bool
	flush() // makes what was delivered visible
}

func (f *fakeRx2) flush() {}
func (f *fakeRx3) flush() { f.close() }

// eachKernel runs fn on a fresh ring of each kind, of n slots.
func eachKernel(t *testing.T, n int, fn func(t *testing.T, k kernel, r *ring.Ring)) {
	for _, vnet := range []int{0, 10, 12} {
		t.Run(name(2, vnet), func(t *testing.T) {
			f := newFakeRx2(t, n, 2048, vnet)
			fn(t, f, f.ring)
		})
		t.Run(name(3, vnet), func(t *testing.T) {
			f := newFakeRx3(t, n, 8192, 4, vnet)
			fn(t, f, f.ring)
		})
	}
}

// TestReceiveModel compares what arrives with what was stored, over many
// rounds of the ring and the wrap of its cursors, with the program passing
// slots and the kernel closing blocks at random times.
func TestReceiveModel(t *testing.T) {
	for _, n := range []int{2, 8, 64} {
		eachKernel(t, n, func(t *testing.T, k kernel, r *ring.Ring) {
			r.Seed(-uint32(4 * n))
			rng := rand.New(rand.NewPCG(1, uint64(n)))
			var want [][]byte
			var stored, got int
			var total uint64
			for range 5000 {
				switch rng.IntN(4) {
				case 0:
					for range rng.IntN(n + 1) {
						p := payload(60+rng.IntN(1400), stored)
						if !k.deliver(packet{data: p}) {
							break
						}
						want = append(want, p)
						total += uint64(len(p))
						stored++
					}
				case 1:
					k.flush()
				case 2:
					mustSync(t, r)
				case 3:
					for range rng.IntN(r.Space() + 1) {
						if f := r.Frame(r.Head); !bytes.Equal(f, want[0]) {
							t.Fatalf("frame %d is not what was stored", got)
						}
						want = want[1:]
						r.Head++
						got++
					}
				}
			}
			for rounds := 0; len(want) > 0; rounds++ {
				k.flush()
				mustSync(t, r)
				for ; r.Space() > 0; r.Head++ {
					if !bytes.Equal(r.Frame(r.Head), want[0]) {
						t.Fatalf("frame %d is not what was stored", got)
					}
					want = want[1:]
					got++
				}
				if rounds > 4*stored {
					t.Fatalf("%d stored frames have not arrived", len(want))
				}
			}
			if p, b := r.Stats.Packets.Load(), r.Stats.Bytes.Load(); p != uint64(stored) || b != total || r.Stats.Dropped() != 0 {
				t.Errorf("counted %d packets, %d bytes, %d drops; stored %d, %d", p, b, r.Stats.Dropped(), stored, total)
			}
			if stored < 10*n {
				t.Errorf("only %d frames went through", stored)
			}
		})
	}
}

func TestReceiveFull(t *testing.T) {
	// With nothing passed, the kernel finds its way blocked and overwrites
	// nothing; when the program passes slots, it goes on.
	eachKernel(t, 8, func(t *testing.T, k kernel, r *ring.Ring) {
		n := 0
		for k.deliver(packet{data: payload(1000, n)}) {
			n++
		}
		k.flush()
		if n < 8 {
			t.Fatalf("ring full with %d frames", n)
		}
		mustSync(t, r)
		if r.Space() != 8 {
			t.Fatalf("%d slots, want all 8", r.Space())
		}
		for i := range 8 {
			if !bytes.Equal(r.Frame(r.Head+uint32(i)), payload(1000, i)) {
				t.Fatalf("frame %d was overwritten", i)
			}
		}
		r.Head += 8
		mustSync(t, r)
		if rest := min(n-8, 8); r.Space() != rest {
			t.Fatalf("%d slots after the first 8, want %d", r.Space(), rest)
		}
		for n > 8 && r.Space() > 0 {
			r.Head += uint32(r.Space())
			mustSync(t, r)
		}
		if !k.deliver(packet{data: payload(60, n)}) {
			t.Fatal("the ring is still full")
		}
	})
}

func TestReceiveMeta(t *testing.T) {
	eachKernel(t, 4, func(t *testing.T, k kernel, r *ring.Ring) {
		types := []ring.SlotFlags{0, ring.SlotBroadcast, ring.SlotMulticast, ring.SlotOtherHost, ring.SlotOutgoing}
		for i, flag := range types {
			hardware := uint32(i%2) * unix.TP_STATUS_TS_RAW_HARDWARE
			if !k.deliver(packet{data: payload(100, i), wire: 100 + 50*i, pktType: byte(i), hash: 99, status: hardware}) {
				t.Fatal("full")
			}
			k.flush()
			mustSync(t, r)
			if i > 0 {
				flag |= ring.SlotTruncated
			}
			if s := r.Slot(r.Head); s.Flags != flag || s.Len != 100 {
				t.Errorf("type %d: slot %+v, want flags %#x", i, *s, flag)
			}
			var m ring.Meta
			want := ring.Meta{Time: 1700000000123456789, WireLen: uint32(100 + 50*i), Hardware: hardware != 0}
			if _, v3 := k.(*fakeRx3); v3 {
				want.Hash = 99
			}
			if !r.Meta(r.Head, &m) || m != want {
				t.Errorf("type %d: meta %+v, want %+v", i, m, want)
			}
			r.Head++
			mustSync(t, r)
		}
		if err := r.Refresh(); err != nil || r.Stats.KernelPackets.Load() != 7 {
			t.Errorf("refresh: %v, %d packets", err, r.Stats.KernelPackets.Load())
		}
	})
}

func TestReceiveTags(t *testing.T) {
	const valid, tpidValid = unix.TP_STATUS_VLAN_VALID, unix.TP_STATUS_VLAN_TPID_VALID
	for _, c := range []struct {
		p    packet
		want []byte // between the addresses and the EtherType
	}{
		{packet{}, nil},
		{packet{tci: 5, tpid: 0x8100}, nil},
		{packet{tci: 5, tpid: 0x8100, status: valid | tpidValid}, []byte{0x81, 0, 0, 5}},
		{packet{tci: 0, tpid: 0x8100, status: valid | tpidValid}, []byte{0x81, 0, 0, 0}},
		{packet{tci: 0xa064, tpid: 0x88a8, status: valid | tpidValid}, []byte{0x88, 0xa8, 0xa0, 0x64}},
		{packet{tci: 7, tpid: 0x88a8, status: valid}, []byte{0x81, 0, 0, 7}}, // an old kernel: no TPID
	} {
		eachKernel(t, 2, func(t *testing.T, k kernel, r *ring.Ring) {
			for _, vnet := range []ring.Vnet{{}, {Flags: ring.VnetNeedCsum, GSOType: ring.VnetGSOTCPv4, HdrLen: 54, GSOSize: 1000, CsumStart: 34, CsumOffset: 16}} {
				c.p.data, c.p.vnet = payload(200, 1), vnet
				if !k.deliver(c.p) {
					t.Fatal("full")
				}
				k.flush()
				mustSync(t, r)
				want := append(append(bytes.Clone(c.p.data[:12]), c.want...), c.p.data[12:]...)
				if got := r.Frame(r.Head); !bytes.Equal(got, want) {
					t.Errorf("got % x, want % x", got[:24], want[:24])
				}
				s := r.Slot(r.Head)
				if tagged := s.Flags&ring.SlotVLAN != 0; tagged != (c.want != nil) {
					t.Errorf("flags %#x", s.Flags)
				}
				shift := uint16(len(c.want))
				vnet.HdrLen, vnet.CsumStart = vnet.HdrLen+shift, vnet.CsumStart+shift
				var h ring.Vnet
				if has := r.Vnet(r.Head, &h); has != (vnet.Flags != 0 && r.VnetLen() != 0) {
					t.Errorf("header: %v, flags %#x", has, s.Flags)
				} else if has && (h != vnet || s.Flags&ring.SlotGSO == 0) {
					t.Errorf("header %+v, want %+v, flags %#x", h, vnet, s.Flags)
				}
				if r.VnetLen() == 12 && s.Flags&ring.SlotVnet != 0 {
					b := r.Region().Buf(s.Buf)[s.Off-2 : s.Off]
					if b[0]|b[1] != 0 {
						t.Errorf("buffer count % x, want 0", b)
					}
				}
				r.Head++
				mustSync(t, r)
			}
		})
	}
}

// TestReceiveLarge: frames larger than those of a V2 ring come through the
// socket's queue and a limited number of large buffers.
func TestReceiveLarge(t *testing.T) {
	for _, vnet := range []int{0, 10, 12} {
		t.Run(name(2, vnet), func(t *testing.T) {
			const n = 64
			f := newFakeRx2(t, n, 2048, vnet)
			super := ring.Vnet{Flags: ring.VnetNeedCsum, GSOType: ring.VnetGSOTCPv4, HdrLen: 54, GSOSize: 1448, CsumStart: 34, CsumOffset: 16}
			for i := range n {
				p := packet{data: payload(60000+i, i), vnet: super, pktType: 3}
				if i%2 == 1 {
					p = packet{data: payload(100, i), pktType: 2}
				}
				if i%8 == 0 {
					p.tci, p.tpid, p.status = 9, 0x8100, unix.TP_STATUS_VLAN_VALID|unix.TP_STATUS_VLAN_TPID_VALID
				}
				if !f.deliver(p) {
					t.Fatal("full")
				}
			}
			mustSync(t, f.ring)
			if got := f.ring.Space(); got != n {
				t.Fatalf("%d slots, want %d: there are %d large buffers", got, n, largeBufs)
			}
			// All large buffers are in use: the next large one waits.
			f.ring.Head += 2
			mustSync(t, f.ring)
			for i := range 3 {
				f.deliver(packet{data: payload(50000, i)})
			}
			mustSync(t, f.ring)
			for i := 2; f.ring.Space() > 0 && i < n; i++ {
				checkLarge(t, f.ring, i, vnet, super)
				f.ring.Head++
			}
			mustSync(t, f.ring)
			if f.ring.Space() == 0 || len(f.ring.Frame(f.ring.Head)) != 50000 {
				t.Errorf("the waiting frame has not arrived: %d slots", f.ring.Space())
			}
			f.ring.Head += uint32(f.ring.Space())
			mustSync(t, f.ring)
			if f.d.large.Spare() != largeBufs-f.ring.Space() {
				t.Errorf("%d free large buffers of %d, %d slots", f.d.large.Spare(), largeBufs, f.ring.Space())
			}
		})
	}
}

func checkLarge(t *testing.T, r *ring.Ring, i, vnet int, super ring.Vnet) {
	t.Helper()
	want := payload(60000+i, i)
	if i%2 == 1 {
		want = payload(100, i)
	}
	got, s := r.Frame(r.Head), r.Slot(r.Head)
	if i%8 == 0 {
		want = append(append(bytes.Clone(want[:12]), 0x81, 0, 0, 9), want[12:]...)
		super.HdrLen, super.CsumStart = super.HdrLen+4, super.CsumStart+4
	}
	if !bytes.Equal(got, want) || s.Flags&ring.SlotTruncated != 0 {
		t.Fatalf("frame %d: %d bytes, want %d; flags %#x", i, len(got), len(want), s.Flags)
	}
	var h ring.Vnet
	if has := r.Vnet(r.Head, &h); has != (vnet != 0 && i%2 == 0) || has && h != super {
		t.Fatalf("frame %d: header %v %+v", i, has, h)
	}
	if other := s.Flags&ring.SlotOtherHost != 0; other != (i%2 == 0) {
		t.Fatalf("frame %d: flags %#x", i, s.Flags)
	}
}

// TestReceiveLargeLost: where the socket's queue has nothing, what is in the
// ring is all there is.
func TestReceiveLargeLost(t *testing.T) {
	f := newFakeRx2(t, 2, 2048, 10)
	f.deliver(packet{data: payload(9000, 1)})
	f.err = unix.EAGAIN
	mustSync(t, f.ring)
	if s := f.ring.Slot(0); f.ring.Space() != 1 || s.Flags&ring.SlotTruncated == 0 || s.Len == 0 || s.Len > 2048 {
		t.Errorf("slot %+v, want what the ring has, truncated", *s)
	}
	if f.d.large.Spare() != largeBufs {
		t.Errorf("%d free large buffers, want all %d", f.d.large.Spare(), largeBufs)
	}
}
