package nm

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/netring/netring/poll"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/mem"
)

// monitor gets copies of what a port of a switch receives, sends, or both. It
// is the switch's end of a pair; the reader has the other. The switch's
// scheduler runs it as a handler that has nothing to poll, so that it can be
// taken away between two rounds.
type monitor struct {
	s    *Switch
	of   *switchPort
	as   string
	near *mem.Port
	far  *mem.Port
	tx   *ring.Ring
}

var _ poll.Handler = (*monitor)(nil)

func (m *monitor) Name() string              { return m.as }
func (m *monitor) Poll(int) (int, error)     { return 0, nil }
func (m *monitor) Check(time.Duration) error { return nil }
func (m *monitor) Arm(*poll.WaitSet) bool    { return false }

// Flush hands the copies over. Its one error is that the reader has gone.
func (m *monitor) Flush() error {
	if m.tx.Pending() != 0 {
		_ = m.tx.Sync()
	}
	return nil
}

// close takes the monitor off its port, unless that has gone before.
func (m *monitor) close() error {
	err := m.far.Close()
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return errors.Join(err, m.s.dropMonitor(m))
}

// addMonitor puts a monitor on a port.
func (s *Switch) addMonitor(m *monitor, port string, flags PortFlags) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m.of = s.port(port); {
	case m.of == nil:
		return fmt.Errorf("%w: switch %s has no open port %s to monitor", ring.ErrNoInterface, s.name, port)
	case m.of.far == nil:
		return fmt.Errorf("monitor: %w: %s is an interface, open netmap:%s with /r or /t", errors.ErrUnsupported, port, port)
	}
	if err := s.sched.Add(0, m); err != nil {
		return err
	}
	s.monitors = append(s.monitors, m)
	for i := range m.of.in {
		if flags&MonitorTX != 0 {
			m.of.in[i].taps.add(m)
		}
	}
	for i := range m.of.out.ways {
		if flags&MonitorRX != 0 {
			m.of.out.ways[i].taps.add(m)
		}
	}
	return nil
}

// dropMonitor takes a monitor away and closes the switch's end. s.mu is held.
func (s *Switch) dropMonitor(m *monitor) error {
	i := slices.Index(s.monitors, m)
	if i < 0 {
		return nil
	}
	s.monitors = slices.Delete(s.monitors, i, i+1)
	for i := range m.of.in {
		m.of.in[i].taps.drop(m)
	}
	for i := range m.of.out.ways {
		m.of.out.ways[i].taps.drop(m)
	}
	// The goroutine is between two rounds when this returns, or has ended:
	// it has nothing of the monitor any more.
	err := s.sched.Remove(m)
	return errors.Join(err, m.near.Close())
}

// taps are the monitors of one ring. The list is replaced as a whole.
type taps struct {
	list atomic.Pointer[[]*monitor]
	seen uint32 // up to here the frames are copied; the switch's goroutine's
}

// any reports whether there is a monitor.
func (t *taps) any() bool { return t.list.Load() != nil }

// skip passes over what nobody wants copies of, up to k.
func (t *taps) skip(k uint32) { t.seen = k }

// see copies the frames in the program's slots of r that come before k and have
// not been copied. A monitor without room loses them, counted.
func (t *taps) see(r *ring.Ring, k uint32) {
	list := t.list.Load()
	if list == nil {
		t.seen = k
		return
	}
	if int32(k-t.seen) < 0 || int32(t.seen-r.Accepted()) < 0 {
		t.seen = k // slots were taken back, or handed over unseen
	}
	start := t.seen
	for ; t.seen != k; t.seen++ {
		if r.Slot(t.seen).Flags&ring.SlotMoreFrag != 0 {
			continue
		}
		for _, m := range *list {
			if !ring.Copy(m.tx, r, start) {
				m.tx.Stats.Drop(ring.DropFull, 1)
			}
		}
		start = t.seen + 1
	}
}

// add and drop change the list. The switch's mu is held.
func (t *taps) add(m *monitor) {
	var list []*monitor
	if old := t.list.Load(); old != nil {
		list = slices.Clone(*old)
	}
	list = append(list, m)
	t.list.Store(&list)
}

func (t *taps) drop(m *monitor) {
	old := t.list.Load()
	if old == nil {
		return
	}
	list := slices.DeleteFunc(slices.Clone(*old), func(x *monitor) bool { return x == m })
	if len(list) == 0 {
		t.list.Store(nil)
		return
	}
	t.list.Store(&list)
}
