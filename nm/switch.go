package nm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/netring/netring/nm/vale"
	"github.com/netring/netring/poll"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/mem"
	"github.com/netring/netring/sched"
)

// SwitchOptions are for the first open of a port of a vale switch, which makes
// the switch. The zero value is valid.
type SwitchOptions struct {
	// Table is the address table's.
	Table vale.TableOptions
	// Lookup decides where frames go; nil for learning. The switch's
	// goroutine calls it: it must not open or close ports of that switch, nor
	// call [Switch.Ports].
	Lookup vale.Lookup
}

// isZero reports whether nothing is asked for.
func (o *SwitchOptions) isZero() bool { return o.Lookup == nil && o.Table == vale.TableOptions{} }

// Switch is a switch that vale ports are on. Its methods may be called by any
// goroutine, also once the last port is closed, which ends the switch.
//
// One goroutine, on a thread of its own, forwards. It sleeps in poll(2) while
// no port sends, and gathers batches, for 20 us at most, under load.
//
// The ports of a switch have their buffers in one region, or in few: the first
// has room for four ports, each further one for twice as many, in 64 MiB at most.
// Between ports of one region frames are moved by exchanging buffers, between
// others they are copied once.
type Switch struct {
	name  string
	sw    *vale.Switch
	sched *poll.Scheduler
	stop  context.CancelFunc
	ended chan struct{} // closed when the goroutine has

	// The goroutine's.
	clock  sched.Clock
	ticked time.Duration

	refs int // guarded by the Space's mu

	mu       sync.Mutex
	bufSize  int // of all memory of the switch
	pools    []*mem.Pool
	ports    []*switchPort
	monitors []*monitor
	attached int   // interfaces: frames may come that are unfinished
	failed   error // why the goroutine ended by itself
}

const (
	// firstPorts is how many ports of the first one's size share the first
	// region; poolBytes bounds a region that more than one port shares.
	firstPorts = 4
	poolBytes  = 64 << 20
	// switchDelay is the latency that a switch may add to gather batches:
	// below the time in which a sender fills its ring.
	switchDelay = 20 * time.Microsecond
	// switchBurst is how many frames of one port are forwarded in a turn.
	switchBurst = 256
	// switchTick is how often a switch that forwards looks at the time.
	switchTick = 100 * time.Millisecond
)

// newSwitch starts a switch without ports.
func newSwitch(name string, o SwitchOptions, bufSize int) (*Switch, error) {
	sw, err := vale.New(vale.Options{Table: o.Table, Lookup: o.Lookup})
	if err != nil {
		return nil, err
	}
	p, err := poll.New(poll.Options{Delay: switchDelay, ControllerConfig: poll.ControllerConfig{EachBurst: switchBurst}})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Switch{name: name, sw: sw, sched: p, stop: stop, ended: make(chan struct{}), bufSize: bufSize}
	go s.run(ctx)
	return s, nil
}

// run is the switch's goroutine.
func (s *Switch) run(ctx context.Context) {
	defer close(s.ended)
	err := s.sched.Run(ctx)
	if err == nil {
		return
	}
	// No handler here returns an error: the system gave no thread or
	// descriptor. Those who have ports learn it from their rings.
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
	for _, p := range s.ports {
		_ = p.near.Close() // what it could not do, the port's own Close meets again
	}
}

// tick tells the table the time, if it is due. The switch's goroutine.
func (s *Switch) tick() {
	now := s.sched.Clock(0).Now()
	s.clock.Set(int64(now))
	if now-s.ticked >= switchTick {
		s.ticked = now
		s.sw.Tick(now)
	}
}

// end stops the goroutine and gives the memory back. No port is left.
func (s *Switch) end() {
	s.stop()
	<-s.ended
	for _, p := range s.pools {
		_ = p.Close() // has no error
	}
}

// pair makes a pair over the switch's memory, or over pool if that is not nil;
// extra buffers are the caller's to take.
func (s *Switch) pair(o mem.Options, pool *mem.Pool, extra int) (a, b *mem.Port, err error) {
	if pool != nil {
		o.Pool = pool
		return mem.Pair(o)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	need := o.Bufs() + extra
	for _, o.Pool = range s.pools {
		if o.Pool.Free() < need {
			continue
		}
		if a, b, err = mem.Pair(o); err == nil {
			return a, b, nil
		}
	}
	if o.Pool, err = mem.NewPool(s.poolBufs(need), s.bufSize); err != nil {
		return nil, nil, err
	}
	if a, b, err = mem.Pair(o); err != nil {
		return nil, nil, errors.Join(err, o.Pool.Close())
	}
	s.pools = append(s.pools, o.Pool)
	return a, b, nil
}

// poolBufs is how many buffers a new region has, for a port that needs so many
// itself. s.mu is held.
func (s *Switch) poolBufs(need int) int {
	for n := firstPorts << min(len(s.pools), 8); n > 1; n /= 2 {
		if need <= poolBytes/s.bufSize/n {
			return n * need
		}
	}
	return need
}

// port returns the open port of that name, nil if there is none. s.mu is held.
func (s *Switch) port(name string) *switchPort {
	i := slices.IndexFunc(s.ports, func(p *switchPort) bool { return p.name == name })
	if i < 0 {
		return nil
	}
	return s.ports[i]
}

// add puts a port on the switch.
func (s *Switch) add(p *switchPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return fmt.Errorf("switch %s has stopped: %w", s.name, s.failed)
	}
	if old := s.port(p.name); old != nil {
		return fmt.Errorf("%w: open already, as %s", ErrBusy, old.as)
	}
	if p.far == nil {
		// From now on frames may need to be finished before a virtual port.
		s.attached++
		for _, q := range s.ports {
			if err := q.out.finish(); err != nil {
				s.attached--
				return err
			}
		}
	}
	var err error
	if s.attached != 0 {
		err = p.out.finish()
	}
	if err == nil {
		p.id, err = s.sw.Add(p.name, []ring.Egress{&p.out})
	}
	if err == nil {
		// The id is set: the goroutine may have the port.
		if err = s.sched.Add(0, p); err != nil {
			_, gone := s.sw.Remove(p.id)
			err = errors.Join(err, gone)
		}
	}
	if err != nil {
		if p.far == nil {
			s.attached--
		}
		return err
	}
	s.ports = append(s.ports, p)
	return nil
}

// remove takes a port off the switch: when it returns, the goroutine has
// nothing of it any more.
func (s *Switch) remove(p *switchPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.ports, p)
	if i < 0 {
		return nil
	}
	s.ports = slices.Delete(s.ports, i, i+1)
	if p.far == nil {
		s.attached--
	}
	err := s.sched.Remove(p)
	_, gone := s.sw.Remove(p.id)
	for _, m := range slices.Clone(s.monitors) {
		if m.of == p {
			// Its reader gets what is there, and then the error.
			err = errors.Join(err, s.dropMonitor(m))
		}
	}
	return errors.Join(err, gone, p.out.close())
}

// Name is the switch's name, such as "vale0".
func (s *Switch) Name() string { return s.name }

// Table is the switch's address table, by the ids of its ports.
func (s *Switch) Table() *vale.Table { return s.sw.Table() }

// SwitchPort is one port of a [Switch] with what has been counted.
type SwitchPort struct {
	vale.PortStats
	// Interface tells an attached network interface from a virtual port.
	Interface bool
	// Sent counts those frames of Tx that the port's owner has received and
	// given back, or that the interface has sent. Dropped are those that were
	// lost, by cause: DropFull where the owner's ring had no room. The rest
	// are on their way.
	Sent    uint64
	Dropped [ring.NumCauses]uint64
	// Err is what is wrong with the port: nil, or an error that Is
	// [ring.ErrLinkDown] or [ring.ErrGone].
	Err error
}

// Ports returns the open ports, in the order that they were opened.
func (s *Switch) Ports() []SwitchPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[vale.PortID]vale.PortStats{}
	for _, st := range s.sw.Ports() {
		counts[st.ID] = st
	}
	list := make([]SwitchPort, len(s.ports))
	for i, p := range s.ports {
		list[i] = SwitchPort{PortStats: counts[p.id], Interface: p.far == nil, Err: p.err()}
		p.out.count(&list[i])
	}
	return list
}

// Switches returns the switches of the Space, nil being the process's own.
func (s *Space) Switches() []*Switch {
	if s == nil {
		s = &process
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*Switch
	for _, name := range slices.Sorted(maps.Keys(s.switches)) {
		list = append(list, s.switches[name])
	}
	return list
}

// enterSwitch returns the switch of that name, started if there is none, which
// leaveSwitch must be called for.
func (s *Space) enterSwitch(name string, o *Options) (*Switch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.switches == nil {
		s.switches = map[string]*Switch{}
	}
	sw := s.switches[name]
	switch {
	case sw == nil:
		size := o.BufSize
		if size == 0 {
			size = mem.DefaultBufSize
		}
		var err error
		if sw, err = newSwitch(name, o.Switch, size); err != nil {
			return nil, err
		}
		s.switches[name] = sw
	case !o.Switch.isZero():
		return nil, fmt.Errorf("switch %s is there already, with the lookup and table that its first port asked for: leave Options.Switch out", name)
	case o.BufSize != 0 && o.BufSize != sw.bufSize:
		return nil, fmt.Errorf("buffer size %d: the buffers of switch %s have %d bytes, by its first port: leave Options.BufSize out", o.BufSize, name, sw.bufSize)
	}
	sw.refs++
	return sw, nil
}

// leaveSwitch ends the switch with the last of those who entered it.
func (s *Space) leaveSwitch(sw *Switch) {
	s.mu.Lock()
	sw.refs--
	last := sw.refs == 0
	if last {
		delete(s.switches, sw.name)
	}
	s.mu.Unlock()
	if last {
		sw.end()
	}
}
