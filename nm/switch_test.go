package nm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/netring/netring/nm"
	"github.com/netring/netring/nm/vale"
	"github.com/netring/netring/ring"
)

// Addresses of stations.
const (
	macA  = vale.MAC(0x02000000000a)
	macB  = vale.MAC(0x02000000000b)
	macC  = vale.MAC(0x02000000000c)
	bcast = vale.MAC(0xffffffffffff)
)

// etherFrame is a numbered frame of size bytes.
func etherFrame(dst, src vale.MAC, n, size int) []byte {
	f := numbered(n, size)
	d, s := dst.Bytes(), src.Bytes()
	copy(f, d[:])
	copy(f[6:], s[:])
	if size > 20 {
		f[12], f[13] = 0x88, 0xb5
		copy(f[14:], []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
	}
	return f
}

// limit ends a test that waits for what does not come.
func limit(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// send hands frames over, and waits until the port is done with them: those for
// others are with them then, or counted as dropped.
func send(t testing.TB, d *nm.Desc, frames ...[]byte) {
	t.Helper()
	for _, f := range frames {
		must(t, d.Inject(f))
	}
	must(t, d.Flush(limit(t)))
}

// want receives exactly these frames.
func want(t testing.TB, who string, d *nm.Desc, frames ...[]byte) {
	t.Helper()
	ctx := limit(t)
	for i, f := range frames {
		p, ok := d.NextPkt()
		for !ok {
			if _, err := d.Poll(ctx, -1, nm.In); err != nil {
				t.Fatalf("%s: frame %d of %d: %v", who, i, len(frames), err)
			}
			p, ok = d.NextPkt()
		}
		if !bytes.Equal(p.Frame, f) {
			t.Fatalf("%s: frame %d of %d: % x..., want % x...", who, i, len(frames), p.Frame[:min(24, len(p.Frame))], f[:min(24, len(f))])
		}
	}
	must(t, d.SyncRx())
	if p, ok := d.NextPkt(); ok {
		t.Fatalf("%s: one frame too many: % x...", who, p.Frame[:min(24, len(p.Frame))])
	}
}

// ports opens ports of one switch; opts goes behind each name.
func ports(t testing.TB, s *nm.Space, n int, opts string) []*nm.Desc {
	t.Helper()
	d := make([]*nm.Desc, n)
	for i := range d {
		d[i] = open(t, s, fmt.Sprintf("vale0:p%d%s", i, opts))
	}
	return d
}

// stats are the counters of port i.
func stats(t testing.TB, d *nm.Desc, i int) nm.SwitchPort {
	t.Helper()
	all := d.Switch().Ports()
	if i >= len(all) {
		t.Fatalf("the switch has %d ports", len(all))
	}
	return all[i]
}

// TestSwitchLearns: a frame to an unknown address goes everywhere, the answer
// and what comes after it to one port only.
func TestSwitchLearns(t *testing.T) {
	d := ports(t, &nm.Space{}, 4, "")
	first := etherFrame(macB, macA, 1, 60)
	send(t, d[0], first)
	for i, p := range d[1:] {
		want(t, fmt.Sprintf("flooded to p%d", i+1), p, first)
	}
	answer := etherFrame(macA, macB, 2, 60)
	send(t, d[2], answer)
	want(t, "answer", d[0], answer)
	known := etherFrame(macB, macA, 3, 60)
	send(t, d[0], known)
	want(t, "known", d[2], known)
	want(t, "not for p1", d[1])
	want(t, "not for p3", d[3])
	want(t, "not for its sender", d[0])

	// The station moves.
	moved := etherFrame(bcast, macB, 4, 60)
	send(t, d[3], moved)
	for _, i := range []int{0, 1, 2} {
		want(t, "broadcast", d[i], moved)
	}
	send(t, d[0], known)
	want(t, "moved", d[3], known)
	want(t, "left", d[2])

	// What a bridge drops: to the port that it came from, from a group, to
	// the neighbours only, without a header.
	send(t, d[3], etherFrame(macB, macC, 5, 60), etherFrame(macA, bcast, 6, 60), etherFrame(0x0180c2000000, macC, 7, 60), etherFrame(macA, macC, 8, 60)[:13])
	want(t, "nothing of that", d[0])
	st := stats(t, d[0], 3)
	for _, c := range []vale.Cause{vale.SamePort, vale.BadSource, vale.Reserved, vale.Runt} {
		if st.Drops[c] != 1 {
			t.Errorf("%d drops for %v, want 1", st.Drops[c], c)
		}
	}
	if st.Rx != 5 || st.Flooded != 1 || st.Tx != 2 || st.Name != "p3" || st.Interface || st.Err != nil {
		t.Errorf("counters of p3: %+v", st)
	}
	table := map[vale.MAC]vale.PortID{}
	for _, e := range d[1].Switch().Table().Entries() {
		table[e.MAC] = e.Port
	}
	if len(table) != 3 || table[macA] != stats(t, d[0], 0).ID || table[macB] != st.ID || table[macC] != st.ID {
		t.Errorf("table: %v", table)
	}
}

// TestSwitchZeroCopy: buffers travel from port to port.
func TestSwitchZeroCopy(t *testing.T) {
	d := ports(t, &nm.Space{}, 3, "")
	tx := d[0].TxRings()[0]
	for _, p := range d[1:] {
		if p.TxRings()[0].Region() != tx.Region() {
			t.Fatal("ports of one switch have memory of their own")
		}
	}
	send(t, d[1], etherFrame(bcast, macB, 0, 60))
	buf := tx.Slot(tx.Head).Buf
	send(t, d[0], etherFrame(macB, macA, 1, 60))
	if _, err := d[1].Poll(limit(t), -1, nm.In); err != nil {
		t.Fatal(err)
	}
	if p, ok := d[1].NextPkt(); !ok || p.Ring.Slot(p.Slot).Buf != buf {
		t.Errorf("buffer %d of the sender did not arrive: %v %+v", buf, ok, p.Ring.Slot(p.Slot))
	}
	// More ports than the first region has room for: others are copied to.
	more := ports(t, &nm.Space{}, 20, "@conf:slots=4")
	f := etherFrame(bcast, macA, 2, 60)
	send(t, more[0], f)
	for i, p := range more[1:] {
		want(t, fmt.Sprint("port ", i+1), p, f)
	}
}

// TestSwitchFull: a full port loses frames, all of them counted, and holds
// nobody up.
func TestSwitchFull(t *testing.T) {
	d := ports(t, &nm.Space{}, 3, "@conf:slots=16")
	send(t, d[1], etherFrame(bcast, macB, 0, 60))
	want(t, "bcast", d[2], etherFrame(bcast, macB, 0, 60))
	const n = 200
	for i := range n {
		send(t, d[0], etherFrame(macB, macA, i, 60), etherFrame(macC, macA, i, 60))
		p, ok := d[2].NextPkt()
		for ; !ok; p, ok = d[2].NextPkt() {
			if _, err := d[2].Poll(limit(t), -1, nm.In); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(p.Frame, etherFrame(macC, macA, i, 60)) {
			t.Fatalf("flooded frame %d: % x", i, p.Frame)
		}
	}
	must(t, d[1].SyncRx())
	got := 0
	for range d[1].Packets() {
		got++
	}
	must(t, d[1].SyncRx())
	st := stats(t, d[0], 1)
	if got != 16 || st.Tx != 2*n || st.Dropped[ring.DropFull] != 2*n-16 {
		t.Errorf("received %d of 16, of %d frames %d were dropped as full", got, st.Tx, st.Dropped[ring.DropFull])
	}
	if in := stats(t, d[0], 0); in.Rx != 2*n {
		t.Errorf("%d frames were taken from the sender, want %d", in.Rx, 2*n)
	}
}

// TestSwitchBackpressure: a port that wants it gets every frame, however slow.
func TestSwitchBackpressure(t *testing.T) {
	s := &nm.Space{}
	a, b := open(t, s, "vale0:a@conf:slots=16"), open(t, s, "vale0:b@vale:full=backpressure@conf:slots=8")
	open(t, s, "vale0:c")
	send(t, b, etherFrame(bcast, macB, 0, 60))
	want(t, "bcast", a, etherFrame(bcast, macB, 0, 60))
	ctx := limit(t)
	// Nobody reads: the frames stay with the sender, and it sees that.
	sent := 0
	for stuck := 0; stuck < 3; {
		if a.Inject(etherFrame(macB, macA, sent, 60)) == nil {
			sent++
			continue
		}
		if ready, err := a.Poll(ctx, 20*time.Millisecond, nm.Out); err != nil {
			t.Fatal(err)
		} else if ready == 0 {
			stuck++
		}
	}
	if sent > 24 {
		t.Errorf("%d frames went into rings of 16 and 8", sent)
	}
	// The rest goes as they are read, from another goroutine, both sleeping
	// in between.
	const n = 5000
	done := make(chan error, 1)
	go func() {
		for i := sent; i < n; {
			if a.Inject(etherFrame(macB, macA, i, 60)) == nil {
				i++
			} else if _, err := a.Poll(ctx, -1, nm.Out); err != nil {
				done <- err
				return
			}
		}
		done <- a.Flush(ctx)
	}()
	i := 0
	_, err := b.Dispatch(ctx, n, func(p nm.Packet) error {
		if !bytes.Equal(p.Frame, etherFrame(macB, macA, i, 60)) {
			return fmt.Errorf("frame %d: % x", i, p.Frame)
		}
		i++
		return nil
	})
	must(t, err)
	must(t, b.SyncRx())
	must(t, <-done)
	if st := stats(t, a, 1); st.Dropped != [ring.NumCauses]uint64{} || st.Tx != n {
		t.Errorf("of %d frames some were dropped: %v", st.Tx, st.Dropped)
	}
}

// TestSwitchConserves: every frame that the switch takes is dropped by it, or
// given to a port and there received or dropped; copies included.
func TestSwitchConserves(t *testing.T) {
	const n, perPort = 5, 400
	d := ports(t, &nm.Space{}, n, "@conf:slots=64")
	got := make([]uint64, n)
	for round := range perPort {
		for i, p := range d {
			dst := []vale.MAC{bcast, macA + vale.MAC(round%n), macA + 99, 0x0180c2000000}[(round+i)%4]
			if err := p.Inject(etherFrame(dst, macA+vale.MAC(i), round, 60)); err != nil {
				must(t, p.Flush(limit(t)))
				must(t, p.Inject(etherFrame(dst, macA+vale.MAC(i), round, 60)))
			}
		}
		if round%7 == 0 {
			for i, p := range d {
				must(t, p.Sync())
				for range p.Packets() {
					got[i]++
				}
			}
		}
	}
	for _, p := range d {
		must(t, p.Flush(limit(t)))
	}
	for i, p := range d {
		for more := true; more; {
			must(t, p.SyncRx())
			_, more = p.NextPkt()
			if more {
				got[i]++
			}
		}
	}
	for i, st := range d[0].Switch().Ports() {
		var lost uint64
		for _, c := range st.Dropped {
			lost += c
		}
		if st.Rx != perPort || st.Tx != got[i]+lost {
			t.Errorf("port %d: took %d of %d frames; was given %d, received %d, lost %d", i, st.Rx, perPort, st.Tx, got[i], lost)
		}
	}
}

// TestSwitchLookup: the program decides.
func TestSwitchLookup(t *testing.T) {
	s := &nm.Space{}
	isolate := nm.SwitchOptions{Lookup: func(b *vale.Batch) {
		b.Learning()
		for i, to := range b.Dst {
			switch {
			case b.In == 0: // the way out sees all
			case to == vale.Flood:
				b.Dst[i] = 0
			case to != 0 && to < vale.MaxPorts:
				b.Dst[i] = vale.Filtered.Verdict()
			}
		}
	}}
	up, err := nm.Open("vale0:up", nm.Options{Space: s, Switch: isolate})
	must(t, err)
	defer up.Close()
	a, b := open(t, s, "vale0:a"), open(t, s, "vale0:b")
	f := etherFrame(bcast, macA, 1, 60)
	send(t, a, f)
	want(t, "up", up, f)
	f = etherFrame(macA, macB, 2, 60)
	send(t, b, f)
	want(t, "a", a)
	f = etherFrame(bcast, macC, 3, 60)
	send(t, up, f)
	want(t, "from up", a, f)
	want(t, "from up", b, f)
	if st := stats(t, a, 2); st.Drops[vale.Filtered] != 1 {
		t.Errorf("b: %+v", st)
	}
	if _, err := nm.Open("vale0:c", nm.Options{Space: s, Switch: isolate}); err == nil || !strings.Contains(err.Error(), "first port") {
		t.Errorf("a second lookup: %v", err)
	}
}

// TestSwitchExclusive is the matrix of who may open what after whom.
func TestSwitchExclusive(t *testing.T) {
	for _, c := range []struct{ first, second, holder string }{
		{"vale0:p", "vale0:p", "open already, as vale0:p"},
		{"vale0:p/x", "vale0:p", "vale0:p/x has it for itself"},
		{"vale0:p", "vale0:p/x", "open as vale0:p"},
		{"vale0:p/x", "vale0:p/x", "vale0:p/x has it for itself"},
		{"vale0:p/x", "vale0:p/r", "vale0:p/x has it for itself"},
		{"vale0:p/x", "vale0:q/x", ""},
		{"vale0:p/x", "vale1:p/x", ""},
		{"vale0:p/x", "vale0:p{1/x", ""},
	} {
		s := &nm.Space{}
		first := open(t, s, c.first)
		second, err := nm.Open(c.second, nm.Options{Space: s})
		switch {
		case c.holder == "":
			if err != nil {
				t.Errorf("%s after %s: %v", c.second, c.first, err)
				continue
			}
			must(t, second.Close())
		case !errors.Is(err, nm.ErrBusy) || !strings.Contains(err.Error(), c.holder):
			t.Errorf("%s after %s: %v, want it to say %q", c.second, c.first, err, c.holder)
		}
		must(t, first.Close())
		if s.Switches() != nil {
			t.Errorf("%s, %s: the switch is there without ports", c.first, c.second)
		}
	}
}
