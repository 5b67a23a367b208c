//go:build linux

package link

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// recvBuf is more than the kernel puts into one message about a link.
const recvBuf = 64 << 10

// skipStats is RTEXT_FILTER_SKIP_STATS of linux/rtnetlink.h: no counters, which
// are most of an answer.
const skipStats = 1 << 3

// open opens a route netlink socket that gets the broadcasts of groups.
func open(groups uint32) (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return -1, fmt.Errorf("open netlink: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("bind netlink: %w", err)
	}
	return fd, nil
}

// request asks for one link by index, or by name if the index is 0. The kernel
// has put the answer into the socket when this returns; the sequence number
// comes back with it.
func request(fd, index int, seq uint32, name string) error {
	ne := binary.NativeEndian
	b := make([]byte, unix.SizeofNlMsghdr+unix.SizeofIfInfomsg, 96)
	ne.PutUint16(b[4:], unix.RTM_GETLINK)
	ne.PutUint16(b[6:], unix.NLM_F_REQUEST)
	ne.PutUint32(b[8:], seq)
	ne.PutUint32(b[unix.SizeofNlMsghdr+4:], uint32(index))
	mask := make([]byte, 4)
	ne.PutUint32(mask, skipStats)
	b = attr(b, unix.IFLA_EXT_MASK, mask)
	if name != "" {
		b = attr(b, unix.IFLA_IFNAME, append([]byte(name), 0))
	}
	ne.PutUint32(b, uint32(len(b)))
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("ask netlink: %w", err)
	}
	return nil
}

// attr appends a route attribute, padded to four bytes.
func attr(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	for len(b)%unix.NLMSG_ALIGNTO != 0 {
		b = append(b, 0)
	}
	return b
}

// receive reads one datagram of the kernel's; flags as recv(2)'s.
func receive(fd int, buf []byte, flags int) (int, error) {
	for {
		n, from, err := unix.Recvfrom(fd, buf, flags)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, err
		}
		if sa, ok := from.(*unix.SockaddrNetlink); ok && sa.Pid == 0 {
			return n, nil
		}
		// Not from the kernel: any process may send to a netlink socket.
	}
}

// message is one link message, or an error.
type message struct {
	seq   uint32
	index int
	flags uint32
	gone  bool
	err   unix.Errno
	attrs []byte
}

var errShort = errors.New("parse netlink messages: cut short")

// parse walks the messages in a datagram and calls fn for each that is about a
// link as such, or an error. (The walkers of package syscall are not used:
// they trust lengths and can be made to panic.)
func parse(b []byte, fn func(*message)) error {
	ne := binary.NativeEndian
	for len(b) > 0 {
		if len(b) < unix.SizeofNlMsghdr {
			return errShort
		}
		n, kind := int(ne.Uint32(b)), ne.Uint16(b[4:])
		if n < unix.SizeofNlMsghdr || n > len(b) {
			return errShort
		}
		m, data := message{seq: ne.Uint32(b[8:])}, b[unix.SizeofNlMsghdr:n]
		b = b[min(len(b), align(n)):]
		switch kind {
		case unix.NLMSG_ERROR:
			if len(data) < 4 {
				return errShort
			}
			m.err = unix.Errno(-int32(ne.Uint32(data)))
		case unix.RTM_NEWLINK, unix.RTM_DELLINK:
			if len(data) < unix.SizeofIfInfomsg {
				return errShort
			}
			if data[0] != unix.AF_UNSPEC {
				continue // a bridge tells of its ports in the same way
			}
			m.index = int(int32(ne.Uint32(data[4:])))
			m.flags = ne.Uint32(data[8:])
			m.gone = kind == unix.RTM_DELLINK
			m.attrs = data[unix.SizeofIfInfomsg:]
		default:
			continue
		}
		fn(&m)
	}
	return nil
}

// align rounds up to where the next message or attribute starts.
func align(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }

// walk calls fn for each route attribute.
func walk(b []byte, fn func(kind uint16, value []byte)) {
	for len(b) >= unix.SizeofRtAttr {
		n := int(binary.NativeEndian.Uint16(b))
		if n < unix.SizeofRtAttr || n > len(b) {
			return
		}
		fn(binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[unix.SizeofRtAttr:n])
		b = b[min(len(b), align(n)):]
	}
}

// info reads the attributes of a link message.
func (m *message) info() Info {
	i := Info{Index: m.index, Flags: m.flags}
	walk(m.attrs, func(kind uint16, v []byte) {
		switch kind {
		case unix.IFLA_IFNAME:
			i.Name = text(v)
		case unix.IFLA_MTU:
			i.MTU = number(v)
		case unix.IFLA_ADDRESS:
			i.MAC = net.HardwareAddr(bytes.Clone(v))
		case unix.IFLA_QDISC:
			i.Qdisc = text(v)
		case unix.IFLA_NUM_TX_QUEUES:
			i.TxQueues = number(v)
		case unix.IFLA_NUM_RX_QUEUES:
			i.RxQueues = number(v)
		case unix.IFLA_MASTER:
			i.Master = number(v)
		case unix.IFLA_LINKINFO:
			walk(v, func(kind uint16, v []byte) {
				if kind == unix.IFLA_INFO_KIND {
					i.Kind = text(v)
				}
			})
		}
	})
	return i
}

func text(b []byte) string { return unix.ByteSliceToString(b) }

func number(b []byte) int {
	if len(b) < 4 {
		return 0
	}
	return int(binary.NativeEndian.Uint32(b))
}
