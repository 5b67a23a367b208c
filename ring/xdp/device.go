package xdp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/ring"
)

// device is the interface as seen through a control socket, which belongs to
// the network namespace that the port was opened in. The socket also holds the
// promiscuous membership.
type device struct {
	fd    int
	name  string
	index int
	mtu   int
}

func openDevice(name string, promisc bool) (d *device, err error) {
	d = &device{fd: -1, name: name}
	defer func() {
		if err != nil {
			d.close()
			d = nil
		}
	}()
	d.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return d, capHint(fmt.Errorf("open control socket: %w", err))
	}
	if d.index, err = d.get32(unix.SIOCGIFINDEX); err != nil {
		return d, fmt.Errorf("%w (ip link shows those there are)", ring.ErrNoInterface)
	}
	if d.mtu, err = d.get32(unix.SIOCGIFMTU); err != nil {
		return d, fmt.Errorf("read MTU: %w", err)
	}
	if !promisc {
		return d, nil
	}
	m := unix.PacketMreq{Ifindex: int32(d.index), Type: unix.PACKET_MR_PROMISC}
	if err = unix.SetsockoptPacketMreq(d.fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m); err != nil {
		return d, fmt.Errorf("promiscuous membership: %w", err)
	}
	return d, nil
}

func (d *device) close() {
	if d.fd >= 0 {
		unix.Close(d.fd)
		d.fd = -1
	}
}

func (d *device) get32(req uint) (int, error) {
	ifr, err := unix.NewIfreq(d.name)
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(d.fd, req, ifr); err != nil {
		return 0, err
	}
	return int(int32(ifr.Uint32())), nil
}

// state returns nil, ErrLinkDown or ErrGone.
func (d *device) state() error {
	ifr, err := unix.NewIfreq(d.name)
	if err != nil {
		return err
	}
	err = unix.IoctlIfreq(d.fd, unix.SIOCGIFFLAGS, ifr)
	switch {
	case errors.Is(err, unix.ENODEV):
		return ring.ErrGone
	case err != nil:
		return fmt.Errorf("read interface flags: %w", err)
	}
	if f := ifr.Uint16(); f&unix.IFF_UP == 0 || f&unix.IFF_RUNNING == 0 {
		return ring.ErrLinkDown
	}
	return nil
}

// attached returns the id of the XDP program on the interface, 0 if there is
// none or it cannot be told.
func attached(ifindex int) uint32 {
	rib, err := syscall.NetlinkRIB(unix.RTM_GETLINK, unix.AF_UNSPEC)
	if err != nil {
		return 0
	}
	msgs, err := syscall.ParseNetlinkMessage(rib)
	if err != nil {
		return 0
	}
	for i := range msgs {
		m := &msgs[i]
		if m.Header.Type != unix.RTM_NEWLINK || len(m.Data) < unix.SizeofIfInfomsg ||
			int(binary.NativeEndian.Uint32(m.Data[4:])) != ifindex {
			continue
		}
		attrs, err := syscall.ParseNetlinkRouteAttr(m)
		if err != nil {
			return 0
		}
		for _, a := range attrs {
			if a.Attr.Type&^unix.NLA_F_NESTED == unix.IFLA_XDP {
				return nested32(a.Value, unix.IFLA_XDP_PROG_ID)
			}
		}
	}
	return 0
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
