package netdev

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// channels is struct ethtool_channels: command, then the largest and the
// present count of receive, transmit, other and combined queues.
type channels struct {
	cmd                                uint32
	maxRx, maxTx, maxOther, maxCombine uint32
	rx, tx, other, combined            uint32
}

// ifreqPointer is struct ifreq with a pointer in it.
type ifreqPointer struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [24 - unsafe.Sizeof(uintptr(0))]byte
}

// RxQueues returns how many receive queues the interface uses; 1 if its driver
// does not tell.
func (d *Device) RxQueues() int {
	c := channels{cmd: unix.ETHTOOL_GCHANNELS}
	ifr := ifreqPointer{data: unsafe.Pointer(&c)}
	copy(ifr.name[:unix.IFNAMSIZ-1], d.Name)
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(d.fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifr)))
	runtime.KeepAlive(&c)
	if n := c.rx + c.combined; e == 0 && n > 0 && n < 1<<16 {
		return int(n)
	}
	return 1
}
