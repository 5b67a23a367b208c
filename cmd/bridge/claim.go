package main

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/nm"
)

// claims keep other bridges away from the interfaces: where two join the same
// ones, every frame is delivered twice, and each would undo what the other has
// set. A claim is an abstract Unix socket. Its name belongs to the network
// namespace, as the interface does, and is free again when the process has
// ended, in whatever way.
type claims []*net.UnixListener

// claim takes all interfaces of the bridge, in the network namespace of the
// calling thread, or none.
func (c *config) claim() (done claims, err error) {
	for _, p := range c.ports {
		for _, name := range p.links {
			ifi, err := net.InterfaceByName(name)
			if err != nil {
				return nil, errors.Join(fmt.Errorf("look up interface %s: %w", name, err), done.release())
			}
			key := fmt.Sprintf("@netring/bridge/%d", ifi.Index)
			if p.spec != nil && p.spec.Select == nm.OneRing {
				key += fmt.Sprintf("/%d", p.spec.Ring) // the others are free
			}
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: key, Net: "unix"})
			if errors.Is(err, unix.EADDRINUSE) {
				err = fmt.Errorf("another bridge%s has it: two would deliver every frame twice; stop that one first", claimant(key))
			}
			if err != nil {
				return nil, errors.Join(fmt.Errorf("interface %s: %w", name, err), done.release())
			}
			done = append(done, l)
		}
	}
	return done, nil
}

// claimant names the process that has a claim, if it can be told.
func claimant(key string) string {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: key, Net: "unix"})
	if err != nil {
		return ""
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return ""
	}
	var peer *unix.Ucred
	cerr := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if cerr != nil || err != nil || peer.Pid == 0 {
		return ""
	}
	return fmt.Sprintf(" (pid %d)", peer.Pid)
}

func (c claims) release() error {
	var errs []error
	for _, l := range c {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}
