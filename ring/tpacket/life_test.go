package tpacket_test

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/ringtest"
	"github.com/netring/netring/ring/tpacket"
)

func TestOpenErrors(t *testing.T) {
	netlab.NeedNet(t)
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	in := func(name string, o tpacket.Options) error {
		return l.NS("a").Do(func() error {
			p, err := tpacket.Open(name, o)
			if err == nil {
				p.Close()
			}
			return err
		})
	}
	if err := in("nosuch", tpacket.Options{}); !errors.Is(err, ring.ErrNoInterface) || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("unknown interface: %v", err)
	}
	for _, o := range []tpacket.Options{{Version: 1}, {RxSlots: 3}, {VnetLen: 11}, {BlockSize: 4096, Version: tpacket.V3}, {FlowHash: true}, {RxQueues: -1, TxQueues: -1}, {Fanout: tpacket.FanoutRollover, Rollover: true}} {
		if in("a0", o) == nil {
			t.Errorf("%+v accepted", o)
		}
	}
}

func TestPermission(t *testing.T) {
	if os.Getuid() == 0 && netlab.Root() {
		t.Skip("root may")
	}
	if netlab.Available() == nil {
		t.Skip("root of a user namespace may")
	}
	if _, err := tpacket.Open("lo", tpacket.Options{}); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "CAP_NET_RAW") {
		t.Errorf("open without privilege: %v", err)
	}
}

func TestLinkDownAndGone(t *testing.T) {
	netlab.NeedNet(t)
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	p, peer := open(t, l.NS("a"), "a0", tpacket.Options{}), open(t, l.NS("b"), "b0", tpacket.Options{})
	tx, rx, far := p.TxRings()[0], p.RxRings()[0], peer.RxRings()[0]
	run := func(ns string, args ...string) {
		t.Helper()
		if out, err := l.NS(ns).Exec("ip", args...); err != nil {
			t.Fatal(out, err)
		}
	}
	run("a", "link", "set", "a0", "down")
	ringtest.Put(t, tx, frame(unicast, nil, 60, 1))
	if err := tx.Sync(); !errors.Is(err, ring.ErrLinkDown) {
		t.Errorf("send while down: %v", err)
	}
	if err := rx.Refresh(); !errors.Is(err, ring.ErrLinkDown) {
		t.Errorf("receive ring while down: %v", err)
	}
	if tx.Pending() != 1 {
		t.Errorf("%d frames pending, want the 1 that was not lost", tx.Pending())
	}
	run("a", "link", "set", "a0", "up")
	deadline := time.Now().Add(patience)
	for rx.Refresh() != nil && time.Now().Before(deadline) {
	}
	ringtest.Flush(t, tx)
	if got, _, _ := ringtest.Get(t, far); !bytes.Equal(got, frame(unicast, nil, 60, 1)) {
		t.Errorf("after up: got % x", got)
	}
	run("b", "link", "del", "b0")
	if err := rx.Refresh(); !errors.Is(err, ring.ErrGone) {
		t.Errorf("receive ring of a deleted interface: %v", err)
	}
	ringtest.Put(t, tx, frame(unicast, nil, 60, 2))
	if err := tx.Sync(); !errors.Is(err, ring.ErrGone) {
		t.Errorf("send on a deleted interface: %v", err)
	}
	var err error
	for range 1 << 15 {
		if err = rx.Sync(); err != nil {
			break
		}
	}
	if !errors.Is(err, ring.ErrGone) {
		t.Errorf("a receive ring that can bring nothing any more never says so: %v", err)
	}
}

// TestCloseDuringTraffic: Close while goroutines fill and read rings that never
// rest.
func TestCloseDuringTraffic(t *testing.T) {
	netlab.NeedNet(t)
	versions(t, func(t *testing.T, o tpacket.Options) {
		l := netlab.Setup(t, "a", "b")
		l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
		for range 2 {
			a, b := open(t, l.NS("a"), "a0", o), open(t, l.NS("b"), "b0", o)
			tx, rx := a.TxRings()[0], b.RxRings()[0]
			done := make(chan error, 2)
			var moved atomic.Int64
			go func() {
				f := frame(unicast, nil, 60, 0)
				done <- inside(tx, tx, func() error {
					for tx.Space() > 0 {
						tx.Slot(tx.Head).Len = uint32(copy(tx.Buf(tx.Head), f))
						tx.Head++
					}
					tx.Cur = tx.Head
					return tx.Sync()
				})
			}()
			go func() {
				done <- inside(rx, rx, func() error {
					err := rx.Sync()
					for ; err == nil && rx.Space() > 0; rx.Head++ {
						moved.Add(int64(rx.Frame(rx.Head)[20])>>8 + 1)
					}
					rx.Cur = rx.Head
					return err
				})
			}()
			for deadline := time.Now().Add(patience); moved.Load() < 500 && time.Now().Before(deadline); {
				runtime.Gosched()
			}
			if err := errors.Join(a.Close(), b.Close()); err != nil {
				t.Error(err)
			}
			for range 2 {
				if err := <-done; !errors.Is(err, ring.ErrClosed) {
					t.Error(err)
				}
			}
			if moved.Load() < 500 {
				t.Errorf("%d frames moved before Close", moved.Load())
			}
		}
	})
}

func TestCloseWakesWaiter(t *testing.T) {
	netlab.NeedNet(t)
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	rx := open(t, l.NS("a"), "a0", tpacket.Options{TxQueues: -1})
	r := rx.RxRings()[0]
	if err := r.Enter(); err != nil {
		t.Fatal(err)
	}
	woke := make(chan int16)
	go func() {
		p := []unix.PollFd{{Fd: int32(r.FD()), Events: unix.POLLIN}, {Fd: int32(r.WakeFD()), Events: unix.POLLIN}}
		for {
			if _, err := unix.Poll(p, -1); !errors.Is(err, unix.EINTR) {
				break
			}
		}
		r.Exit()
		woke <- p[1].Revents
	}()
	if err := rx.Close(); err != nil {
		t.Fatal(err)
	}
	if ev := <-woke; ev&unix.POLLIN == 0 {
		t.Errorf("woken by %x", ev)
	}
}
