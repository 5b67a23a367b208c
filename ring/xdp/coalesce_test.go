package xdp

import (
	"testing"
	"time"

	"github.com/netring/netring/internal/netdev"
	"github.com/netring/netring/internal/netlab"
)

// openOne opens a veth in a namespace of its own, with a NAPI context that
// outlives the program.
func openOne(t *testing.T, o Options) (p *Port, napi func() netdev.NAPI) {
	t.Helper()
	l := netlab.Setup(t, "dut", "far")
	l.Pair(t, "dut", "d0", "far", "f0", netlab.VethOpts{Offloads: map[string]bool{"rx-gro": true}})
	var c *netdev.NAPIs
	err := l.NS("dut").Do(func() (err error) {
		if p, err = Open("d0", nil, o); err == nil {
			c, err = netdev.OpenNAPIs()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p, func() netdev.NAPI {
		t.Helper()
		list, err := c.List(p.dev.Index)
		if err != nil {
			t.Skipf("NAPI settings cannot be read: %v", err)
		}
		if len(list) != 1 {
			t.Fatalf("%d NAPI contexts, want 1: %+v", len(list), list)
		}
		return list[0]
	}
}

// While more than so many packets a second arrive the kernel gathers them; what
// it was told is taken back when there are fewer, and by Close.
func TestCoalesce(t *testing.T) {
	netlab.NeedRoot(t)
	p, napi := openOne(t, Options{Slots: 64, Coalesce: 50 * time.Microsecond})
	was := napi()
	on := netdev.NAPI{ID: was.ID, DeferIRQs: 1, FlushTimeout: 50 * time.Microsecond}
	c := &p.rxs[0].gather
	now, packets := c.at, c.packets
	for i, step := range []struct {
		packets uint64 // in 10 ms
		want    netdev.NAPI
	}{
		{0, was}, {1999, was}, {2001, on}, {1500, on}, {1001, on}, {999, was}, {1500, was}, {1 << 30, on},
	} {
		now, packets = now.Add(10*time.Millisecond), packets+step.packets
		c.look(now, packets)
		if got := napi(); got != step.want {
			t.Fatalf("step %d: %+v, want %+v", i, got, step.want)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if got := napi(); got != was {
		t.Errorf("after Close %+v, want %+v", got, was)
	}
}

// What somebody else has set stays, and with Coalesce below 0 all does.
func TestCoalesceNot(t *testing.T) {
	netlab.NeedRoot(t)
	for name, o := range map[string]Options{"never": {Slots: 64, Coalesce: -1}, "set already": {Slots: 64}} {
		t.Run(name, func(t *testing.T) {
			p, napi := openOne(t, o)
			was := napi()
			c := &p.rxs[0].gather
			if o.Coalesce == 0 {
				was.DeferIRQs, was.FlushTimeout = 3, time.Millisecond
				if err := c.napis.Set(was); err != nil {
					t.Fatal(err)
				}
			}
			c.look(time.Now().Add(time.Second), 1<<30)
			if got := napi(); got != was {
				t.Errorf("%+v, want %+v", got, was)
			}
		})
	}
}
