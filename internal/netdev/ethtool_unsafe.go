package netdev

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/abi"
)

// RxQueues returns how many receive queues the interface uses; 1 if its driver
// does not tell.
func (d *Device) RxQueues() int {
	c := abi.EthtoolChannels{Cmd: unix.ETHTOOL_GCHANNELS}
	ifr := abi.IfreqData{Data: unsafe.Pointer(&c)}
	copy(ifr.Name[:unix.IFNAMSIZ-1], d.Name)
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(d.fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifr)))
	runtime.KeepAlive(&c)
	if n := c.Rx + c.Combined; e == 0 && n > 0 && n < 1<<16 {
		return int(n)
	}
	return 1
}
