package nm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/nm"
	"github.com/netring/netring/nm/vale"
	"github.com/netring/netring/ring"
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

// TestSwitchChurn: ports and monitors come and go while others send, and some
// close while another goroutine polls them. Who stays gets every frame that was
// sent to it alone.
func TestSwitchChurn(t *testing.T) {
	s := &nm.Space{}
	ctx := limit(t)
	a, b := open(t, s, "vale0:a"), open(t, s, "vale0:b@vale:full=backpressure")
	open(t, s, "vale0:c") // so that there are never two alone
	send(t, b, etherFrame(bcast, macB, 0, 60))
	want(t, "a", a, etherFrame(bcast, macB, 0, 60))
	before := resources(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := visit(ctx, s, g, i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	const n = 3000
	wg.Go(func() {
		for i := 0; i < n; {
			if a.Inject(etherFrame(macB, macA, i, 60)) == nil {
				i++
			} else if _, err := a.Poll(ctx, -1, nm.Out); err != nil {
				t.Error(err)
				return
			}
		}
		if err := a.Flush(ctx); err != nil {
			t.Error(err)
		}
	})
	next := 0
	for next < n {
		if _, err := b.Poll(ctx, -1, nm.In); err != nil {
			t.Fatalf("after %d frames: %v", next, err)
		}
		for p := range b.Packets() {
			if bytes.Equal(p.Frame, etherFrame(macB, macA, next, 60)) {
				next++
			} else if p.Frame[0]&1 == 0 {
				t.Fatalf("frame %d: % x", next, p.Frame)
			}
		}
	}
	must(t, b.SyncRx())
	close(stop)
	wg.Wait()
	before.compare(t)
}

// visit is one short stay of a port or a monitor on the switch.
func visit(ctx context.Context, s *nm.Space, g, i int) error {
	name := fmt.Sprintf("vale0:v%d@conf:slots=16", g)
	if i%3 == 2 {
		name = "vale0:b/rt@conf:slots=16"
	}
	d, err := nm.Open(name, nm.Options{Space: s, ExtraBufs: i % 4})
	if err != nil {
		return err
	}
	polled := make(chan error, 1)
	if i%2 == 0 {
		go func() {
			_, err := d.Poll(ctx, -1, nm.In)
			polled <- err
		}()
	} else {
		polled <- nil
		if len(d.TxRings()) != 0 {
			if err := d.Inject(etherFrame(bcast, macC+1+vale.MAC(g), i, 60)); err != nil {
				return err
			}
			if err := d.SyncTx(); err != nil {
				return err
			}
		}
	}
	err = d.Close()
	if perr := <-polled; !errors.Is(perr, ring.ErrClosed) && perr != nil {
		err = errors.Join(err, perr)
	}
	return err
}
