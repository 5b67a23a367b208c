package forward

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/netring/netring/poll"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/mem"
	"github.com/netring/netring/sched"
)

// cable is a bridge between two pairs of memory ports: what is sent at one
// outer end is to come out of the other.
type cable struct {
	*Bridge
	t     *testing.T
	inner [2]*mem.Port // the bridge's
	outer [2]*mem.Port // the test's
	err   chan error
	stop  context.CancelFunc
	log   bytes.Buffer
}

func newCable(t *testing.T, o Options, ports ...mem.Options) *cable {
	t.Helper()
	c := &cable{t: t}
	var p []Port
	for i := range c.inner {
		m := ports[i%len(ports)]
		m.Names = [2]string{fmt.Sprintf("in%d", i), fmt.Sprintf("out%d", i)}
		var err error
		if c.inner[i], c.outer[i], err = mem.Pair(m); err != nil {
			t.Fatal(err)
		}
		p = append(p, Port{Name: m.Names[0], Links: []ring.Port{c.inner[i]}})
	}
	o.Log = slog.New(slog.NewTextHandler(&c.log, nil))
	if o.Drain == 0 {
		o.Drain = 200 * time.Millisecond
	}
	b, err := New(p, o)
	if err != nil {
		t.Fatal(err)
	}
	c.Bridge = b
	t.Cleanup(func() {
		c.end()
		for _, p := range c.outer {
			p.Close()
		}
	})
	return c
}

// run starts the bridge.
func (c *cable) run() *cable {
	ctx, stop := context.WithCancel(context.Background())
	c.stop, c.err = stop, make(chan error, 1)
	go func() { c.err <- c.Run(ctx) }()
	return c
}

// end stops the bridge and closes it, and returns what Run said.
func (c *cable) end() (err error) {
	if c.stop != nil {
		c.stop()
		c.stop = nil
		select {
		case err = <-c.err:
		case <-time.After(10 * time.Second):
			c.t.Fatal("Run does not end")
		}
	}
	if cerr := c.Close(); cerr != nil {
		c.t.Error(cerr)
	}
	return err
}

// send puts up to n numbered frames of size bytes into an outer transmit ring,
// from number seq on, and returns how many there was room for.
func send(t *testing.T, tx *ring.Ring, seq, n, size int) int {
	t.Helper()
	n = min(n, tx.Space())
	for i := range n {
		b := tx.Buf(tx.Head)
		clear(b[:size])
		b[12], b[13] = 0x88, 0xb5
		binary.BigEndian.PutUint64(b[14:], uint64(seq+i))
		*tx.Slot(tx.Head) = ring.Slot{Buf: tx.Slot(tx.Head).Buf, Off: tx.Slot(tx.Head).Off, Len: uint32(size)}
		tx.Head++
	}
	tx.Cur = tx.Head
	if err := tx.Sync(); err != nil {
		t.Fatal(err)
	}
	return n
}

// receive takes what has arrived, checks that numbers rise, and returns how
// many frames there were and the number after the last.
func receive(t *testing.T, rx *ring.Ring, next uint64) (n int, after uint64) {
	t.Helper()
	if err := rx.Sync(); errors.Is(err, ring.ErrGone) {
		return 0, next // the other end is closed and nothing is left
	} else if err != nil {
		t.Fatal(err)
	}
	for ; rx.Head != rx.Tail(); rx.Head++ {
		f := rx.Frame(rx.Head)
		seq := binary.BigEndian.Uint64(f[14:])
		if seq < next {
			t.Fatalf("frame %d after %d", seq, next-1)
		}
		next = seq + 1
		n++
	}
	rx.Cur = rx.Head
	if err := rx.Sync(); err != nil && !errors.Is(err, ring.ErrGone) {
		t.Fatal(err)
	}
	return n, next
}

// sums are the totals of all ports.
func (c *cable) sums() (received, sent, dropped, copied uint64) {
	s := c.Stats()
	for i := range s.Ports {
		p := &s.Ports[i]
		received += p.Received()
		sent += p.Sent()
		dropped += p.Untaken + p.Abandoned + p.Filtered + p.NoLink
		for _, l := range p.Links {
			dropped += l.Rx.KernelDrops + l.Rx.Dropped() + l.Tx.Dropped()
		}
	}
	return received, sent, dropped, s.Copied
}

// balance checks the books once everything is closed.
func (c *cable) balance(wantReceived int) {
	c.t.Helper()
	received, sent, dropped, copied := c.sums()
	if received != uint64(wantReceived) || received+copied != sent+dropped {
		c.t.Errorf("received %d (want %d) and copied %d, sent %d and dropped %d", received, wantReceived, copied, sent, dropped)
	}
}

var policies = map[string]sched.Options{
	"off":          {},
	"default":      sched.Defaults(),
	"backpressure": {Full: sched.Backpressure},
	"held":         {QueuePackets: 4, Full: sched.Backpressure},
	"staged":       {StagePackets: 3},
}

// Through rings of any size and with any policy, frames come out in order and
// all are accounted for; with back-pressure none is lost.
func TestConservation(t *testing.T) {
	for name, q := range policies {
		for _, slots := range []int{2, 256} {
			for _, mode := range []poll.Mode{poll.Adaptive, poll.Interrupt, poll.Tick, poll.Busy} {
				t.Run(fmt.Sprintf("%s %d %v", name, slots, mode), func(t *testing.T) {
					c := newCable(t, Options{Queue: q, Poll: poll.Options{Mode: mode}}, mem.Options{Slots: slots}).run()
					const total = 500
					sent, got, next := 0, 0, uint64(0)
					for quiet := 0; sent < total || quiet < 20; {
						sent += send(t, c.outer[0].TxRings()[0], sent, total-sent, 60+sent%1000)
						n, after := receive(t, c.outer[1].RxRings()[0], next)
						got, next = got+n, after
						if quiet++; n != 0 {
							quiet = 0
						}
						if n == 0 {
							time.Sleep(time.Millisecond)
						}
						if got == total {
							break
						}
					}
					if err := c.end(); err != nil {
						t.Fatal(err)
					}
					n, _ := receive(t, c.outer[1].RxRings()[0], next)
					got += n
					_, _, dropped, _ := c.sums()
					if uint64(got)+dropped != total {
						t.Errorf("%d sent, %d received, %d counted as dropped", sent, got, dropped)
					}
					if q.Full == sched.Backpressure && got != total {
						t.Errorf("back-pressure lost %d", total-got)
					}
					c.balance(total)
				})
			}
		}
	}
}

// Nobody takes what comes out: the bridge ends in time all the same, and what
// was left over is counted.
func TestStopWhileFull(t *testing.T) {
	for name, q := range policies {
		t.Run(name, func(t *testing.T) {
			c := newCable(t, Options{Queue: q, Drain: 50 * time.Millisecond}, mem.Options{Slots: 8}).run()
			sent := 0
			for range 20 {
				sent += send(t, c.outer[0].TxRings()[0], sent, 8, 60)
				time.Sleep(time.Millisecond)
			}
			start := time.Now()
			if err := c.end(); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(start); d > 2*time.Second {
				t.Errorf("took %v to end", d)
			}
			for _, p := range c.outer {
				p.Close()
			}
			received, out, dropped, _ := c.sums()
			if received > uint64(sent) || received != out+dropped || dropped == 0 {
				t.Errorf("%d sent: received %d, forwarded %d, dropped %d", sent, received, out, dropped)
			}
		})
	}
}

// Two workers have rings of their own and share nothing.
func TestTwoWorkers(t *testing.T) {
	c := newCable(t, Options{Poll: poll.Options{Workers: 2}, Queue: policies["backpressure"]}, mem.Options{Rings: 2, Slots: 64}).run()
	var got, sent [2]int
	var next [2]uint64
	for end := time.Now().Add(10 * time.Second); got[0]+got[1] < 2000 && time.Now().Before(end); {
		for i := range 2 {
			sent[i] += send(t, c.outer[0].TxRings()[i], sent[i], 1000-sent[i], 60)
			n, after := receive(t, c.outer[1].RxRings()[i], next[i])
			got[i], next[i] = got[i]+n, after
		}
	}
	if got != [2]int{1000, 1000} {
		t.Errorf("received %v", got)
	}
	if err := c.end(); err != nil {
		t.Error(err)
	}
	c.balance(2000)
}

// Frames for a link that is down are dropped under that cause; each change is
// said once.
func TestLinkState(t *testing.T) {
	c := newCable(t, Options{}, mem.Options{Slots: 64}).run()
	c.LinkState("in1", nil)
	for range 3 {
		c.LinkState("in1", fmt.Errorf("wrapped: %w", ring.ErrLinkDown))
	}
	send(t, c.outer[0].TxRings()[0], 0, 10, 60)
	for end := time.Now().Add(5 * time.Second); c.Stats().Ports[1].Links[0].Tx.Drops[ring.DropLink] != 10; {
		if time.Now().After(end) {
			t.Fatalf("drops %v", c.Stats().Ports[1].Links[0].Tx.Drops)
		}
		time.Sleep(time.Millisecond)
	}
	c.LinkState("in1", nil)
	send(t, c.outer[0].TxRings()[0], 10, 10, 60)
	n := 0
	for end := time.Now().Add(5 * time.Second); n < 10 && time.Now().Before(end); {
		k, _ := receive(t, c.outer[1].RxRings()[0], 0)
		n += k
	}
	if err := c.end(); err != nil || n != 10 {
		t.Errorf("%d frames after the link was back, err %v", n, err)
	}
	c.balance(20)
	if s := c.log.String(); strings.Count(s, "link is down") != 1 || strings.Count(s, "link is up") != 1 {
		t.Errorf("log:\n%s", s)
	}
}

// A link that is gone ends the bridge with its name.
func TestLinkGone(t *testing.T) {
	c := newCable(t, Options{}, mem.Options{}).run()
	c.LinkState("in1", ring.ErrGone)
	select {
	case err := <-c.err:
		if !errors.Is(err, ring.ErrGone) || !strings.Contains(err.Error(), "in1") {
			t.Errorf("Run: %v", err)
		}
		c.stop = nil
	case <-time.After(5 * time.Second):
		t.Fatal("Run goes on")
	}
}

// A port that somebody closes while traffic flows ends the bridge, and nobody
// touches its memory any more.
func TestPortClosedUnderTraffic(t *testing.T) {
	for i := range 2 {
		c := newCable(t, Options{}, mem.Options{Slots: 16}).run()
		go func() {
			time.Sleep(5 * time.Millisecond)
			c.inner[i].Close()
		}()
		for seq := 0; ; seq++ {
			tx := c.outer[0].TxRings()[0]
			if err := tx.Sync(); err != nil {
				break
			}
			if tx.Space() != 0 {
				tx.Buf(tx.Head)
				tx.Slot(tx.Head).Len, tx.Slot(tx.Head).Flags = 60, 0
				tx.Head++
				tx.Cur = tx.Head
			}
			rx := c.outer[1].RxRings()[0]
			if err := rx.Sync(); err != nil {
				break
			}
			ring.Skip(rx, rx.Space())
		}
		select {
		case err := <-c.err:
			if err == nil {
				t.Error("Run ended without an error")
			}
		case <-time.After(5 * time.Second):
			t.Fatal("Run goes on")
		}
		c.stop = nil
	}
}

// Unfinished frames leave finished through a ring without virtio-net header,
// in order with the others.
func TestFinish(t *testing.T) {
	with := mem.Options{Slots: 64, VnetLen: ring.VnetLen, BufSize: ring.MaxFrame + mem.DefaultHeadroom}
	c := newCable(t, Options{Queue: policies["backpressure"]}, with, mem.Options{Slots: 256}).run()
	tx := c.outer[0].TxRings()[0]
	const segments, size = 5, 1000
	for kind := range 3 {
		payload := 200
		if kind == 2 {
			payload = segments * size
		}
		f := tcpFrame(payload)
		copy(tx.Buf(tx.Head), f)
		s := tx.Slot(tx.Head)
		s.Len, s.Flags = uint32(len(f)), 0
		if kind > 0 {
			v := ring.Vnet{Flags: ring.VnetNeedCsum, CsumStart: 34, CsumOffset: 16}
			if kind == 2 {
				v.GSOType, v.GSOSize, v.HdrLen = ring.VnetGSOTCPv4, size, 54
			}
			if !tx.SetVnet(tx.Head, &v) {
				t.Fatal("no room for the header")
			}
		}
		tx.Head++
	}
	tx.Cur = tx.Head
	if err := tx.Sync(); err != nil {
		t.Fatal(err)
	}
	var lens []int
	rx := c.outer[1].RxRings()[0]
	for end := time.Now().Add(5 * time.Second); len(lens) < 2+segments && time.Now().Before(end); time.Sleep(time.Millisecond) {
		if err := rx.Sync(); err != nil {
			t.Fatal(err)
		}
		for ; rx.Head != rx.Tail(); rx.Head++ {
			f := rx.Frame(rx.Head)
			lens = append(lens, len(f))
			if len(lens) > 1 && tcpSum(f) != 0xffff {
				t.Errorf("frame %d: wrong checksum", len(lens))
			}
		}
		rx.Cur = rx.Head
	}
	want := []int{254, 254, 1054, 1054, 1054, 1054, 1054}
	if fmt.Sprint(lens) != fmt.Sprint(want) {
		t.Errorf("lengths %v, want %v", lens, want)
	}
	if err := rx.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := c.end(); err != nil {
		t.Error(err)
	}
	if _, _, _, copied := c.sums(); copied != segments-1 {
		t.Errorf("%d frames made, want %d", copied, segments-1)
	}
	c.balance(3)
}

// tcpFrame is a TCP segment over IPv4 whose checksum covers the pseudo header.
func tcpFrame(payload int) []byte {
	f := make([]byte, 54+payload)
	f[12], f[13] = 0x08, 0x00
	ip := f[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, 6
	binary.BigEndian.PutUint16(ip[2:], uint16(len(f)-14))
	copy(ip[12:], []byte{10, 0, 0, 1, 10, 0, 0, 2})
	tcp := ip[20:]
	tcp[12] = 5 << 4
	for i := range tcp[20:] {
		tcp[20+i] = byte(i * 3)
	}
	pseudo := sum16(ip[12:20], 6+uint32(20+payload))
	binary.BigEndian.PutUint16(tcp[16:], pseudo)
	return f
}

// tcpSum adds up a segment with its pseudo header: 0xffff if it is right.
func tcpSum(f []byte) uint16 {
	total := int(binary.BigEndian.Uint16(f[16:]))
	return sum16(f[34:14+total], uint32(sum16(f[26:34], 6+uint32(total-20))))
}

func sum16(b []byte, acc uint32) uint16 {
	for i := 0; i < len(b); i += 2 {
		acc += uint32(b[i]) << 8
		if i+1 < len(b) {
			acc += uint32(b[i+1])
		}
	}
	for acc > 0xffff {
		acc = acc>>16 + acc&0xffff
	}
	return uint16(acc)
}

func TestNewRefuses(t *testing.T) {
	a, b, err := mem.Pair(mem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	defer b.Close()
	one := Port{Name: "a", Links: []ring.Port{a}}
	for _, tc := range []struct {
		ports []Port
		o     Options
		want  string
	}{
		{[]Port{one}, Options{}, "at least two"},
		{[]Port{one, {Name: "b", Links: []ring.Port{b}}}, Options{Poll: poll.Options{Workers: 2}}, "2 workers need one of each"},
		{[]Port{one, {Name: "b"}}, Options{}, "0 links"},
		{[]Port{one, one}, Options{Drain: -1}, "drain"},
		{[]Port{one, one}, Options{Poll: poll.Options{Workers: -1}}, "workers"},
	} {
		if _, err := New(tc.ports, tc.o); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v, want one with %q", err, tc.want)
		}
	}
}

// The path of a frame allocates nothing.
func BenchmarkRound(b *testing.B) {
	for name, q := range policies {
		b.Run(name, func(b *testing.B) {
			step, done := roundStep(b, q)
			defer done()
			b.ReportAllocs()
			frames := 0
			for b.Loop() {
				frames += step()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(frames), "ns/frame")
		})
	}
}

func TestRoundAllocatesNothing(t *testing.T) {
	for name, q := range policies {
		step, done := roundStep(t, q)
		if n := testing.AllocsPerRun(100, func() { step() }); n != 0 {
			t.Errorf("%s: %v allocations a round", name, n)
		}
		done()
	}
}

// roundStep makes a function that sends 32 frames through a bridge's handlers,
// without the scheduler, and returns how many came out.
func roundStep(tb testing.TB, q sched.Options) (step func() int, done func()) {
	tb.Helper()
	var p []Port
	var outer []*mem.Port
	for range 2 {
		in, out, err := mem.Pair(mem.Options{Slots: 64})
		if err != nil {
			tb.Fatal(err)
		}
		p = append(p, Port{Name: in.Name(), Links: []ring.Port{in}})
		outer = append(outer, out)
	}
	b, err := New(p, Options{Queue: q, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		tb.Fatal(err)
	}
	tx, rx := outer[0].TxRings()[0], outer[1].RxRings()[0]
	stations := b.workers[0].stations
	return func() int {
			for range min(32, tx.Space()) {
				tx.Buf(tx.Head)
				tx.Slot(tx.Head).Len, tx.Slot(tx.Head).Flags = 60, 0
				tx.Head++
			}
			tx.Cur = tx.Head
			_ = tx.Sync()
			for _, s := range stations {
				_, _ = s.Poll(64)
			}
			for _, s := range stations {
				_ = s.Flush()
			}
			_ = rx.Sync()
			n := ring.Skip(rx, rx.Space())
			_ = rx.Sync()
			return n
		}, func() {
			_ = b.Close()
			for _, o := range outer {
				o.Close()
			}
		}
}
