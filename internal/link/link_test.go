//go:build linux

package link

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/ring"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { netlab.Main(m) }

func TestLookup(t *testing.T) {
	lab := netlab.Setup(t, "a", "b")
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 9}
	lab.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{MTU: 4000, Queues: 3, MACA: mac})
	err := lab.NS("a").Do(func() error {
		i, err := Lookup("a0")
		if err != nil {
			return err
		}
		if i.Name != "a0" || i.MTU != 4000 || i.MAC.String() != mac.String() || i.TxQueues != 3 || i.RxQueues != 3 ||
			i.Kind != "veth" || i.Driver != "veth" || !i.NoQueue() || i.Loopback() || !i.AdminUp() || !i.Carrier() || i.State() != Up {
			t.Errorf("a0 is %+v", i)
		}
		want, err := net.InterfaceByName("a0")
		if err != nil {
			return err
		}
		if i.Index != want.Index {
			t.Errorf("index of a0 is %d, want %d", i.Index, want.Index)
		}
		lo, err := Lookup("lo")
		if err != nil {
			return err
		}
		if !lo.Loopback() || lo.State() != Up || lo.Kind != "" {
			t.Errorf("lo is %+v", lo)
		}
		for _, name := range []string{"b0", "", "a/b", "a-name-much-too-long"} {
			if _, err := Lookup(name); !errors.Is(err, ring.ErrNoInterface) {
				t.Errorf("Lookup(%q): %v, want ErrNoInterface", name, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := lab.NS("b").Down("b0"); err != nil {
		t.Fatal(err)
	}
	if err := lab.NS("a").Do(func() error {
		i, err := Lookup("a0")
		if i.State() != Down || !i.AdminUp() || i.Carrier() {
			t.Errorf("with the other end down a0 is %+v", i)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// watch starts a watcher of interfaces in a namespace that sends its events to
// a channel.
func watch(t *testing.T, ns *netlab.NS, interval time.Duration, names ...string) (*Watcher, <-chan Event) {
	t.Helper()
	events := make(chan Event, 1000)
	var w *Watcher
	err := ns.Do(func() (err error) {
		w, err = New(Options{OnEvent: func(e Event) { events <- e }, Interval: interval})
		if err != nil {
			return err
		}
		for _, name := range names {
			i, err := Lookup(name)
			if err != nil {
				return err
			}
			w.Add(i)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w, events
}

// expect waits for the next event.
func expect(t *testing.T, events <-chan Event, name string, s State) {
	t.Helper()
	select {
	case e := <-events:
		if e.Name != name || e.State != s {
			t.Fatalf("event %s is %v, want %s is %v", e.Name, e.State, name, s)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("no event, want %s is %v", name, s)
	}
}

func TestWatch(t *testing.T) {
	lab := netlab.Setup(t, "a", "b")
	lab.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	lab.Pair(t, "a", "a1", "b", "b1", netlab.VethOpts{})
	a, b := lab.NS("a"), lab.NS("b")
	w, events := watch(t, a, 0, "a0", "a1")
	var told []time.Duration // how long after it a loss was told
	for range 3 {
		for _, c := range []struct {
			do   func() error
			name string
			want State
		}{
			{func() error { return b.Down("b0") }, "a0", Down}, // carrier
			{func() error { return b.Up("b0") }, "a0", Up},
			{func() error { return a.Down("a1") }, "a1", Down},
			{func() error { return a.Up("a1") }, "a1", Up},
		} {
			start := time.Now()
			if err := c.do(); err != nil {
				t.Fatal(err)
			}
			expect(t, events, c.name, c.want)
			// Coming up, the kernel may take its time to start the queues.
			if c.want == Down {
				told = append(told, time.Since(start))
			}
		}
	}
	slices.Sort(told)
	if d := told[len(told)/2]; d > 50*time.Millisecond {
		t.Errorf("losses are told after %v, want under 50ms: %v", d, told)
	}
	if err := a.Delete("a0"); err != nil {
		t.Fatal(err)
	}
	for e := range events { // it may be seen on its way down
		if e.State == Gone {
			break
		}
	}
	i, err := a.Index("a1")
	if err != nil {
		t.Fatal(err)
	}
	if w.State(i) != Up || w.State(i).Err() != nil {
		t.Errorf("a1 is %v", w.State(i))
	}
	w.Remove(i)
	if s := w.State(i); s != Gone || s.Err() != ring.ErrGone {
		t.Errorf("an interface that is not watched is %v", s)
	}
}

// TestWatchTold: with the question far out, the kernel's own messages do.
func TestWatchTold(t *testing.T) {
	lab := netlab.Setup(t, "a", "b")
	lab.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	_, events := watch(t, lab.NS("a"), time.Hour, "a0")
	for _, s := range []State{Down, Up} {
		do := lab.NS("a").Up
		if s == Down {
			do = lab.NS("a").Down
		}
		if err := do("a0"); err != nil {
			t.Fatal(err)
		}
		expect(t, events, "a0", s)
	}
}

// TestWatchMoved: an interface that goes to another namespace is gone.
func TestWatchMoved(t *testing.T) {
	lab := netlab.Setup(t, "a", "b", "c")
	lab.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	_, events := watch(t, lab.NS("a"), time.Hour, "a0")
	nl := lab.NS("a").Netlink()
	l, err := nl.LinkByName("a0")
	if err != nil {
		t.Fatal(err)
	}
	if err := nl.LinkSetNsFd(l, lab.NS("c").FD()); err != nil {
		t.Fatal(err)
	}
	for e := range events {
		if e.State == Gone {
			return
		}
		if e.State != Down {
			t.Fatalf("event %+v", e)
		}
	}
}

// TestWatchAsks: what the kernel's messages do not bring, the periodic
// question does. The socket's membership is taken away.
func TestWatchAsks(t *testing.T) {
	lab := netlab.Setup(t, "a", "b")
	lab.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	w, events := watch(t, lab.NS("a"), 5*time.Millisecond, "a0")
	if err := unix.SetsockoptInt(w.fd, unix.SOL_NETLINK, unix.NETLINK_DROP_MEMBERSHIP, unix.RTNLGRP_LINK); err != nil {
		t.Fatal(err)
	}
	if err := lab.NS("b").Down("b0"); err != nil {
		t.Fatal(err)
	}
	expect(t, events, "a0", Down)
	if err := lab.NS("b").Up("b0"); err != nil {
		t.Fatal(err)
	}
	expect(t, events, "a0", Up)
	if err := lab.NS("b").Delete("b0"); err != nil {
		t.Fatal(err)
	}
	for e := range events { // it may be seen on its way down
		if e.State == Gone {
			return
		}
	}
}

// TestWatchLate: a change between Lookup and Add is not missed.
func TestWatchLate(t *testing.T) {
	lab := netlab.Setup(t, "a", "b")
	lab.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	var info Info
	if err := lab.NS("a").Do(func() (err error) { info, err = Lookup("a0"); return err }); err != nil {
		t.Fatal(err)
	}
	if err := lab.NS("b").Down("b0"); err != nil {
		t.Fatal(err)
	}
	w, events := watch(t, lab.NS("a"), time.Hour)
	w.Add(info)
	expect(t, events, "a0", Down)
}

// TestWatchOverrun: events that the socket has no room for are made up for.
func TestWatchOverrun(t *testing.T) {
	lab := netlab.Setup(t, "a", "b")
	lab.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	a := lab.NS("a")
	block := make(chan struct{})
	events := make(chan Event, 1000)
	var w *Watcher
	err := a.Do(func() (err error) {
		// The answer to what was missed may be lost as well, in a buffer this
		// small: the interval asks again.
		w, err = New(Options{Interval: time.Second, OnEvent: func(e Event) { <-block; events <- e }})
		if err != nil {
			return err
		}
		if err := unix.SetsockoptInt(w.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil { // the least
			return err
		}
		i, err := Lookup("a0")
		w.Add(i)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	// The callback holds the watcher up with the first; the kernel tells of
	// the rest meanwhile.
	for range 100 {
		if err := errors.Join(a.Down("a0"), a.Up("a0")); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Down("a0"); err != nil {
		t.Fatal(err)
	}
	close(block)
	deadline := time.After(10 * time.Second)
	for last := Up; last != Down || w.Overruns() == 0 || len(events) > 0; {
		select {
		case e := <-events:
			last = e.State
		case <-time.After(time.Millisecond): // look at the overruns again
		case <-deadline:
			t.Fatalf("after %d overruns the last event is %v, want down", w.Overruns(), last)
		}
	}
}

// TestClose: neither goroutines nor descriptors stay.
func TestClose(t *testing.T) {
	lab := netlab.Setup(t, "a", "b")
	lab.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	count := func() (int, int) {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return runtime.NumGoroutine(), len(fds)
	}
	g0, f0 := count()
	for range 20 {
		w, _ := watch(t, lab.NS("a"), time.Millisecond, "a0")
		if err := errors.Join(w.Close(), w.Close()); err != nil {
			t.Fatal(err)
		}
		w.Add(Info{Name: "late", Index: 999})
	}
	g, f := count()
	for range 1000 { // Close returns when the goroutine has nothing left to do but end
		if g <= g0 {
			break
		}
		runtime.Gosched()
		g, f = count()
	}
	if g > g0 || f > f0 {
		t.Errorf("%d goroutines and %d descriptors, before %d and %d", g, f, g0, f0)
	}
}

func TestOptions(t *testing.T) {
	fn := func(Event) {}
	for _, o := range []Options{{}, {OnEvent: fn, Interval: -1}, {OnEvent: fn, Interval: time.Microsecond}} {
		if _, err := New(o); err == nil {
			t.Errorf("options with interval %v are accepted", o.Interval)
		}
	}
}

// FuzzParse: whatever a datagram holds, parsing it must not go out of bounds.
func FuzzParse(f *testing.F) {
	msg := make([]byte, 32, 96)
	copy(msg, []byte{0, 0, 0, 0, unix.RTM_NEWLINK, 0})
	msg = attr(msg, unix.IFLA_IFNAME, []byte("eth0\x00"))
	msg = attr(msg, unix.IFLA_LINKINFO, attr(nil, unix.IFLA_INFO_KIND, []byte("veth")))
	msg[0] = byte(len(msg))
	f.Add(msg)
	f.Add([]byte{20, 0, 0, 0, unix.NLMSG_ERROR, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0xed, 0xff, 0xff, 0xff})
	f.Add([]byte{16, 0, 0, 0, unix.RTM_DELLINK, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = parse(b, func(m *message) {
			if m.err == 0 {
				_ = m.info()
			}
			_ = fmt.Sprint(m.index, m.seq, m.gone)
		})
	})
}

func TestParseSeed(t *testing.T) {
	msg := make([]byte, 32, 96)
	copy(msg[4:], []byte{unix.RTM_NEWLINK, 0})
	msg[20] = 3
	msg = attr(msg, unix.IFLA_IFNAME, []byte("eth0\x00"))
	msg = attr(msg, unix.IFLA_LINKINFO, attr(nil, unix.IFLA_INFO_KIND, []byte("veth")))
	msg[0] = byte(len(msg))
	seen := 0
	if err := parse(msg, func(m *message) {
		seen++
		if i := m.info(); i.Name != "eth0" || i.Kind != "veth" || i.Index != 3 {
			t.Errorf("parsed %+v", i)
		}
	}); err != nil || seen != 1 {
		t.Errorf("%d messages, %v", seen, err)
	}
}

func BenchmarkLookup(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Lookup("lo"); err != nil {
			b.Fatal(err)
		}
	}
}
