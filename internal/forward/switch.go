package forward

import (
	"fmt"
	"time"

	"github.com/netring/netring/nm/vale"
	"github.com/netring/netring/ring"
)

// tickEvery is how often each worker tells the switch the time. It does so
// before it forwards, so that nothing is learned with a time from before a
// sleep.
const tickEvery = 100 * time.Millisecond

// openSwitch puts a learning switch between the ports: port i of the bridge is
// port i of the switch.
func (b *Bridge) openSwitch() (err error) {
	if b.sw, err = vale.New(vale.Options{Workers: len(b.workers), Table: b.opt.Table}); err != nil {
		return err
	}
	for i, p := range b.ports {
		var out []ring.Egress
		for _, w := range b.workers {
			out = append(out, w.out[i])
		}
		id, err := b.sw.Add(p.Name, out)
		if err != nil {
			return err
		}
		if int(id) != i {
			return fmt.Errorf("port %s: is number %d in the switch, not %d", p.Name, id, i)
		}
		for _, l := range b.links[i] {
			l.lost = func() { b.lost(i) }
		}
	}
	b.pass = switched
	return nil
}

// switched passes frames on by their addresses.
func switched(w *worker, s *station, budget int) int {
	return w.b.sw.Forward(w.id, vale.PortID(s.port), s.rx, budget)
}

// lost forgets the addresses behind a port whose last link went down: the
// stations may turn up elsewhere.
func (b *Bridge) lost(port int) {
	for _, l := range b.links[port] {
		if !l.down.Load() {
			return
		}
	}
	b.sw.Table().Forget(vale.PortID(port))
}

// tick tells the switch the time, if there is one and it is due.
func (w *worker) tick(now time.Duration) {
	if w.b.sw != nil && (now-w.ticked >= tickEvery || w.ticked == 0) {
		w.ticked = now
		w.b.sw.Tick(now)
	}
}

// Table is the switch's address table, by the bridge's port numbers; nil for a
// wire.
func (b *Bridge) Table() *vale.Table {
	if b.sw == nil {
		return nil
	}
	return b.sw.Table()
}
