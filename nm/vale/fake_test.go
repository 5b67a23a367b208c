package vale

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/netring/netring/ring"
)

// source is a receive ring that a test fills.
type source struct {
	ring *ring.Ring
	have uint32 // slots filled and not yet given to the program
}

func newSource(t testing.TB, slots int) *source {
	t.Helper()
	const size = 256
	g, err := ring.NewRegion(make([]byte, slots*size), size)
	if err != nil {
		t.Fatal(err)
	}
	s := new(source)
	s.ring, err = ring.New(ring.Config{Port: "src", Slots: slots, Region: g, Life: ring.NewLife(), Driver: s, FD: -1, WakeFD: -1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range slots {
		s.ring.Slot(uint32(i)).Buf = uint32(i)
	}
	return s
}

func (s *source) Sync(r *ring.Ring, _, to uint32) (uint32, uint32, error) {
	tail := r.Tail() + s.have
	s.have = 0
	return to, tail, nil
}

// put lets a frame arrive, in slots of at most part bytes if that is not 0.
func (s *source) put(t testing.TB, frame []byte, part int) {
	t.Helper()
	if part == 0 {
		part = max(len(frame), 1)
	}
	for {
		n := min(part, len(frame))
		k := s.ring.Tail() + s.have
		if k-s.ring.Accepted() >= uint32(s.ring.Len()) {
			t.Fatal("source ring is full")
		}
		sl := s.ring.Slot(k)
		sl.Off, sl.Len, sl.Flags = 0, uint32(n), 0
		copy(s.ring.Region().Buf(sl.Buf), frame[:n])
		s.have++
		if frame = frame[n:]; len(frame) == 0 {
			return
		}
		sl.Flags = ring.SlotMoreFrag
	}
}

func (s *source) sync(t testing.TB) {
	t.Helper()
	if err := s.ring.Sync(); err != nil {
		t.Fatal(err)
	}
}

// sink is an egress that keeps what it gets; room bounds what Move takes if it
// is not negative.
type sink struct {
	got     [][]byte
	room    int
	flushed int
}

func newSink() *sink { return &sink{room: -1} }

func frameAt(r *ring.Ring, k uint32) (f []byte, next uint32) {
	for {
		f = append(f, r.Frame(k)...)
		k++
		if r.Slot(k-1).Flags&ring.SlotMoreFrag == 0 {
			return f, k
		}
	}
}

func (s *sink) Move(src *ring.Ring, n int) int {
	done := 0
	for ; done < n && s.room != 0 && src.Head != src.Tail(); done++ {
		f, next := frameAt(src, src.Head)
		s.got = append(s.got, f)
		src.Head = next
		if s.room > 0 {
			s.room--
		}
	}
	src.Cur = src.Head
	return done
}

func (s *sink) Copy(src *ring.Ring, k uint32) {
	f, _ := frameAt(src, k)
	s.got = append(s.got, f)
}

func (s *sink) Flush() error { s.flushed++; return nil }

// take returns what arrived since the last call.
func (s *sink) take() [][]byte {
	g := s.got
	s.got = nil
	return g
}

// bed is a switch with ports that a test looks into.
type bed struct {
	*Switch
	src   []*source
	sinks []*sink
}

func newBed(t testing.TB, ports int, o Options) *bed {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{Switch: s}
	for range ports {
		b.add(t)
	}
	return b
}

func (b *bed) add(t testing.TB) PortID {
	t.Helper()
	k := newSink()
	id, err := b.Add(string(rune('a'+len(b.sinks))), []ring.Egress{k})
	if err != nil {
		t.Fatal(err)
	}
	if int(id) != len(b.sinks) {
		t.Fatalf("port %d has id %d", len(b.sinks), id)
	}
	b.src, b.sinks = append(b.src, newSource(t, 64)), append(b.sinks, k)
	return id
}

// send lets frames come in by a port and forwards them all.
func (b *bed) send(t testing.TB, in int, frames ...[]byte) {
	t.Helper()
	for _, f := range frames {
		b.src[in].put(t, f, 0)
	}
	b.src[in].sync(t)
	if n := b.Forward(0, PortID(in), b.src[in].ring, len(frames)); n != len(frames) {
		t.Fatalf("forwarded %d of %d frames", n, len(frames))
	}
	b.src[in].sync(t)
}

// want checks what arrived at each port since the last look.
func (b *bed) want(t testing.TB, what string, want ...[][]byte) {
	t.Helper()
	for i, s := range b.sinks {
		var w [][]byte
		if i < len(want) {
			w = want[i]
		}
		got := s.take()
		if len(got) != len(w) {
			t.Errorf("%s: port %d got %d frames, want %d", what, i, len(got), len(w))
			continue
		}
		for k := range w {
			if !bytes.Equal(got[k], w[k]) {
				t.Errorf("%s: port %d frame %d is %x, want %x", what, i, k, got[k], w[k])
			}
		}
	}
}

// frame is an Ethernet frame of 60 bytes that says its number.
func frame(dst, src MAC, n int) []byte {
	f := make([]byte, 60)
	d, s := dst.Bytes(), src.Bytes()
	copy(f, d[:])
	copy(f[6:], s[:])
	binary.BigEndian.PutUint16(f[12:], 0x88b5)
	binary.BigEndian.PutUint32(f[14:], uint32(n))
	return f
}

// Stations of the tests.
const (
	macA  = MAC(0x020000000a01)
	macB  = MAC(0x020000000b02)
	macC  = MAC(0x020000000c03)
	bcast = MAC(0xffffffffffff)
	lacp  = MAC(0x0180c2000002)
)
