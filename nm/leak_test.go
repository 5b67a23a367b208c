package nm_test

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/nm"
	"github.com/netring/netring/ring/mem"
)

// usage is what the process holds.
type usage struct{ fds, maps, goroutines int }

func resources(t testing.TB) (u usage) {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	m, err := os.ReadFile("/proc/self/maps")
	must(t, err)
	return usage{len(d), bytes.Count(m, []byte("\n")), runtime.NumGoroutine()}
}

// compare fails the test if the process holds more than before. The runtime's
// own mappings and descriptors come and go, a few of them.
func (u usage) compare(t testing.TB) {
	t.Helper()
	now := resources(t)
	for end := time.Now().Add(5 * time.Second); now.goroutines > u.goroutines && time.Now().Before(end); now = resources(t) {
		runtime.Gosched() // those that are ending need their turn
	}
	if now.fds > u.fds+2 || now.maps > u.maps+20 || now.goroutines > u.goroutines {
		t.Errorf("descriptors %d -> %d, mappings %d -> %d, goroutines %d -> %d", u.fds, now.fds, u.maps, now.maps, u.goroutines, now.goroutines)
	}
}

// TestLeaks opens and closes 10,000 times: no descriptor and no mapping stays.
func TestLeaks(t *testing.T) {
	s := &nm.Space{}
	once := func() {
		a, err := nm.Open("netmap:x{1@conf:slots=2", nm.Options{Space: s})
		must(t, err)
		b, err := nm.Open("netmap:x}1@conf:slots=2", nm.Options{Space: s})
		must(t, err)
		must(t, errors.Join(a.Close(), b.Close()))
	}
	once()
	before := resources(t)
	for range 10000 {
		once()
	}
	before.compare(t)
	if testing.Short() || netlab.Available() != nil {
		return
	}
	l := netlab.Setup(t, "a")
	l.Pair(t, "a", "a0", "a", "a1", netlab.VethOpts{})
	before = resources(t)
	must(t, l.NS("a").Do(func() error {
		for range 30 {
			d, err := nm.Open("a0@tpacket:profile=lowmem", nm.Options{Space: s})
			if err != nil {
				return err
			}
			if err := d.Close(); err != nil {
				return err
			}
		}
		return nil
	}))
	before.compare(t)
}

// TestSwitchLeaks opens and closes 10,000 ports, of a switch that stays and of
// one that comes and goes: no descriptor, mapping, goroutine or buffer
// stays.
func TestSwitchLeaks(t *testing.T) {
	s := &nm.Space{}
	keep := open(t, s, "vale0:keep@conf:slots=4")
	once := func(name string) {
		d, err := nm.Open(name, nm.Options{Space: s, ExtraBufs: 1})
		must(t, err)
		must(t, d.Close())
	}
	once("vale0:x@conf:slots=4")
	once("vale1:x@conf:slots=4")
	before, free := resources(t), keep.Port().(*mem.Port).Pool().Free()
	for i := range 10000 {
		name := "vale0:x@conf:slots=4"
		if i%10 == 0 {
			name = "vale1:x@conf:slots=4"
		}
		once(name)
	}
	before.compare(t)
	if now := keep.Port().(*mem.Port).Pool().Free(); now != free {
		t.Errorf("%d free buffers, %d before", now, free)
	}
	if n := len(s.Switches()); n != 1 {
		t.Errorf("%d switches are left, want 1", n)
	}
}
