package vale

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/netring/netring/ring"
)

// model is the same switch, slow: maps, and one frame after the other.
type model struct {
	ports map[PortID]bool
	where map[MAC]station
	now   time.Duration
	age   time.Duration
}

type station struct {
	port   PortID
	seen   time.Duration
	static bool
}

func (m *model) known(a MAC) (station, bool) {
	s, ok := m.where[a]
	if ok && !s.static && m.now-s.seen > m.age {
		return s, false
	}
	return s, ok
}

// forward says which ports get the frame, in no order.
func (m *model) forward(in PortID, f []byte) map[PortID]bool {
	others := map[PortID]bool{}
	for p := range m.ports {
		if p != in {
			others[p] = true
		}
	}
	var dst, src MAC
	whole := len(f) >= 14
	if whole {
		dst, src = MACOf([6]byte(f)), MACOf([6]byte(f[6:]))
	}
	if whole && src != 0 && f[6]%2 == 0 {
		if s, ok := m.known(src); !ok || !s.static {
			m.where[src] = station{port: in, seen: m.now}
		}
	}
	if len(m.ports) == 2 {
		return others
	}
	if !whole || src == 0 || f[6]%2 == 1 {
		return nil
	}
	if bytes.HasPrefix(f, []byte{0x01, 0x80, 0xc2, 0, 0}) && f[5] < 16 {
		return nil
	}
	if f[0]%2 == 1 {
		return others
	}
	s, ok := m.known(dst)
	switch {
	case !ok:
		return others
	case s.port == in || !m.ports[s.port]:
		return nil
	}
	return map[PortID]bool{s.port: true}
}

func (m *model) forget(p PortID) {
	for a, s := range m.where {
		if s.port == p {
			delete(m.where, a)
		}
	}
}

// addressesOf the fuzzer's stations: few, so that they meet again.
func fuzzMAC(b byte) MAC {
	switch b % 16 {
	case 13:
		return bcast
	case 14:
		return 0x0180c2000000 + MAC(b>>4)
	case 15:
		return 0
	}
	return 0x020000000000 + MAC(b%16)<<8
}

// FuzzSwitch runs a switch and the model side by side: each operation is
// three bytes.
func FuzzSwitch(f *testing.F) {
	f.Add([]byte{0, 0x21, 0, 1, 0x12, 0, 8, 3, 0, 0, 0x21, 3})
	f.Add([]byte{0, 0xd1, 0, 1, 0x1e, 0, 2, 0x3f, 0, 9, 1, 0, 0, 0xd1, 0, 10, 0, 0, 1, 0x12, 1})
	f.Add([]byte{11, 0x05, 2, 1, 0x25, 0, 0, 0x52, 0, 8, 200, 0, 0, 0x52, 1, 9, 2, 0, 9, 1, 0, 0, 0x52, 1})
	f.Fuzz(func(t *testing.T, ops []byte) {
		if len(ops) > 300 {
			return
		}
		b := newBed(t, 3, Options{Table: TableOptions{Ageing: 10 * time.Second, Addresses: 64}})
		m := &model{ports: map[PortID]bool{0: true, 1: true, 2: true}, where: map[MAC]station{}, age: 10 * time.Second}
		b.Tick(0)
		for n := 0; len(ops) >= 3; n++ {
			step(t, b, m, ops[0], ops[1], ops[2], n)
			ops = ops[3:]
		}
		compare(t, b, m)
	})
}

func step(t *testing.T, b *bed, m *model, op, x, y byte, n int) {
	t.Helper()
	switch op % 12 {
	case 8:
		m.now += time.Duration(x) * tick
		b.Tick(m.now)
	case 9:
		id := PortID(x % 3)
		if _, err := b.Remove(id); (err == nil) != m.ports[id] {
			t.Fatalf("remove port %d: %v", id, err)
		}
		if m.ports[id] {
			delete(m.ports, id)
			m.forget(id)
		}
	case 10:
		if len(m.ports) == 3 {
			return
		}
		for id := range PortID(3) {
			if m.ports[id] {
				continue
			}
			got, err := b.Add(fmt.Sprintf("new%d", n), []ring.Egress{b.sinks[id]})
			if err != nil || got != id {
				t.Fatalf("add: port %d, %v; want %d", got, err, id)
			}
			m.ports[id] = true
			break
		}
	case 11:
		a, id := fuzzMAC(x), PortID(y%3)
		if a == 0 || a.Group() {
			return
		}
		if err := b.Table().SetStatic(a, id); err != nil {
			t.Fatal(err)
		}
		m.where[a] = station{port: id, static: true}
	default:
		in := PortID(op % 3)
		if !m.ports[in] {
			return
		}
		fr := frame(fuzzMAC(x&15|y&0xf0), fuzzMAC(x>>4|y&0xf0), n)
		if y%16 == 1 {
			fr = fr[:x%16]
		}
		// The same frame several times makes runs.
		for range y%4 + 1 {
			b.src[in].put(t, fr, 0)
		}
		one(t, b, m, in, fr, int(y%4)+1)
	}
}

// one forwards n frames that have arrived, all the same, and looks where they went.
func one(t *testing.T, b *bed, m *model, in PortID, f []byte, n int) {
	t.Helper()
	b.src[in].sync(t)
	if got := b.Forward(0, in, b.src[in].ring, n); got != n {
		t.Fatalf("forwarded %d of %d frames", got, n)
	}
	b.src[in].sync(t)
	want := map[PortID]int{}
	for range n {
		for p := range m.forward(in, f) {
			want[p]++
		}
	}
	for i, s := range b.sinks {
		got := s.take()
		if len(got) != want[PortID(i)] {
			t.Fatalf("frame %x from port %d: port %d got %d, want %d", f, in, i, len(got), want[PortID(i)])
		}
		for _, g := range got {
			if !bytes.Equal(g, f) {
				t.Fatalf("port %d got %x, want %x", i, g, f)
			}
		}
	}
}

// compare looks at the tables, and whether the counters add up.
func compare(t *testing.T, b *bed, m *model) {
	t.Helper()
	n := 0
	for a := range m.where {
		s, ok := m.known(a)
		if p, got := b.Table().Lookup(a); got != ok || ok && p != s.port {
			t.Errorf("%v is behind %d, %v; want %d, %v", a, p, got, s.port, ok)
		}
		if ok {
			n++
		}
	}
	if got := len(b.Table().Entries()); got != n {
		t.Errorf("%d entries, want %d", got, n)
	}
	for _, p := range b.Ports() {
		var gone uint64
		for _, d := range p.Drops {
			gone += d
		}
		if gone+p.Flooded > p.Rx {
			t.Errorf("counters %+v", p)
		}
	}
}
