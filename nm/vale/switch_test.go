package vale

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/netring/netring/ring"
)

func (b *bed) drops(t testing.TB, port int, want map[Cause]uint64) {
	t.Helper()
	for _, p := range b.Ports() {
		if int(p.ID) != port {
			continue
		}
		for c := range NumCauses {
			if p.Drops[c] != want[c] {
				t.Errorf("port %d dropped %d frames as %v, want %d", port, p.Drops[c], c, want[c])
			}
		}
	}
}

func TestLearning(t *testing.T) {
	b := newBed(t, 3, Options{})
	f := frame(macB, macA, 1)
	b.send(t, 0, f)
	b.want(t, "unknown destination", nil, [][]byte{f}, [][]byte{f})
	f = frame(macA, macB, 2)
	b.send(t, 1, f)
	b.want(t, "known destination", [][]byte{f})
	f = frame(bcast, macA, 3)
	b.send(t, 0, f)
	b.want(t, "broadcast", nil, [][]byte{f}, [][]byte{f})
	f = frame(0x01005e000001, macC, 4)
	b.send(t, 2, f)
	b.want(t, "multicast", [][]byte{f}, [][]byte{f})

	// Runs of several destinations in one batch, in order within each port.
	one, two, three := frame(macB, macA, 5), frame(macC, macA, 6), frame(macB, macA, 7)
	all := frame(bcast, macA, 8)
	b.send(t, 0, one, two, all, three)
	b.want(t, "mixed", nil, [][]byte{one, all, three}, [][]byte{two, all})

	// The station behind port 0 moves to port 2.
	b.send(t, 2, frame(bcast, macA, 9))
	b.want(t, "moved", [][]byte{frame(bcast, macA, 9)}, [][]byte{frame(bcast, macA, 9)})
	f = frame(macA, macB, 10)
	b.send(t, 1, f)
	b.want(t, "after the move", nil, nil, [][]byte{f})
	// And back, within one tick of the clock.
	b.send(t, 0, frame(bcast, macA, 11))
	b.want(t, "moved back", nil, [][]byte{frame(bcast, macA, 11)}, [][]byte{frame(bcast, macA, 11)})
	b.send(t, 1, f)
	b.want(t, "after the move back", [][]byte{f})

	st := b.Ports()
	if st[0].Rx != 7 || st[0].Flooded != 4 || st[0].Tx != 4 || st[1].Rx != 3 || st[1].Tx != 8 || st[1].Flooded != 0 {
		t.Errorf("counters %+v", st)
	}
	if ts := b.Table().Stats(); ts.Learned != 3 || ts.Moved != 2 || ts.Addresses != 3 {
		t.Errorf("table %+v", ts)
	}
}

func TestDrops(t *testing.T) {
	b := newBed(t, 3, Options{})
	b.send(t, 0, frame(bcast, macA, 1), frame(bcast, macB, 2))
	for _, s := range b.sinks {
		s.take()
	}
	b.send(t, 0,
		frame(macB, macA, 3),                          // both behind port 0
		frame(lacp, macA, 4),                          // link-local
		frame(0x0180c200000f, macA, 5),                //
		frame(macB, bcast, 6),                         // from everybody
		frame(macB, 0, 7),                             // from nobody
		frame(macB, 0x030000000001, 8),                //
		frame(bcast, macA, 9)[:13],                    // no header
		[]byte{},                                      //
		append(frame(0x0180c2000010, macA, 10), 1, 2)) // not link-local any more
	f := append(frame(0x0180c2000010, macA, 10), 1, 2)
	b.want(t, "drops", nil, [][]byte{f}, [][]byte{f})
	b.drops(t, 0, map[Cause]uint64{SamePort: 1, Reserved: 2, BadSource: 3, Runt: 2})
	if _, ok := b.Table().Lookup(bcast); ok {
		t.Error("learned the broadcast address")
	}
	if _, ok := b.Table().Lookup(0); ok {
		t.Error("learned the zero address")
	}
}

func TestWire(t *testing.T) {
	b := newBed(t, 2, Options{})
	frames := [][]byte{
		frame(macB, macA, 1), frame(macA, macA, 2), frame(lacp, macA, 3), frame(macB, bcast, 4),
		frame(bcast, macA, 5)[:9], frame(0x0180c200000e, 0, 6),
	}
	b.send(t, 0, frames...)
	b.want(t, "wire", nil, frames)
	b.send(t, 1, frames...)
	b.want(t, "wire back", frames)
	if p, ok := b.Table().Lookup(macA); !ok || p != 1 {
		t.Errorf("station is behind port %d, %v; want 1", p, ok)
	}
	if st := b.Ports(); st[0].Rx != 6 || st[1].Tx != 6 || st[0].Tx != 6 || st[0].Flooded != 0 {
		t.Errorf("counters %+v", st)
	}
	// With a third port it is a switch, and knows what the wire learned.
	b.add(t)
	f := frame(macA, macC, 7)
	b.send(t, 2, f, frame(lacp, macC, 8))
	b.want(t, "third port", nil, [][]byte{f})
	// And without it a wire again.
	if _, err := b.Remove(2); err != nil {
		t.Fatal(err)
	}
	b.send(t, 0, frame(lacp, macA, 9))
	b.want(t, "a wire again", nil, [][]byte{frame(lacp, macA, 9)})
}

func TestWireLearnsFirstSlots(t *testing.T) {
	b := newBed(t, 2, Options{})
	f := append(frame(bcast, macA, 1), frame(bcast, macC, 2)...)
	b.src[0].put(t, f, 60) // the second slot looks like a frame from C
	b.src[0].put(t, frame(bcast, macB, 3), 0)
	b.src[0].sync(t)
	if n := b.Forward(0, 0, b.src[0].ring, 10); n != 2 {
		t.Fatalf("forwarded %d frames, want 2", n)
	}
	b.want(t, "chain", nil, [][]byte{f, frame(bcast, macB, 3)})
	for m, want := range map[MAC]bool{macA: true, macB: true, macC: false} {
		if _, ok := b.Table().Lookup(m); ok != want {
			t.Errorf("%v known: %v, want %v", m, ok, want)
		}
	}
}

func TestSeveralSlots(t *testing.T) {
	b := newBed(t, 3, Options{})
	long := append(frame(bcast, macA, 1), make([]byte, 300)...)
	b.src[0].put(t, long, 100)
	b.src[0].put(t, frame(bcast, macA, 2), 0)
	b.src[0].put(t, frame(macB, macA, 3), 0)
	b.src[0].ring.Slot(b.src[0].ring.Tail() + b.src[0].have - 1).Flags = ring.SlotMoreFrag
	b.src[0].sync(t)
	if n := b.Forward(0, 0, b.src[0].ring, 10); n != 2 {
		t.Fatalf("forwarded %d frames, want 2: the third has no end yet", n)
	}
	two := [][]byte{long, frame(bcast, macA, 2)}
	b.want(t, "chains", nil, two, two)
}

func TestBackpressure(t *testing.T) {
	b := newBed(t, 3, Options{})
	b.send(t, 1, frame(bcast, macB, 0))
	for _, s := range b.sinks {
		s.take()
	}
	b.sinks[1].room = 2
	frames := [][]byte{frame(macB, macA, 1), frame(macB, macA, 2), frame(macB, macA, 3), frame(bcast, macA, 4)}
	for _, f := range frames {
		b.src[0].put(t, f, 0)
	}
	b.src[0].sync(t)
	if n := b.Forward(0, 0, b.src[0].ring, 4); n != 2 {
		t.Fatalf("forwarded %d frames, want 2", n)
	}
	if n := b.Forward(0, 0, b.src[0].ring, 4); n != 0 {
		t.Fatalf("forwarded %d frames, want none", n)
	}
	b.want(t, "full", nil, frames[:2])
	b.sinks[1].room = -1
	if n := b.Forward(0, 0, b.src[0].ring, 4); n != 2 {
		t.Fatalf("forwarded %d frames, want the other 2", n)
	}
	b.want(t, "room again", nil, frames[2:], frames[3:])
	if st := b.Ports(); st[0].Rx != 4 || st[1].Tx != 4 || st[0].Flooded != 1 {
		t.Errorf("counters %+v", st)
	}
}

func TestLongBatch(t *testing.T) {
	b := newBed(t, 3, Options{})
	b.src[0] = newSource(t, 1024)
	n := 0
	for ; n < 2*maxBatch+7; n++ {
		b.src[0].put(t, frame(bcast, macA, n), 0)
	}
	b.src[0].sync(t)
	if got := b.Forward(0, 0, b.src[0].ring, 1000); got != n {
		t.Fatalf("forwarded %d of %d frames", got, n)
	}
	for i := 1; i < 3; i++ {
		for k, f := range b.sinks[i].take() {
			if string(f) != string(frame(bcast, macA, k)) {
				t.Fatalf("port %d frame %d is %x", i, k, f)
			}
		}
	}
	if got := b.Forward(0, 0, b.src[0].ring, 0) + b.Forward(0, 0, b.src[0].ring, -1); got != 0 {
		t.Errorf("forwarded %d frames when asked for none", got)
	}
}

func TestPorts(t *testing.T) {
	b := newBed(t, 3, Options{})
	if _, err := b.Add("a", []ring.Egress{newSink()}); err == nil || !strings.Contains(err.Error(), "of that name") {
		t.Errorf("second port of a name: %v", err)
	}
	if _, err := b.Add("z", nil); err == nil {
		t.Error("added a port without egresses")
	}
	b.send(t, 1, frame(bcast, macB, 1))
	st, err := b.Remove(1)
	if err != nil || st.Rx != 1 || st.Name != "b" {
		t.Errorf("removed %+v, %v", st, err)
	}
	if _, ok := b.Table().Lookup(macB); ok {
		t.Error("address is left of a removed port")
	}
	if _, err := b.Remove(1); err == nil {
		t.Error("removed a port twice")
	}
	b.src[1].put(t, frame(bcast, macB, 2), 0)
	b.src[1].sync(t)
	if n := b.Forward(0, 1, b.src[1].ring, 8); n != 1 || b.Orphans() != 1 {
		t.Errorf("took %d frames from a removed port and counted %d, want 1", n, b.Orphans())
	}
	if _, ok := b.Table().Lookup(macB); ok {
		t.Error("learned an address for a removed port")
	}
	if id, err := b.Add("new", []ring.Egress{newSink()}); err != nil || id != 1 {
		t.Errorf("new port has id %d, %v; want 1", id, err)
	}
	if err := b.Flush(0); err != nil || b.sinks[0].flushed != 1 || b.sinks[1].flushed != 0 {
		t.Errorf("flush: %v, %+v", err, b.sinks[0])
	}
	if b.Remove(0); len(b.Ports()) != 2 {
		t.Errorf("%d ports, want 2", len(b.Ports()))
	}
}

func TestOnePort(t *testing.T) {
	b := newBed(t, 1, Options{})
	b.send(t, 0, frame(bcast, macA, 1), frame(macB, macA, 2))
	b.drops(t, 0, map[Cause]uint64{NoPort: 2})
}

func TestLookup(t *testing.T) {
	b := newBed(t, 2, Options{Lookup: func(b *Batch) {
		b.Learning()
		for i, k := range b.Slots {
			switch b.Src.Frame(k)[20] {
			case 1:
				b.Dst[i] = Filtered.Verdict()
			case 2:
				b.Dst[i] = b.In
			case 3:
				b.Dst[i] = 77
			case 4:
				b.Dst[i] = 0xfff0
			case 5:
				b.Dst[i] = 1
			}
		}
	}})
	var frames [][]byte
	for i := range 6 {
		f := frame(bcast, macA, 0)
		f[20] = byte(i)
		frames = append(frames, f)
	}
	b.send(t, 0, frames...)
	b.want(t, "lookup", nil, [][]byte{frames[0], frames[5]})
	b.drops(t, 0, map[Cause]uint64{Filtered: 2, SamePort: 1, NoPort: 1})
	(&Batch{Slots: make([]uint32, 1), Dst: make([]PortID, 1)}).Learning() // not of a switch: nothing
}

// TestRemoveWaits removes a port that a worker is just sending to.
func TestRemoveWaits(t *testing.T) {
	b := newBed(t, 3, Options{})
	gate, inside := make(chan struct{}), make(chan struct{})
	var left, removed atomic.Bool
	id, err := b.Add("slow", []ring.Egress{egressFunc(func() {
		close(inside)
		<-gate
		left.Store(true)
	})})
	if err != nil {
		t.Fatal(err)
	}
	b.src[0].put(t, frame(bcast, macA, 1), 0)
	b.src[0].sync(t)
	done, finished := make(chan struct{}), make(chan struct{})
	go func() { b.Forward(0, 0, b.src[0].ring, 1); close(done) }()
	<-inside
	go func() {
		if _, err := b.Remove(id); err != nil {
			t.Error(err)
		}
		if !left.Load() {
			t.Error("Remove returned while a worker used the port")
		}
		removed.Store(true)
		close(finished)
	}()
	for len(b.Ports()) != 3 {
		runtime.Gosched()
	}
	if removed.Load() {
		t.Error("Remove did not wait")
	}
	close(gate)
	<-done
	<-finished
}

// egressFunc is an egress whose Copy is a call.
type egressFunc func()

func (f egressFunc) Move(src *ring.Ring, n int) int { return ring.Skip(src, n) }
func (f egressFunc) Copy(*ring.Ring, uint32)        { f() }
func (f egressFunc) Flush() error                   { return nil }
