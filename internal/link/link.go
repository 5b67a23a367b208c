//go:build linux

// Package link knows the interfaces of a network namespace: what one is like
// ([Lookup]) and whether it is up, down or gone ([Watcher]).
//
// Everything happens in the network namespace of the thread that calls Lookup
// or New; a Watcher stays in it whatever thread it is used from later.
package link

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/netring/netring/ring"
	"golang.org/x/sys/unix"
)

// State of an interface.
type State uint8

const (
	// Down: administratively down, or without carrier. It may come back.
	Down State = iota
	// Up: frames can be sent and received.
	Up
	// Gone: deleted, or moved to another namespace. This is final: an
	// interface of the same name made later is another one.
	Gone
)

func (s State) String() string {
	switch s {
	case Up:
		return "up"
	case Gone:
		return "gone"
	}
	return "down"
}

// Err returns nil for Up, else what rings say of the state.
func (s State) Err() error {
	switch s {
	case Up:
		return nil
	case Gone:
		return ring.ErrGone
	}
	return ring.ErrLinkDown
}

// Info is what the kernel tells about an interface at one moment.
type Info struct {
	Name     string
	Index    int
	MTU      int
	MAC      net.HardwareAddr // empty for what has none
	Flags    uint32           // IFF_*
	Qdisc    string           // kind of the root qdisc: "noqueue", "mq", "fq_codel", ...
	Kind     string           // kind of a virtual interface: "veth", "bridge", ...; empty for a device
	Driver   string           // "veth", "e1000e", ...; empty if it tells none
	TxQueues int
	RxQueues int
	Master   int // index of the bridge, bond or the like that it is a port of, else 0
}

// AdminUp reports whether the interface has been set up.
func (i *Info) AdminUp() bool { return i.Flags&unix.IFF_UP != 0 }

// Carrier reports whether there is a live link; only an interface that is set
// up can have it.
func (i *Info) Carrier() bool { return i.Flags&unix.IFF_LOWER_UP != 0 }

// Loopback reports whether this is a loopback interface.
func (i *Info) Loopback() bool { return i.Flags&unix.IFF_LOOPBACK != 0 }

// NoQueue reports whether frames go to the device without a queue in between,
// as on a veth by default.
func (i *Info) NoQueue() bool { return i.Qdisc == "noqueue" }

// State is Up or Down.
func (i *Info) State() State { return stateOf(i.Flags) }

// stateOf tells the state by the flags. IFF_LOWER_UP falls at once with the
// carrier. IFF_RUNNING comes once the kernel has started the queues: before,
// what is sent is lost.
func stateOf(flags uint32) State {
	const all = unix.IFF_UP | unix.IFF_LOWER_UP | unix.IFF_RUNNING
	if flags&all == all {
		return Up
	}
	return Down
}

// Lookup asks for an interface by name, in the calling thread's network
// namespace. The error Is ring.ErrNoInterface if there is none.
func Lookup(name string) (Info, error) {
	i, err := lookup(name)
	if err != nil {
		return Info{}, fmt.Errorf("look up interface %s: %w", name, err)
	}
	return i, nil
}

func lookup(name string) (Info, error) {
	if name == "" || len(name) >= unix.IFNAMSIZ || strings.ContainsAny(name, "/ \t\n") {
		return Info{}, fmt.Errorf("%w: a name has 1 to %d characters, no space or slash", ring.ErrNoInterface, unix.IFNAMSIZ-1)
	}
	fd, err := open(0)
	if err != nil {
		return Info{}, err
	}
	defer unix.Close(fd)
	if err := request(fd, 0, 0, name); err != nil {
		return Info{}, err
	}
	buf := make([]byte, recvBuf)
	n, err := receive(fd, buf, 0)
	if err != nil {
		return Info{}, err
	}
	var info Info
	err = errors.New("the kernel sent no answer")
	perr := parse(buf[:n], func(m *message) {
		switch {
		case m.err == unix.ENODEV:
			err = fmt.Errorf("%w; `ip link` lists those that exist", ring.ErrNoInterface)
		case m.err != 0:
			err = m.err
		case !m.gone:
			info, err = m.info(), nil
		}
	})
	if err = errors.Join(perr, err); err != nil {
		return Info{}, err
	}
	info.Driver = driver(info.Name)
	return info, nil
}

// driver asks for the name of the driver; "" if there is none.
func driver(name string) string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	d, err := unix.IoctlGetEthtoolDrvinfo(fd, name)
	if err != nil {
		return ""
	}
	return unix.ByteSliceToString(d.Driver[:])
}
