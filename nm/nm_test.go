package nm_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/nm"
	"github.com/netring/netring/ring"
)

func TestMain(m *testing.M) { netlab.Main(m) }

func open(t testing.TB, s *nm.Space, name string) *nm.Desc {
	t.Helper()
	d, err := nm.Open(name, nm.Options{Space: s})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func pair(t testing.TB, opts string) (a, b *nm.Desc) {
	t.Helper()
	s := &nm.Space{}
	return open(t, s, "netmap:x{1"+opts), open(t, s, "netmap:x}1"+opts)
}

func numbered(n, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i) ^ byte(n)
	}
	binary.BigEndian.PutUint32(b, uint32(n))
	return b
}

// TestPartialRead: ten frames, seven read, three are left; and one more than
// there is room for does not go in.
func TestPartialRead(t *testing.T) {
	a, b := pair(t, "@conf:slots=16")
	for i := range 10 {
		if err := a.Inject(numbered(i, 60)); err != nil {
			t.Fatal(err)
		}
	}
	must(t, a.SyncTx())
	must(t, b.SyncRx())
	for i := range 7 {
		p, ok := b.NextPkt()
		if !ok || !bytes.Equal(p.Frame, numbered(i, 60)) {
			t.Fatalf("frame %d: %v % x", i, ok, p.Frame)
		}
	}
	must(t, b.SyncRx()) // gives up the seventh too
	must(t, a.SyncTx())
	if got := b.RxRings()[0].Space(); got != 3 {
		t.Errorf("%d frames left, want 3", got)
	}
	free := a.TxRings()[0].Space()
	if free != 13 {
		t.Errorf("%d slots free, want 16 less the 3 unread", free)
	}
	for i := range free {
		if err := a.Inject(numbered(i, 60)); err != nil {
			t.Fatalf("frame %d of %d: %v", i, free, err)
		}
	}
	if err := a.Inject(numbered(0, 60)); !errors.Is(err, nm.ErrNoRoom) {
		t.Errorf("one more than there is room for: %v", err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestFullDrainFull fills and empties a pipe over and over, both ways.
func TestFullDrainFull(t *testing.T) {
	a, b := pair(t, "@conf:slots=8")
	for round := range 1000 {
		from, to := a, b
		if round%2 == 1 {
			from, to = b, a
		}
		sent := 0
		for from.Inject(numbered(sent, 60)) == nil {
			sent++
		}
		must(t, from.SyncTx())
		must(t, to.SyncRx())
		got := 0
		for p := range to.Packets() {
			if !bytes.Equal(p.Frame, numbered(got, 60)) {
				t.Fatalf("round %d frame %d: % x", round, got, p.Frame)
			}
			got++
		}
		must(t, to.SyncRx())
		must(t, from.SyncTx())
		if sent != 8 || got != sent {
			t.Fatalf("round %d: sent %d, received %d, of 8 slots", round, sent, got)
		}
	}
}

func TestExclusive(t *testing.T) {
	for _, c := range []struct{ first, second, holder string }{
		{"netmap:x{1/x", "netmap:x{1", "netmap:x{1/x"},
		{"netmap:x{1/x", "netmap:x{1/x", "netmap:x{1/x"},
		{"netmap:x{1", "netmap:x{1/x", "netmap:x{1"},
		{"netmap:x{1", "netmap:x{1", "open already"},
	} {
		s := &nm.Space{}
		d := open(t, s, c.first)
		_, err := nm.Open(c.second, nm.Options{Space: s})
		if !errors.Is(err, nm.ErrBusy) || !strings.Contains(err.Error(), c.holder) {
			t.Errorf("%s after %s: %v", c.second, c.first, err)
		}
		must(t, d.Close())
		if _, err := nm.Open(c.second, nm.Options{Space: s}); err != nil {
			t.Errorf("%s after %s was closed: %v", c.second, c.first, err)
		}
	}
	// The other end is another port.
	s := &nm.Space{}
	open(t, s, "netmap:x{1/x")
	open(t, s, "netmap:x}1/x")
}

func TestRefusedNames(t *testing.T) {
	for name, why := range map[string]string{
		"netmap:eth0^": "host rings", "netmap:eth0*": "host rings", "netmap:eth0/z": "zero-copy monitor",
		"netmap:x{1/r": "monitor", "netmap:eth0/rT": "leave /T out", "netmap:x{1-3": "rings 0 to 0", "nosuch0": "no such interface",
	} {
		_, err := nm.Open(name, nm.Options{Space: &nm.Space{}})
		if err == nil || !strings.Contains(err.Error(), why) && !errors.Is(err, os.ErrPermission) {
			t.Errorf("%s: %v, want %q", name, err, why)
		}
	}
}

// TestPollTruth is the table of netmap's poll(2): which events come back in
// which state, and what was pushed.
func TestPollTruth(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		name           string
		received, full bool
		want, got      nm.Events
	}{
		{"in, nothing there", false, false, nm.In, 0},
		{"in, frame there", true, false, nm.In, nm.In},
		{"out, room", false, false, nm.Out, nm.Out},
		{"out, full", false, true, nm.Out, 0},
		{"both, room only", false, false, nm.In | nm.Out, nm.Out},
		{"both, frame and room", true, false, nm.In | nm.Out, nm.In | nm.Out},
		{"both, frame and full", true, true, nm.In | nm.Out, nm.In},
		{"both, neither", false, true, nm.In | nm.Out, 0},
	} {
		a, b := pair(t, "@conf:slots=4")
		if c.received {
			must(t, b.Inject(numbered(1, 60)))
			must(t, b.SyncTx())
		}
		if c.full {
			for a.Inject(numbered(1, 60)) == nil {
			}
			must(t, a.SyncTx())
		}
		got, err := a.Poll(ctx, 0, c.want)
		if err != nil || got != c.got {
			t.Errorf("%s: %b, %v; want %b", c.name, got, err, c.got)
		}
	}
	// Waiting for input hands over what was injected.
	a, b := pair(t, "")
	must(t, a.Inject(numbered(1, 60)))
	if _, err := a.Poll(ctx, 0, nm.In); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Poll(ctx, 0, nm.In); err != nil || got != nm.In {
		t.Errorf("after the other end polled for input: %b, %v", got, err)
	}
	// A frame that was looked at and kept does not make it ready.
	r := b.RxRings()[0]
	r.Cur = r.Tail()
	if got, err := b.Poll(ctx, 0, nm.In); err != nil || got != 0 {
		t.Errorf("with a frame that is kept: %b, %v", got, err)
	}
	// The end of ctx, of the peer, and of the port.
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := b.Poll(gone, -1, nm.In); !errors.Is(err, context.Canceled) {
		t.Errorf("context ended: %v", err)
	}
	r.Head = r.Tail()
	must(t, a.Close())
	if _, err := b.Poll(ctx, -1, nm.In); !errors.Is(err, ring.ErrGone) {
		t.Errorf("peer closed: %v", err)
	}
}

func TestCloseWakesPoll(t *testing.T) {
	a, _ := pair(t, "")
	woke := make(chan error)
	go func() {
		_, err := a.Poll(context.Background(), -1, nm.In)
		woke <- err
	}()
	must(t, a.Close())
	if err := <-woke; !errors.Is(err, ring.ErrClosed) {
		t.Errorf("woken with %v", err)
	}
	if err := a.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// TestTwoGoroutines: what is sent is received, in order, with both ends
// sleeping when they have nothing to do.
func TestTwoGoroutines(t *testing.T) {
	a, b := pair(t, "@conf:slots=64")
	const n = 20000
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		for i := 0; i < n; {
			switch err := a.Inject(numbered(i, 60+i%100)); {
			case err == nil:
				i++
			case errors.Is(err, nm.ErrNoRoom):
				if _, err := a.Poll(ctx, -1, nm.Out); err != nil {
					done <- err
					return
				}
			default:
				done <- err
				return
			}
		}
		done <- a.Flush(ctx)
	}()
	i := 0
	got, err := b.Dispatch(ctx, n, func(p nm.Packet) error {
		if !bytes.Equal(p.Frame, numbered(i, 60+i%100)) {
			t.Errorf("frame %d: % x", i, p.Frame[:8])
		}
		i++
		return nil
	})
	must(t, err)
	must(t, b.SyncRx()) // gives the last one back, for Flush
	if err := <-done; err != nil || got != n {
		t.Errorf("received %d of %d, sender ended with %v", got, n, err)
	}
}

func TestSharedMemory(t *testing.T) {
	s := &nm.Space{}
	a, b := open(t, s, "netmap:x{1@7"), open(t, s, "netmap:x}1@7")
	c, d := open(t, s, "netmap:y{1@7"), open(t, s, "netmap:y}1@7")
	must(t, a.Inject(numbered(5, 60)))
	must(t, a.SyncTx())
	must(t, b.SyncRx())
	rx, tx := b.RxRings()[0], c.TxRings()[0]
	buf := rx.Slot(rx.Head).Buf
	if ring.Move(tx, rx, 1) != 1 || tx.Slot(tx.Head-1).Buf != buf {
		t.Error("ports with one memory id did not exchange the buffer")
	}
	must(t, c.SyncTx())
	must(t, d.SyncRx())
	if p, ok := d.NextPkt(); !ok || !bytes.Equal(p.Frame, numbered(5, 60)) {
		t.Errorf("got % x", p.Frame)
	}
}

func TestInterface(t *testing.T) {
	netlab.NeedNet(t)
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b-0x", netlab.VethOpts{})
	in := func(ns, name string) *nm.Desc {
		var d *nm.Desc
		must(t, l.NS(ns).Do(func() (err error) {
			d, err = nm.Open(name, nm.Options{Space: &nm.Space{}})
			return err
		}))
		t.Cleanup(func() { d.Close() })
		return d
	}
	a, b := in("a", "netmap:a0"), in("b", "b-0x@tpacket:version=3")
	ring0, ring7 := in("b", "netmap:[b-0x]-0/R"), in("b", "netmap:b-0x-7/R")
	received, sent := in("b", "b-0x/r"), in("a", "a0/t")
	if len(ring0.TxRings()) != 0 || len(ring0.RxRings()) != 1 {
		t.Errorf("/R has %d transmit rings", len(ring0.TxRings()))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	const n = 50
	want := func(i int) []byte {
		f := numbered(i, 60)
		copy(f, "\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x88\xb5")
		f[20] = byte(i)
		return f
	}
	for i := range n {
		must(t, a.Inject(want(i)))
	}
	must(t, a.Flush(ctx))
	for name, d := range map[string]*nm.Desc{"reader": b, "ring 0": ring0, "monitor of received": received, "monitor of sent": sent} {
		i := 0
		got, err := d.Dispatch(ctx, n, func(p nm.Packet) error {
			if !bytes.Equal(p.Frame, want(i)) {
				t.Errorf("%s: frame %d: % x", name, i, p.Frame)
			}
			i++
			return nil
		})
		if got != n || err != nil {
			t.Errorf("%s: %d of %d frames, %v", name, got, n, err)
		}
	}
	if got, err := ring7.Poll(ctx, 0, nm.In); got != 0 || err != nil {
		t.Errorf("ring 7 of a device with one queue: %b, %v", got, err)
	}
	if err := a.Inject(make([]byte, 3000)); !errors.Is(err, ring.ErrTooLarge) {
		t.Errorf("a frame beyond the MTU: %v", err)
	}
	must(t, l.NS("b").Delete("b-0x"))
	if _, err := b.Poll(ctx, -1, nm.In); !errors.Is(err, ring.ErrGone) && !errors.Is(err, ring.ErrLinkDown) {
		t.Errorf("poll after the interface went: %v", err)
	}
}

// TestPcap writes a capture file and reads it back.
func TestPcap(t *testing.T) {
	name := "pcap:" + t.TempDir() + "/a.pcap"
	w, err := nm.Open(name, nm.Options{PcapWrite: true})
	must(t, err)
	for i := range 20 {
		must(t, w.Inject(numbered(i, 60+i)))
	}
	must(t, w.SyncTx())
	must(t, w.Close())
	r := open(t, &nm.Space{}, name)
	i := 0
	var end error
	for end == nil {
		end = r.SyncRx()
		for p := range r.Packets() {
			var m ring.Meta
			if !bytes.Equal(p.Frame, numbered(i, 60+i)) || !p.Meta(&m) || m.Time == 0 {
				t.Fatalf("frame %d: % x, %+v", i, p.Frame[:8], m)
			}
			i++
		}
	}
	if i != 20 || !errors.Is(end, io.EOF) {
		t.Errorf("%d of 20 frames, then %v", i, end)
	}
	if _, err := nm.Open("pcap:/nonexistent/x", nm.Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// BenchmarkSwitch measures frames of 60 bytes from a port of a switch to
// another, three goroutines at work: who sends, the switch, who receives.
func BenchmarkSwitch(b *testing.B) {
	for _, v := range []struct{ name, from, to string }{
		{"swap", "vale0:a", "vale0:b@vale:full=backpressure"},
		{"copy", "vale0:a@1", "vale0:b@vale:full=backpressure@2"},
	} {
		b.Run(v.name, func(b *testing.B) {
			s := &nm.Space{}
			from, to := open(b, s, v.from), open(b, s, v.to)
			open(b, s, "vale0:c") // two ports alone are a wire
			ctx := context.Background()
			must(b, to.Inject(etherFrame(bcast, macB, 0, 60)))
			must(b, to.Flush(ctx))
			f := etherFrame(macB, macA, 0, 60)
			go func() {
				tx := from.TxRings()[0]
				for sent := 0; sent < b.N; {
					n := min(tx.Space(), b.N-sent, 256)
					for range n {
						tx.Slot(tx.Head).Len, tx.Slot(tx.Head).Flags = uint32(copy(tx.Buf(tx.Head), f)), 0
						tx.Head++
					}
					tx.Cur = tx.Head
					sent += n
					if err := tx.Sync(); err != nil {
						return
					}
					if tx.Space() == 0 {
						if _, err := from.Poll(ctx, -1, nm.Out); err != nil {
							return
						}
					}
				}
			}()
			b.ReportAllocs()
			b.ResetTimer()
			rx := to.RxRings()[0]
			for got := 0; got < b.N; {
				if _, err := to.Poll(ctx, -1, nm.In); err != nil {
					b.Fatal(err)
				}
				got += ring.Skip(rx, rx.Space())
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pkts/s")
		})
	}
}

func BenchmarkPipe(b *testing.B) {
	x, y := pair(b, "")
	f := numbered(1, 60)
	b.ReportAllocs()
	for b.Loop() {
		for range 256 {
			if err := x.Inject(f); err != nil {
				b.Fatal(err)
			}
		}
		x.SyncTx()
		y.SyncRx()
		for {
			if _, ok := y.NextPkt(); !ok {
				break
			}
		}
		y.SyncRx()
		x.SyncTx()
	}
	b.ReportMetric(256*float64(b.N)/b.Elapsed().Seconds(), "pkts/s")
}
