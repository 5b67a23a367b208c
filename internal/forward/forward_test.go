package forward

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/netring/netring/poll"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/mem"
	"github.com/netring/netring/sched"
)

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

// Frames held for a link that is down do not keep the worker busy.
func TestLinkDownPatience(t *testing.T) {
	c := newCable(t, Options{}, mem.Options{Slots: 16}).run()
	tx := c.inner[1].TxRings()[0]
	c.LinkState("in1", nil)
	// More than the other end, which takes nothing, has room for.
	for sent, end := 0, time.Now().Add(5*time.Second); sent < 64; time.Sleep(time.Millisecond) {
		if sent += send(t, c.outer[0].TxRings()[0], sent, 64-sent, 60); time.Now().After(end) {
			t.Fatalf("%d of 64 frames taken", sent)
		}
		if err := c.outer[0].TxRings()[0].Sync(); err != nil {
			t.Fatal(err)
		}
	}
	c.LinkState("in1", ring.ErrLinkDown)
	time.Sleep(100 * time.Millisecond) // the last look while the link was up is over
	const window = 400 * time.Millisecond
	before, start := tx.Stats.Syncs.Load(), time.Now()
	time.Sleep(window)
	looks, most := tx.Stats.Syncs.Load()-before, 2+3*uint64(time.Since(start)/downWait)
	if looks > most {
		t.Errorf("%d looks at the transmit ring in %v, want at most %d", looks, time.Since(start), most)
	}
	if err := c.end(); err != nil {
		t.Error(err)
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
