package tpacket

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/ring"
)

// checkSlots: every slot that the program was given names memory, or says that
// its frame is damaged.
func checkSlots(t *testing.T, r *ring.Ring) {
	t.Helper()
	if n := r.Space(); n < 0 || n > r.Len() {
		t.Fatalf("%d slots in a ring of %d", n, r.Len())
	}
	for k := r.Head; k != r.Tail(); k++ {
		b := r.Frame(k)
		if b == nil {
			t.Fatalf("slot %d names no memory: %+v", k, *r.Slot(k))
		}
		for i := range b {
			b[i]++ // it is memory, and the program's to write
		}
		var v ring.Vnet
		if r.Slot(k).Flags&ring.SlotVnet != 0 && !r.Vnet(k, &v) {
			t.Fatalf("slot %d has no header before it: %+v", k, *r.Slot(k))
		}
		var m ring.Meta
		r.Meta(k, &m)
	}
}

func FuzzRx2(f *testing.F) {
	g := newFakeRx2(f, 4, 256, 10)
	for i := range 4 {
		g.deliver(packet{data: payload(60+i*40, i), tci: 3, tpid: 0x8100, status: uint32(i) * unix.TP_STATUS_VLAN_VALID})
	}
	f.Add(g.d.mem, uint8(10), uint8(2))
	f.Add([]byte{}, uint8(0), uint8(4))
	f.Fuzz(func(t *testing.T, mem []byte, vnet, pass uint8) {
		g := newFakeRx2(t, 4, 256, []int{0, 10, 12}[vnet%3])
		for round := range 3 {
			copy(g.d.mem, mem)
			g.queue = append(g.queue, mem[:min(len(mem), 100+round)])
			mustSync(t, g.ring)
			checkSlots(t, g.ring)
			g.ring.Head += min(uint32(pass), uint32(g.ring.Space()))
			mustSync(t, g.ring)
		}
		if st := &g.ring.Stats; st.Packets.Load()+st.Dropped() < uint64(g.ring.Space()) {
			t.Fatalf("%d packets and %d drops, %d slots", st.Packets.Load(), st.Dropped(), g.ring.Space())
		}
	})
}

func FuzzRx3(f *testing.F) {
	g := newFakeRx3(f, 8, 4096, 2, 10)
	for i := range 6 {
		g.deliver(packet{data: payload(60+i*200, i), tci: 3, tpid: 0x8100, status: uint32(i%2) * unix.TP_STATUS_VLAN_VALID})
	}
	g.close()
	f.Add(g.d.mem, uint8(10), uint8(2))
	f.Add([]byte{}, uint8(0), uint8(8))
	f.Fuzz(func(t *testing.T, mem []byte, vnet, pass uint8) {
		g := newFakeRx3(t, 8, 4096, 2, []int{0, 10, 12}[vnet%3])
		for range 3 {
			copy(g.d.mem, mem)
			mustSync(t, g.ring)
			checkSlots(t, g.ring)
			g.ring.Head += min(uint32(pass), uint32(g.ring.Space()))
			mustSync(t, g.ring)
			checkSlots(t, g.ring)
		}
		// A good block is received whatever came before it.
		for rounds := 0; ; rounds++ {
			g.ring.Head = g.ring.Tail()
			clear(g.d.mem)
			mustSync(t, g.ring)
			if g.ring.Space() == 0 && g.d.left == 0 && g.d.held == 0 {
				break
			}
			if rounds > 1000 {
				t.Fatalf("the walk does not end: %d left, %d held", g.d.left, g.d.held)
			}
		}
		g.blk, g.off = int(g.d.cur), 0
		if !g.deliver(packet{data: payload(100, 1)}) {
			t.Fatal("a block has not gone back")
		}
		g.close()
		mustSync(t, g.ring)
		if g.ring.Space() != 1 || len(g.ring.Frame(g.ring.Head)) != 100 {
			t.Fatalf("%d slots after the damage, want 1", g.ring.Space())
		}
	})
}

// fuzzBell is a kernel of which nothing is known but that it only changes the
// status of frames.
type fuzzBell struct {
	*fakeTx
	script []byte
}

func (b *fuzzBell) next() byte {
	if len(b.script) == 0 {
		return 0
	}
	c := b.script[0]
	b.script = b.script[1:]
	return c
}

func (b *fuzzBell) doorbell() (int, unix.Errno) {
	b.limit = int(b.next() % 5)
	took, _ := b.fakeTx.doorbell()
	switch c := b.next(); c % 8 {
	case 1:
		return -1, unix.Errno(b.next())
	case 2:
		return int(int8(b.next())) * 100, 0
	case 3:
		return took / 2, 0
	}
	return took, 0
}

func FuzzTx(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 0, 0, 0, 1, 4, 1, 2, 2, 2}, uint8(1))
	f.Add([]byte{0, 0, 0, 0, 1, 0, 2, 200, 2, 2, 1, 3, 1, 100}, uint8(0))
	f.Fuzz(func(t *testing.T, script []byte, vnet uint8) {
		g := newFakeTx(t, 8, []int{0, 10, 12}[vnet%3], 1500)
		g.ring.Seed(1<<32 - 8)
		g.head = g.ring.Head
		b := &fuzzBell{g, script}
		g.d.bell = b
		r, handed := g.ring, uint64(0)
		for len(b.script) > 0 {
			switch b.next() % 4 {
			case 0:
				if r.Space() > 0 {
					g.put(t, payload(60+int(b.next()), 1), nil)
				}
			case 1:
				if r.Space() > 0 {
					s := r.Slot(r.Head)
					s.Buf, s.Off, s.Len, s.Flags = uint32(b.next())&15, uint32(b.next()), uint32(b.next())<<4, ring.SlotFlags(b.next())
					r.Head++
				}
			case 2:
				for len(g.inFlight) > 0 && b.next()%2 == 0 {
					g.finish(int(b.next()) % len(g.inFlight))
				}
			case 3:
				was := r.Accepted()
				r.Cur = r.Head
				_ = r.Sync() // an error is right for much of this
				handed += uint64(r.Accepted() - was)
				if r.Accepted() != r.Head || r.Space() > r.Len() {
					t.Fatalf("head %d, accepted %d, tail %d", r.Head, r.Accepted(), r.Tail())
				}
			}
		}
		// The kernel comes to its senses: all slots come back.
		g.d.bell, g.limit, g.fail = g, 0, 0
		r.Head = r.Accepted()
		for range 2 {
			mustSync(t, r)
			g.finishAll()
		}
		mustSync(t, r)
		if st := &r.Stats; r.Pending() != 0 || st.Packets.Load()+st.Dropped() != handed {
			t.Fatalf("%d pending; %d sent and %d refused of %d", r.Pending(), st.Packets.Load(), st.Dropped(), handed)
		}
	})
}
