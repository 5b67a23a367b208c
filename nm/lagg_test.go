package nm_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/nm"
	"github.com/netring/netring/nm/vale"
	"github.com/netring/netring/ring"
)

// in opens a port in a namespace.
func in(t testing.TB, l *netlab.Lab, ns string, s *nm.Space, name string) *nm.Desc {
	t.Helper()
	var d *nm.Desc
	must(t, l.NS(ns).Do(func() (err error) {
		d, err = nm.Open(name, nm.Options{Space: s})
		return err
	}))
	t.Cleanup(func() { d.Close() })
	return d
}

// laggBed is two links m0 and m1 in one namespace, with readers at their other
// ends.
func laggBed(t testing.TB) (l *netlab.Lab, far [2]*nm.Desc) {
	t.Helper()
	netlab.NeedNet(t)
	l = netlab.Setup(t, "near", "far")
	for i := range far {
		l.Pair(t, "near", fmt.Sprint("m", i), "far", fmt.Sprint("w", i), netlab.VethOpts{})
		far[i] = in(t, l, "far", &nm.Space{}, fmt.Sprintf("w%d@tpacket:vnet=off,profile=lowmem", i))
	}
	return l, far
}

// receive reads n frames, from whichever port they come, and returns how many
// came from each.
func receive(t testing.TB, n int, from ...*nm.Desc) []int {
	t.Helper()
	got, ctx := make([]int, len(from)), limit(t)
	for sum := 0; sum < n; {
		for i, d := range from {
			if _, err := d.Poll(ctx, time.Millisecond, nm.In); err != nil {
				t.Fatalf("after %d of %d frames: %v", sum, n, err)
			}
			for range d.Packets() {
				got[i]++
				sum++
			}
		}
	}
	return got
}

// until waits for a condition that others bring about.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

// TestLagg sends through a group by each protocol, with both links up and with
// one, and receives.
func TestLagg(t *testing.T) {
	const n = 256
	for _, c := range []struct {
		opts     string
		copies   int
		min, max int // of n frames on the first link
	}{
		{"", 1, n, n}, // failover
		{"@lagg:proto=roundrobin,stride=4", 1, n / 2, n / 2},
		{"@lagg:proto=loadbalance,hash=l2@conf:slots=64", 1, n * 3 / 10, n * 7 / 10},
		{"@lagg:proto=broadcast@tpacket:profile=lowmem", 2, n, n},
	} {
		t.Run("lagg:m0+m1"+c.opts, func(t *testing.T) {
			l, far := laggBed(t)
			d := in(t, l, "near", &nm.Space{}, "lagg:m0+m1"+c.opts)
			flood := func() {
				for i := range n {
					f := etherFrame(macB, macA+vale.MAC(i), i, 60)
					if d.Inject(f) != nil {
						must(t, d.Flush(limit(t)))
						must(t, d.Inject(f))
					}
				}
				must(t, d.Flush(limit(t)))
			}
			flood()
			if got := receive(t, c.copies*n, far[:]...); got[0] < c.min || got[0] > c.max {
				t.Errorf("%d frames went out as %d", n, got)
			}
			// The second link receives only where it may.
			for i, w := range far {
				send(t, w, etherFrame(macA, macB, i, 60))
			}
			if c.opts == "" {
				want(t, "by the primary", d, etherFrame(macA, macB, 0, 60))
			} else if got := receive(t, 2, d); got[0] != 2 {
				t.Errorf("received %d", got)
			}
			must(t, l.NS("near").Down("m0"))
			until(t, "m0 down", func() bool {
				st, ok := d.Group()
				return ok && !st.Members[0].Link && st.Members[1].Sends
			})
			flood()
			if got := receive(t, n, far[1]); got[0] != n {
				t.Errorf("with one link %d of %d frames came", got, n)
			}
			if st, _ := d.Group(); st.Members[0].Downs != 1 || st.Members[0].Frames < uint64(c.min) {
				t.Errorf("status %+v", st)
			}
		})
	}
}

// TestLaggGone: a member that is deleted ends the port, which names it.
func TestLaggGone(t *testing.T) {
	l, _ := laggBed(t)
	s := &nm.Space{}
	before := resources(t)
	d := in(t, l, "near", s, "lagg:m0+m1@tpacket:profile=lowmem")
	must(t, l.NS("near").Delete("m1"))
	if _, err := d.Poll(limit(t), -1, nm.In); !errors.Is(err, ring.ErrGone) || !strings.Contains(err.Error(), "gone: m1") {
		t.Errorf("poll: %v", err)
	}
	must(t, d.Close())
	before.compare(t)
}

func TestLaggRefuses(t *testing.T) {
	for name, why := range map[string]string{
		"lagg:a+b@3": "leave @N out", "lagg:a+b@lagg:proto=x": "must be one of",
		"lagg:a+b@lagg:stride=2": "roundrobin", "lagg:a+b@conf:rx-rings=2": "as many",
		"lagg:nosuch0+nosuch1": "no such interface",
	} {
		if _, err := nm.Open(name, nm.Options{Space: &nm.Space{}}); err == nil || !strings.Contains(err.Error(), why) && !strings.Contains(err.Error(), "CAP_NET_RAW") {
			t.Errorf("%s: %v, want %q", name, err, why)
		}
	}
}
