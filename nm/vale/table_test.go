package vale

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

func newTable(t testing.TB, o TableOptions) *Table {
	t.Helper()
	tab, err := NewTable(o)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

func TestTableOptions(t *testing.T) {
	for _, o := range []TableOptions{{}, {Addresses: 1}, {Ageing: NoAgeing}, {Ageing: tick}, {Addresses: 1 << 12, Ageing: time.Hour}} {
		if err := o.Validate(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, o := range []TableOptions{{Addresses: -1}, {Addresses: maxAddresses + 1}, {Ageing: -2}, {Ageing: time.Millisecond}, {Ageing: maxAgeing + 1}} {
		if _, err := NewTable(o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

func TestAgeing(t *testing.T) {
	tab := newTable(t, TableOptions{Ageing: 10 * time.Second})
	now := 1000 * time.Hour
	tab.Tick(now)
	tab.Learn(macA, 1)
	tab.Learn(macB, 2)
	if err := tab.SetStatic(macC, 3); err != nil {
		t.Fatal(err)
	}
	check := func(what string, m MAC, want bool) {
		t.Helper()
		if _, ok := tab.Lookup(m); ok != want {
			t.Errorf("%s: %v known: %v", what, m, ok)
		}
	}
	now += 9 * time.Second
	tab.Tick(now)
	tab.Learn(macB, 2) // seen again
	now += time.Second
	tab.Tick(now)
	check("at the ageing time", macA, true)
	now += tick
	tab.Tick(now)
	check("after it", macA, false)
	check("seen in between", macB, true)
	tab.Tick(now - time.Minute) // back: ignored
	check("clock went back", macA, false)
	now += time.Hour
	tab.Tick(now)
	check("an hour later", macB, false)
	check("static", macC, true)
	if st := tab.Stats(); st.Aged != 2 || st.Addresses != 1 {
		t.Errorf("after a whole sweep: %+v", st)
	}
	if !tab.Learn(macA, 1) {
		t.Error("an aged address is not learned again")
	}
	check("learned again", macA, true)
}

func TestStatic(t *testing.T) {
	tab := newTable(t, TableOptions{})
	if err := tab.SetStatic(macA, 1); err != nil {
		t.Fatal(err)
	}
	if tab.Learn(macA, 2) {
		t.Error("a static address moved")
	}
	if !tab.Learn(macA, 1) {
		t.Error("a static address was refused at its port")
	}
	if p, ok := tab.Lookup(macA); !ok || p != 1 {
		t.Errorf("static address behind %d, %v", p, ok)
	}
	tab.Learn(macB, 2)
	if err := tab.SetStatic(macB, 4); err != nil { // makes the learned one static
		t.Fatal(err)
	}
	tab.Learn(macC, 4)
	if n := tab.Flush(); n != 1 {
		t.Errorf("flushed %d addresses, want the learned one", n)
	}
	want := []Entry{{MAC: macA, Port: 1, Static: true}, {MAC: macB, Port: 4, Static: true}}
	got := tab.Entries()
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("entries %+v, want %+v", got, want)
	}
	if !tab.Delete(macA) || tab.Delete(macA) || tab.Delete(0) {
		t.Error("delete")
	}
	if n := tab.Forget(4); n != 1 {
		t.Errorf("forgot %d addresses, want 1", n)
	}
	if !tab.Learn(macB, 9) {
		t.Error("the place of a static address stays static")
	}
	for _, m := range []MAC{0, bcast, 1 << 48} {
		if tab.SetStatic(m, 1) == nil || tab.Learn(m, 1) {
			t.Errorf("%v was accepted", m)
		}
	}
}

func TestEntries(t *testing.T) {
	tab := newTable(t, TableOptions{Ageing: time.Minute})
	tab.Learn(macB, 2)
	tab.Tick(0)
	tab.Tick(3 * time.Second)
	tab.Learn(macA, 1)
	tab.Tick(5 * time.Second)
	got := tab.Entries()
	want := []Entry{{MAC: macA, Port: 1, Age: 2 * time.Second}, {MAC: macB, Port: 2, Age: 5 * time.Second}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("entries %+v, want %+v", got, want)
	}
}

// TestFull fills tables of many sizes: they take as many addresses as they
// should and refuse the others, until there is room.
func TestFull(t *testing.T) {
	for _, size := range []int{1, 2, 7, 100, 1279, 8192, 10239, 40959} {
		tab := newTable(t, TableOptions{Addresses: size, Ageing: time.Minute})
		tab.Tick(0)
		for i := range size {
			if !tab.Learn(0x020000000000+MAC(i*7919), PortID(i%16)) {
				t.Fatalf("size %d: address %d refused", size, i)
			}
		}
		if tab.Learn(macB, 1) {
			t.Errorf("size %d: took one more", size)
		}
		if err := tab.SetStatic(macB, 1); !errors.Is(err, ErrNoRoom) {
			t.Errorf("size %d: static one more: %v", size, err)
		}
		if !tab.Learn(0x020000000000, 99) {
			t.Errorf("size %d: an address cannot move", size)
		}
		if st := tab.Stats(); st.Refused != 1 || st.Addresses != size || int(st.Learned) != size || st.Moved != 1 {
			t.Errorf("size %d: %+v", size, st)
		}
		for s := 2; s < 5; s++ { // every sweep takes away a part
			tab.Tick(time.Duration(s) * time.Minute)
		}
		if !tab.Learn(macB, 1) {
			t.Errorf("size %d: no room after the others aged", size)
		}
	}
}

// TestTableRace learns, moves and looks up from several goroutines at once:
// what is found is always a port that the address has been behind.
func TestTableRace(t *testing.T) {
	tab := newTable(t, TableOptions{Addresses: 64, Ageing: time.Second})
	tab.Tick(0)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			for i := range 20000 {
				a := r.Uint64N(200)
				m := MAC(0x020000000000 + a)
				switch r.IntN(20) {
				case 0:
					tab.Tick(time.Duration(i) * time.Millisecond)
				case 1:
					tab.Delete(m)
				case 2:
					tab.Forget(PortID(a % 7))
				case 3:
					_ = tab.SetStatic(m, PortID(a%7)) // may be full
				case 4:
					for _, e := range tab.Entries() {
						if want := uint64(e.MAC) - 0x020000000000; uint64(e.Port)%100 != want%7 {
							t.Errorf("entry %+v", e)
						}
					}
				case 5, 6, 7:
					tab.Learn(m, PortID(a%7)+100*PortID(g))
				default:
					if p, ok := tab.Lookup(m); ok && uint64(p)%100 != a%7 {
						t.Errorf("%v is behind %d", m, p)
					}
				}
			}
		})
	}
	wg.Wait()
	n := tab.Forget(0)
	for p := range PortID(500) {
		n += tab.Forget(p)
	}
	if st := tab.Stats(); st.Addresses != 0 {
		t.Errorf("%d addresses are left of %d", st.Addresses, n)
	}
}

func TestMAC(t *testing.T) {
	m, err := ParseMAC("02:00:5e:10:00:ff")
	if err != nil || m != 0x02005e1000ff || m.String() != "02:00:5e:10:00:ff" || MACOf(m.Bytes()) != m || m.Group() {
		t.Errorf("%v, %v", m, err)
	}
	for _, s := range []string{"", "02:00", "02:00:5e:10:00:00:00:ff", "x"} {
		if _, err := ParseMAC(s); err == nil {
			t.Errorf("%q was read", s)
		}
	}
	if !bcast.Group() || !MAC(0x010000000000).Group() {
		t.Error("group bit")
	}
}
