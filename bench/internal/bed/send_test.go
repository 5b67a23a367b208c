//go:build linux

package bed

import (
	"net"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/netlab"
)

// send sends n minimal frames out of an interface.
func send(ns *netlab.NS, name string, n int) error {
	return ns.Do(func() error {
		ifi, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		frame := make([]byte, 60)
		copy(frame, []byte{2, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 1, 0x88, 0xb5})
		for range n {
			if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: ifi.Index}); err != nil {
				return err
			}
		}
		return nil
	})
}
