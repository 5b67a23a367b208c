// Package netdev is what the drivers need to know of a network interface:
// index, MTU, state of the link, queues, queueing discipline. It asks the
// kernel by system calls of its own, without a netlink library.
package netdev

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/ring"
)

// Device is the interface as seen through a control socket, which belongs to
// the network namespace that the port was opened in. The socket also holds the
// promiscuous membership.
type Device struct {
	Name  string
	Index int
	MTU   int
	fd    int
}

// Open looks the interface up in the network namespace of the calling thread.
// With promisc the interface takes all frames until Close.
func Open(name string, promisc bool) (*Device, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, NeedRaw(fmt.Errorf("open packet socket: %w", err))
	}
	d, err := look(name, fd)
	if err == nil && promisc {
		m := unix.PacketMreq{Ifindex: int32(d.Index), Type: unix.PACKET_MR_PROMISC}
		if err = unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m); err != nil {
			err = fmt.Errorf("promiscuous membership: %w", err)
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return d, nil
}

// Look is Open without privilege: by a socket that cannot be promiscuous.
func Look(name string) (*Device, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open control socket: %w", err)
	}
	d, err := look(name, fd)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return d, nil
}

// OpenFD is Open through a copy of a socket that the caller has.
func OpenFD(name string, fd int) (*Device, error) {
	fd, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate socket: %w", err)
	}
	d, err := look(name, fd)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return d, nil
}

func look(name string, fd int) (*Device, error) {
	d := &Device{fd: fd, Name: name}
	var err error
	if d.Index, err = d.get32(unix.SIOCGIFINDEX); err != nil {
		return nil, fmt.Errorf("%w (ip link shows those there are)", ring.ErrNoInterface)
	}
	if d.MTU, err = d.get32(unix.SIOCGIFMTU); err != nil {
		return nil, fmt.Errorf("read MTU: %w", err)
	}
	return d, nil
}

// Close gives the socket and the membership back.
func (d *Device) Close() {
	if d.fd >= 0 {
		unix.Close(d.fd)
		d.fd = -1
	}
}

func (d *Device) get32(req uint) (int, error) {
	ifr, err := unix.NewIfreq(d.Name)
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(d.fd, req, ifr); err != nil {
		return 0, err
	}
	return int(int32(ifr.Uint32())), nil
}

// State returns nil, or an error that Is ErrLinkDown or ErrGone. It asks by
// index: the interface may have another name by now, and another one its name.
func (d *Device) State() error {
	ifr, err := unix.NewIfreq(d.Name)
	if err != nil {
		return err
	}
	for {
		ifr.SetUint32(uint32(d.Index))
		err := unix.IoctlIfreq(d.fd, unix.SIOCGIFNAME, ifr)
		if errors.Is(err, unix.ENODEV) {
			return ring.ErrGone
		}
		if err == nil {
			err = unix.IoctlIfreq(d.fd, unix.SIOCGIFFLAGS, ifr)
		}
		switch f := ifr.Uint16(); {
		case errors.Is(err, unix.ENODEV):
			continue // renamed between the two
		case err != nil:
			return fmt.Errorf("read interface flags: %w", err)
		case f&unix.IFF_UP == 0 || f&unix.IFF_RUNNING == 0:
			return ring.ErrLinkDown
		}
		return nil
	}
}

// NeedRaw adds the remedy to an error that says that a packet socket is not
// permitted.
func NeedRaw(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w: needs CAP_NET_RAW (run as root, or setcap cap_net_raw+ep on the program)", err)
	}
	return err
}

// XDPProgram returns the id of the XDP program on the interface, 0 if there is
// none or it cannot be told.
func XDPProgram(ifindex int) (id uint32) {
	attribute(ifindex, unix.IFLA_XDP, func(b []byte) { id = nested32(b, unix.IFLA_XDP_PROG_ID) })
	return id
}

// Qdisc returns the name of the interface's queueing discipline, "noqueue" for
// a device that has none; empty if it cannot be told.
func Qdisc(ifindex int) (name string) {
	attribute(ifindex, unix.IFLA_QDISC, func(b []byte) { name = strings.TrimRight(string(b), "\x00") })
	return name
}

// attribute calls f with the value of the interface's link attribute t, if it
// has one.
func attribute(ifindex int, t uint16, f func([]byte)) {
	rib, err := syscall.NetlinkRIB(unix.RTM_GETLINK, unix.AF_UNSPEC)
	if err != nil {
		return
	}
	msgs, err := syscall.ParseNetlinkMessage(rib)
	if err != nil {
		return
	}
	for i := range msgs {
		m := &msgs[i]
		if m.Header.Type != unix.RTM_NEWLINK || len(m.Data) < unix.SizeofIfInfomsg ||
			int(binary.NativeEndian.Uint32(m.Data[4:])) != ifindex {
			continue
		}
		attrs, err := syscall.ParseNetlinkRouteAttr(m)
		if err != nil {
			return
		}
		for _, a := range attrs {
			if a.Attr.Type&^unix.NLA_F_NESTED == t {
				f(a.Value)
			}
		}
	}
}

// nested32 finds the 32-bit attribute of type t in a list of them.
func nested32(b []byte, t uint16) uint32 {
	for len(b) >= unix.SizeofNlAttr {
		n := int(binary.NativeEndian.Uint16(b))
		if n < unix.SizeofNlAttr || n > len(b) {
			return 0
		}
		if binary.NativeEndian.Uint16(b[2:]) == t && n >= unix.SizeofNlAttr+4 {
			return binary.NativeEndian.Uint32(b[unix.SizeofNlAttr:])
		}
		b = b[min((n+3)&^3, len(b)):]
	}
	return 0
}
