//go:build linux

// Package netlab makes test networks: network namespaces that have no name,
// joined by veth pairs, with programs running inside.
//
//	lab, err := netlab.New("gen", "dut", "sink")
//	defer lab.Close()
//	err = lab.Veth("gen", "g0", "dut", "d0", netlab.VethOpts{})
//	err = lab.NS("dut").Do(func() error { /* open sockets here */ })
//	out, err := lab.NS("gen").Exec("ping", "-c1", "10.0.0.2")
//
// It works as root and, by [Reexec], as an ordinary user in a user namespace.
// Nothing outlives the process: the namespaces are held by descriptors and
// threads only, so the kernel takes them down with their interfaces however
// the process ends, and every program that runs inside is killed with the
// thread that started it.
//
// Interfaces have IPv6 switched off until they are given an IPv6 address, so
// that no router solicitation or multicast report disturbs counts.
//
// # Limits
//
// /sys shows a program the interfaces of the namespace that mounted it, not
// those of its own. RPS needs root of the machine. What the kernel does when a
// namespace ends happens a little after Close returns.
package netlab

import (
	"errors"
	"fmt"
	"sync"
)

// Lab is a set of network namespaces. Its methods may be called by any
// goroutine.
type Lab struct {
	mu     sync.Mutex
	spaces map[string]*NS
	order  []*NS
	closed bool
}

// New makes a lab with one namespace per name, each with its loopback
// interface up. The caller closes it. The error is a [*ForbiddenError] if this
// process may not make network namespaces; see [Reexec].
func New(names ...string) (*Lab, error) {
	l := &Lab{spaces: make(map[string]*NS)}
	for _, name := range names {
		if _, err := l.Add(name); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return l, nil
}

// Add makes one more namespace.
func (l *Lab) Add(name string) (*NS, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, fmt.Errorf("add namespace %q: lab is closed", name)
	case l.spaces[name] != nil:
		return nil, fmt.Errorf("add namespace %q: the lab has one of that name", name)
	}
	n, err := newNS(name)
	if err != nil {
		return nil, fmt.Errorf("add namespace %q: %w", name, err)
	}
	l.spaces[name] = n
	l.order = append(l.order, n)
	return n, nil
}

// NS returns the namespace of that name. For a name that the lab has not, it
// returns a namespace whose methods all give an error that says so.
func (l *Lab) NS(name string) *NS {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.spaces[name]; n != nil {
		return n
	}
	return &NS{name: name, fd: -1}
}

// Close kills the programs that run in the lab, waits for them and gives the
// namespaces up. A second call does nothing.
func (l *Lab) Close() error {
	l.mu.Lock()
	order := l.order
	l.order, l.spaces, l.closed = nil, nil, true
	l.mu.Unlock()
	var errs []error
	for _, n := range order {
		errs = append(errs, n.close())
	}
	return errors.Join(errs...)
}
