package forward

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

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
