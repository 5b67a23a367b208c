package forward

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/netring/netring/nm/vale"
	"github.com/netring/netring/poll"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/mem"
	"github.com/netring/netring/sched"
)

// hub is a bridge of several ports with a station at each.
type hub struct {
	*Bridge
	t     *testing.T
	outer []*mem.Port
	err   chan error
	stop  context.CancelFunc
	log   bytes.Buffer
}

func newHub(t *testing.T, ports int, o Options, m mem.Options) *hub {
	t.Helper()
	h := &hub{t: t, err: make(chan error, 1)}
	var p []Port
	for i := range ports {
		m.Names = [2]string{fmt.Sprintf("in%d", i), fmt.Sprintf("out%d", i)}
		in, out, err := mem.Pair(m)
		if err != nil {
			t.Fatal(err)
		}
		h.outer = append(h.outer, out)
		p = append(p, Port{Name: m.Names[0], Links: []ring.Port{in}})
	}
	o.Log = slog.New(slog.NewTextHandler(&h.log, nil))
	o.Drain = 200 * time.Millisecond
	b, err := New(p, o)
	if err != nil {
		t.Fatal(err)
	}
	h.Bridge = b
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	go func() { h.err <- h.Run(ctx) }()
	t.Cleanup(func() {
		h.end()
		for _, p := range h.outer {
			p.Close()
		}
	})
	return h
}

// end stops and closes the bridge.
func (h *hub) end() {
	h.t.Helper()
	if h.stop == nil {
		return
	}
	h.stop()
	h.stop = nil
	select {
	case err := <-h.err:
		if err != nil {
			h.t.Error(err)
		}
	case <-time.After(10 * time.Second):
		h.t.Fatal("Run does not end")
	}
	if err := h.Close(); err != nil {
		h.t.Error(err)
	}
}

// station is the address of the one at a port.
func stationAt(port int) vale.MAC { return 0x020000000001 + vale.MAC(port)<<8 }

const everybody = vale.MAC(0xffffffffffff)

// send sends n frames from the station at a port.
func (h *hub) send(worker, from int, to vale.MAC, n int) {
	h.t.Helper()
	tx := h.outer[from].TxRings()[worker]
	dst, src := to.Bytes(), stationAt(from).Bytes()
	for range n {
		for end := time.Now().Add(5 * time.Second); tx.Space() == 0; {
			if err := tx.Sync(); err != nil || time.Now().After(end) {
				h.t.Fatalf("no room to send from port %d: %v", from, err)
			}
		}
		b := tx.Buf(tx.Head)[:60]
		clear(b)
		copy(b, dst[:])
		copy(b[6:], src[:])
		s := tx.Slot(tx.Head)
		s.Len, s.Flags = 60, 0
		tx.Head++
	}
	tx.Cur = tx.Head
	if err := tx.Sync(); err != nil {
		h.t.Fatal(err)
	}
}

// take returns how many frames arrive at a port's station: it waits until there
// are n, or as long as one more might still come.
func (h *hub) take(worker, at, n int) (got int) {
	h.t.Helper()
	rx := h.outer[at].RxRings()[worker]
	for end := time.Now().Add(5 * time.Second); got < n && time.Now().Before(end); {
		if err := rx.Sync(); err != nil {
			h.t.Fatal(err)
		}
		got += ring.Skip(rx, rx.Space())
	}
	return got
}

// wait returns once the switch has taken n frames in all.
func (h *hub) wait(n int) {
	h.t.Helper()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		sum, st := 0, h.Stats()
		for i := range st.Ports {
			sum += int(st.Ports[i].Switch.Rx)
		}
		if sum == n {
			return
		}
		if time.Now().After(end) {
			h.t.Fatalf("the switch took %d frames, want %d", sum, n)
		}
	}
}

func TestSwitch(t *testing.T) {
	for _, workers := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d workers", workers), func(t *testing.T) {
			o := Options{Poll: poll.Options{Workers: workers}, Queue: sched.Options{Full: sched.Backpressure}}
			h := newHub(t, 4, o, mem.Options{Slots: 64, Rings: workers})
			last := workers - 1
			// All make themselves known.
			for i := range 4 {
				h.send(last, i, everybody, 1)
				h.wait(i + 1)
			}
			for i := range 4 {
				if got := h.take(last, i, 3); got != 3 {
					t.Errorf("station %d got %d broadcasts, want 3", i, got)
				}
			}
			// What one worker has learned all know.
			h.send(0, 1, stationAt(3), 20)
			h.send(0, 2, 0x0180c200000e, 5)
			h.send(0, 2, stationAt(2), 3)
			h.send(0, 2, 0x02ffffffffff, 2)
			h.wait(34)
			want := [4]int{2, 2, 0, 22}
			for i, n := range want {
				if got := h.take(0, i, n); got != n {
					t.Errorf("station %d got %d frames from worker 0, want %d", i, got, n)
				}
			}
			h.end()
			h.balance(4+20+5+3+2, 4*3+20+2*3)
			st := h.Stats()
			if d := st.Ports[2].Switch.Drops; d[vale.Reserved] != 5 || d[vale.SamePort] != 3 {
				t.Errorf("drops %v", d)
			}
			if got := len(h.Table().Entries()); got != 4 {
				t.Errorf("%d addresses, want 4", got)
			}
		})
	}
}

// balance checks the books of a closed bridge of which the stations have taken
// whatever they wanted.
func (h *hub) balance(received, out int) {
	h.t.Helper()
	for _, p := range h.outer {
		p.Close()
	}
	var in, sent, dropped uint64
	st := h.Stats()
	for i := range st.Ports {
		p := &st.Ports[i]
		in += p.Received()
		sent += p.Sent()
		dropped += p.Untaken + p.Abandoned
		for _, n := range p.Switch.Drops {
			dropped += n
		}
		for _, l := range p.Links {
			dropped += l.Rx.KernelDrops + l.Rx.Dropped() + l.Tx.Dropped()
		}
	}
	if in != uint64(received) || in+st.Copied != sent+dropped {
		h.t.Errorf("received %d (want %d) and copied %d, sent %d and dropped %d", in, received, st.Copied, sent, dropped)
	}
	var tx uint64
	for i := range st.Ports {
		tx += st.Ports[i].Switch.Tx
	}
	if tx != uint64(out) {
		h.t.Errorf("%d frames given to ports, want %d", tx, out)
	}
}

// The stations behind a link that went down are forgotten, those behind others
// are not.
func TestSwitchForgets(t *testing.T) {
	h := newHub(t, 3, Options{}, mem.Options{Slots: 64})
	for i := range 3 {
		h.send(0, i, everybody, 1)
	}
	h.wait(3)
	h.LinkState("in1", ring.ErrLinkDown)
	for i, want := range []bool{true, false, true} {
		if _, ok := h.Table().Lookup(stationAt(i)); ok != want {
			t.Errorf("station %d known: %v, want %v", i, ok, want)
		}
	}
	h.LinkState("in1", nil)
	h.send(0, 0, stationAt(1), 1)
	h.wait(4)
	if got := h.take(0, 2, 3); got != 3 {
		t.Errorf("station 2 got %d frames, want 3: the last one is flooded", got)
	}
	h.end()
	h.balance(4, 8)
}

// Addresses age by the bridge's clock.
func TestSwitchAges(t *testing.T) {
	h := newHub(t, 3, Options{Table: vale.TableOptions{Ageing: 100 * time.Millisecond}}, mem.Options{Slots: 64})
	h.send(0, 0, everybody, 1)
	h.wait(1)
	n := 1
	for end := time.Now().Add(10 * time.Second); ; n++ {
		if _, ok := h.Table().Lookup(stationAt(0)); !ok {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the address does not age")
		}
		time.Sleep(20 * time.Millisecond)
		h.send(0, 1, everybody, 1) // time goes on with traffic
		h.wait(n + 1)
		h.take(0, 0, 1)
		h.take(0, 2, 1)
	}
}
