//go:build linux

package netlab

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// threadNS is the calling thread's network namespace. The thread's own file is
// named, not the process's: a goroutine in a namespace is a thread in it.
const threadNS = "/proc/thread-self/ns/net"

var errNoSuchNS = errors.New("no such namespace in this lab, or the lab is closed")

// NS is one network namespace of a [Lab].
type NS struct {
	name string
	fd   int // of the namespace
	nl   *netlink.Handle

	// The keeper is a goroutine that stays on its own thread inside the
	// namespace. Programs are started by it: their parent-death signal is tied
	// to the thread that started them, and this one lives as long as the lab.
	jobs chan func()
	done chan struct{} // closed when the keeper has left

	mu     sync.Mutex
	cmds   map[*Cmd]struct{}
	closed bool
}

// newNS makes a namespace, with its keeper inside.
func newNS(name string) (*NS, error) {
	n := &NS{
		name: name, fd: -1, jobs: make(chan func()), done: make(chan struct{}),
		cmds: make(map[*Cmd]struct{}),
	}
	ready := make(chan error, 1)
	go n.keep(ready)
	if err := <-ready; err != nil {
		return nil, err
	}
	if err := n.prepare(); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

// keep is the keeper. Its thread is never unlocked, so it ends with it.
func (n *NS) keep(ready chan<- error) {
	defer close(n.done)
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		ready <- forbidden("make a network namespace", err)
		return
	}
	fd, err := unix.Open(threadNS, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		ready <- fmt.Errorf("open %s: %w", threadNS, err)
		return
	}
	n.fd = fd
	ready <- nil
	for job := range n.jobs {
		job()
	}
}

// prepare opens the namespace's netlink handle, keeps IPv6 off of interfaces
// to come and brings the loopback interface up.
func (n *NS) prepare() error {
	nl, err := netlink.NewHandleAt(netns.NsHandle(n.fd), unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	n.nl = nl
	if err := n.Sysctl("net/ipv6/conf/default/disable_ipv6", "1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return n.Up("lo")
}

// close kills and reaps what runs inside, ends the keeper and gives the
// namespace up.
func (n *NS) close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	n.closed = true
	running := make([]*Cmd, 0, len(n.cmds))
	for c := range n.cmds {
		running = append(running, c)
	}
	n.mu.Unlock()
	for _, c := range running {
		_ = c.Process.Kill() // it may have ended by itself
		_ = c.Wait()         // its status is the affair of whoever started it
	}
	close(n.jobs)
	<-n.done
	if n.nl != nil {
		n.nl.Close()
	}
	return unix.Close(n.fd)
}

// Name is the name that the namespace has within its lab.
func (n *NS) Name() string { return n.name }

// FD is a descriptor of the namespace, for setns(2) and IFLA_NET_NS_FD. It is
// the lab's: do not close it.
func (n *NS) FD() int { return n.fd }

// Netlink is a route netlink handle inside the namespace, for what this
// package does not do. It is the lab's: do not close it.
func (n *NS) Netlink() *netlink.Handle { return n.nl }

// open returns an error once the lab is closed.
func (n *NS) open() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.nl == nil || n.closed {
		return fmt.Errorf("namespace %q: %w", n.name, errNoSuchNS)
	}
	return nil
}

// dup returns a descriptor of the namespace that the caller closes, so that a
// Close meanwhile takes nothing from under it.
func (n *NS) dup() (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.nl == nil || n.closed {
		return -1, fmt.Errorf("namespace %q: %w", n.name, errNoSuchNS)
	}
	fd, err := unix.FcntlInt(uintptr(n.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("namespace %q: duplicate its descriptor: %w", n.name, err)
	}
	return fd, nil
}

// Do calls fn on a thread that is in the namespace and returns its error.
// Sockets that fn opens stay in the namespace wherever they are used later;
// goroutines that fn starts are not in it. A panic of fn, and runtime.Goexit
// (which t.Fatal is), carry over to the caller.
func (n *NS) Do(fn func() error) error {
	fd, err := n.dup()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var (
		returned bool
		panicked any
		wg       sync.WaitGroup
	)
	wg.Go(func() {
		runtime.LockOSThread()
		// On any failure the goroutine ends locked, and the runtime throws
		// the thread away rather than let it run others in the wrong place.
		home, e := unix.Open(threadNS, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if e != nil {
			err, returned = fmt.Errorf("namespace %q: open %s: %w", n.name, threadNS, e), true
			return
		}
		defer unix.Close(home)
		if e := unix.Setns(fd, unix.CLONE_NEWNET); e != nil {
			err, returned = fmt.Errorf("namespace %q: enter: %w", n.name, e), true
			return
		}
		defer func() {
			if p := recover(); p != nil {
				panicked = fmt.Sprintf("in namespace %q: %v\n%s", n.name, p, debug.Stack())
			}
			if unix.Setns(home, unix.CLONE_NEWNET) == nil {
				runtime.UnlockOSThread()
			}
		}()
		err = fn()
		returned = true
	})
	wg.Wait()
	switch {
	case panicked != nil:
		panic(panicked)
	case !returned:
		runtime.Goexit()
	}
	return err
}

// Sysctl writes a value under /proc/sys; the name has slashes and starts with
// "net/".
func (n *NS) Sysctl(name, value string) error {
	return n.Do(func() error {
		// What lies under /proc/sys/net is the calling thread's namespace's.
		if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0); err != nil {
			return fmt.Errorf("namespace %q: set %s to %s: %w", n.name, name, value, err)
		}
		return nil
	})
}
