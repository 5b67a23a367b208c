package lagg

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
)

// The hashes of lagg(4) and of Linux bonding, to compare what they do with
// flows when a member fails. Their vectors prove that they are what they say.

// laggHash is lagg(4)'s: FNV-1 with a key of its own over the chosen fields.
func laggHash(key uint32, f Fields, src, dst netip.AddrPort) uint32 {
	var b []byte
	if f&L2 != 0 {
		b = append(b, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2)
	}
	if f&L3 != 0 {
		b = append(append(b, src.Addr().AsSlice()...), dst.Addr().AsSlice()...)
	}
	if f&L4 != 0 {
		b = binary.BigEndian.AppendUint16(b, src.Port())
		b = binary.BigEndian.AppendUint16(b, dst.Port())
	}
	return fnv1(key, b)
}

func fnv1(h uint32, b []byte) uint32 {
	for _, x := range b {
		h = h*0x01000193 ^ uint32(x)
	}
	return h
}

// bondHash is bonding's layer2, layer2+3 or layer3+4 of an IPv4 frame from
// ..:01 to ..:fe.
func bondHash(policy string, src, dst netip.AddrPort) uint32 {
	le, s, d := binary.LittleEndian, src.Addr().As4(), dst.Addr().As4()
	h := uint32(0x01 ^ 0xfe ^ 0x0800)
	switch policy {
	case "layer2":
		return h
	case "layer3+4":
		ports := binary.BigEndian.AppendUint16(nil, src.Port())
		h = le.Uint32(binary.BigEndian.AppendUint16(ports, dst.Port()))
	}
	h ^= le.Uint32(d[:]) ^ le.Uint32(s[:])
	h ^= h >> 16
	h ^= h >> 8
	if policy == "layer3+4" {
		h >>= 1
	}
	return h
}

func TestPeerHashes(t *testing.T) {
	type fnvVector struct{ Seed, Key, Src, Dst, L2, L2L3, L2L3L4, L3, L3L4, L4 string }
	vectors(t, "fnv", func(t *testing.T, c fnvVector) {
		key := fnv1(0x02000023, binary.BigEndian.AppendUint32(nil, uint32(hex(t, c.Seed))))
		if key != uint32(hex(t, c.Key)) {
			t.Fatalf("key %#x, want %s", key, c.Key)
		}
		src, dst := netip.MustParseAddrPort(c.Src), netip.MustParseAddrPort(c.Dst)
		for f, want := range map[Fields]string{L2: c.L2, L2 | L3: c.L2L3, L2 | L3 | L4: c.L2L3L4, L3: c.L3, L3 | L4: c.L3L4, L4: c.L4} {
			if got := fmt.Sprintf("%08x", laggHash(key, f, src, dst)); got != want {
				t.Errorf("%v: %s, want %s", f, got, want)
			}
		}
	})
	type bondVector struct {
		Src, Dst                 string
		Layer2, Layer23, Layer34 uint32
	}
	vectors(t, "bonding", func(t *testing.T, c bondVector) {
		src, dst := netip.MustParseAddrPort(c.Src), netip.MustParseAddrPort(c.Dst)
		for p, want := range map[string]uint32{"layer2": c.Layer2, "layer2+3": c.Layer23, "layer3+4": c.Layer34} {
			if got := bondHash(p, src, dst); got != want {
				t.Errorf("%s: %d, want %d", p, got, want)
			}
		}
	})
}

// TestMovesBesidePeers: when one of four members fails, our group moves its
// flows and no others; lagg(4) does too, but onto one neighbour; bonding's
// modulo moves most flows of the healthy ones.
func TestMovesBesidePeers(t *testing.T) {
	const n, lost = 4000, 2
	flow := func(i int) (src, dst netip.AddrPort) {
		a := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		return netip.AddrPortFrom(a, uint16(1024+i*7)), netip.MustParseAddrPort("10.9.9.9:443")
	}
	g := group(t, 4, Options{Proto: LoadBalance, HoldDown: -1, Seed: 1})
	for i := range 4 {
		g.SetLink(i, true, 1)
	}
	tb, d := newTable(), &drains{of: make([]Pender, 4)}
	schemes := map[string]func(i int, active []bool) int{
		"ours": func(i int, _ []bool) int { return tb.member(Mix(uint64(i)), 1, 0, g.snap.Load(), d) },
		"lagg": func(i int, active []bool) int {
			src, dst := flow(i)
			return LinkActive(active, int(laggHash(0x180c9f53, L3|L4, src, dst)%4))
		},
		"bonding": func(i int, active []bool) int {
			src, dst := flow(i)
			live := indexes(active)
			return live[bondHash("layer3+4", src, dst)%uint32(len(live))]
		},
	}
	type result struct{ moved, healthy, heaviest int }
	got := map[string]result{}
	for name, choose := range schemes {
		g.SetLink(lost, true, 1)
		var r result
		var before [n]int
		for i := range n {
			before[i] = choose(i, bits("1111"))
		}
		g.SetLink(lost, false, 2)
		var load [4]int
		for i := range n {
			now := choose(i, bits("1101"))
			load[now]++
			if now != before[i] {
				r.moved++
				if before[i] != lost {
					r.healthy++
				}
			}
		}
		r.heaviest = max(load[0], load[1], load[3])
		got[name] = r
		t.Logf("%s: of %d flows %d moved, %d of them from healthy members; heaviest member %d, fair %d", name, n, r.moved, r.healthy, r.heaviest, n/3)
	}
	if r := got["ours"]; r.healthy != 0 || r.moved < n/4*95/100 || r.moved > n/4*105/100 || r.heaviest > n/3*105/100 {
		t.Errorf("ours: %+v", r)
	}
	if r := got["lagg"]; r.healthy != 0 || r.heaviest < n/3*130/100 {
		t.Errorf("lagg(4) does not do what is said of it: %+v", r)
	}
	if r := got["bonding"]; r.healthy < n/3 {
		t.Errorf("bonding does not do what is said of it: %+v", r)
	}
}
