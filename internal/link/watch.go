//go:build linux

package link

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Event tells a change of an interface's state.
type Event struct {
	Name  string // as given to Add
	Index int
	State State
}

// Options of a Watcher.
type Options struct {
	// OnEvent is called for each change, by the watcher's one goroutine: in
	// order, never two at once. It must be quick and must not call Close.
	OnEvent func(Event)
	// Interval is how often the state is asked for besides what the kernel
	// tells by itself: it holds messages about carrier back for up to a second
	// if there was one just before, and loses them when too much happens at
	// once. 0 means DefaultInterval.
	Interval time.Duration
}

// DefaultInterval is how often a Watcher asks by default: what the kernel tells
// late is seen within it. An answer costs some microseconds.
const DefaultInterval = 20 * time.Millisecond

// Validate checks the options.
func (o *Options) Validate() error {
	switch {
	case o.OnEvent == nil:
		return errors.New("watch links: OnEvent is not set")
	case o.Interval < 0 || o.Interval != 0 && o.Interval < time.Millisecond:
		return fmt.Errorf("watch links: interval %v: must be 0 or at least 1ms", o.Interval)
	}
	return nil
}

// Watcher follows the state of interfaces. Its methods may be called by any
// goroutine.
type Watcher struct {
	onEvent   func(Event)
	interval  time.Duration
	fd        int // netlink, subscribed to links
	wake      int // eventfd: look at what has been added, or end
	done      chan struct{}
	closeOnce sync.Once
	closing   atomic.Bool
	overruns  atomic.Uint64

	mu     sync.Mutex
	ports  map[int]*watched
	closed bool // the descriptors are
}

type watched struct {
	name  string
	state State
}

// New starts a watcher in the calling thread's network namespace.
func New(o Options) (*Watcher, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Interval == 0 {
		o.Interval = DefaultInterval
	}
	fd, err := open(unix.RTMGRP_LINK)
	if err != nil {
		return nil, fmt.Errorf("watch links: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("watch links: open eventfd: %w", err)
	}
	w := &Watcher{
		onEvent: o.OnEvent, interval: o.Interval, fd: fd, wake: wake,
		done: make(chan struct{}), ports: make(map[int]*watched),
	}
	go w.run()
	return w, nil
}

// Add starts to watch an interface that has been looked up in the watcher's
// namespace. Whatever has changed since the lookup is the first event.
func (w *Watcher) Add(i Info) {
	w.mu.Lock()
	w.ports[i.Index] = &watched{name: i.Name, state: i.State()}
	w.mu.Unlock()
	w.rouse()
}

// Remove ends watching an interface. An event that is under way may still come.
func (w *Watcher) Remove(index int) {
	w.mu.Lock()
	delete(w.ports, index)
	w.mu.Unlock()
}

// State returns the last known state of an interface; Gone for one that is not
// watched.
func (w *Watcher) State(index int) State {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.ports[index]; p != nil {
		return p.state
	}
	return Gone
}

// Overruns returns how often the kernel had more to tell than the socket held;
// each time the watcher asked for the state of all interfaces instead.
func (w *Watcher) Overruns() uint64 { return w.overruns.Load() }

// Close ends the watcher. When it returns, no callback runs or will. A second
// call does nothing.
func (w *Watcher) Close() error {
	var err error
	w.closeOnce.Do(func() {
		w.closing.Store(true)
		w.rouse()
		<-w.done
		w.mu.Lock()
		defer w.mu.Unlock()
		w.closed = true
		err = errors.Join(unix.Close(w.fd), unix.Close(w.wake))
	})
	return err
}

// rouse wakes the goroutine.
func (w *Watcher) rouse() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	// It can only fail when the counter is full, and then it is readable.
	_, _ = unix.Write(w.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

// run is the goroutine: it sleeps until the kernel tells something, the time
// has come to ask, or the watcher is roused.
func (w *Watcher) run() {
	defer close(w.done)
	buf := make([]byte, recvBuf)
	fds := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}, {Fd: int32(w.wake), Events: unix.POLLIN}}
	next := time.Now().Add(w.interval)
	for {
		wait := max(0, time.Until(next))
		_, err := unix.Poll(fds, int((wait+time.Millisecond-1)/time.Millisecond))
		if w.closing.Load() {
			return
		}
		ask := false
		if err == nil && fds[1].Revents != 0 {
			_, _ = unix.Read(w.wake, buf[:8])
			ask = true
		}
		if err == nil && fds[0].Revents != 0 {
			ask = w.drain(buf) || ask
		}
		if !time.Now().Before(next) {
			next = time.Now().Add(w.interval)
			ask = true
		}
		if ask {
			w.ask(buf)
		}
	}
}

// drain reads what the kernel has told until there is no more, and reports
// whether something was lost.
func (w *Watcher) drain(buf []byte) (lost bool) {
	for !w.closing.Load() {
		n, err := receive(w.fd, buf, unix.MSG_DONTWAIT)
		switch err {
		case nil:
			if parse(buf[:n], w.handle) != nil {
				lost = true
			}
		case unix.ENOBUFS:
			// The socket overflowed and the kernel dropped events. It goes
			// on; what we missed we ask for.
			w.overruns.Add(1)
			lost = true
		default: // EAGAIN
			return lost
		}
	}
	return lost
}

// ask requests the state of all interfaces that are not gone. The request's
// sequence number is the interface, so that an error tells which is meant.
func (w *Watcher) ask(buf []byte) {
	w.mu.Lock()
	asked := make([]int, 0, len(w.ports))
	for i, p := range w.ports {
		if p.state != Gone {
			asked = append(asked, i)
		}
	}
	w.mu.Unlock()
	for _, i := range asked {
		// A failure here is want of memory: the next interval asks again.
		_ = request(w.fd, i, uint32(i), "")
		w.drain(buf)
	}
}

// handle takes one message.
func (w *Watcher) handle(m *message) {
	index, state := m.index, stateOf(m.flags)
	switch {
	case m.err == unix.ENODEV:
		index, state = int(m.seq), Gone
	case m.err != 0:
		return
	case m.gone:
		state = Gone
	}
	w.mu.Lock()
	p := w.ports[index]
	changed := p != nil && p.state != state && p.state != Gone
	if changed {
		p.state = state
	}
	w.mu.Unlock()
	if changed {
		w.onEvent(Event{Name: p.name, Index: index, State: state})
	}
}
