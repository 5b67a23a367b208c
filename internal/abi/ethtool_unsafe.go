//go:build linux

package abi

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// EthtoolChannels is struct ethtool_channels (linux/ethtool.h): a command, then
// the largest and the present count of receive, transmit, other and combined
// queues.
type EthtoolChannels struct {
	Cmd                                 uint32
	MaxRx, MaxTx, MaxOther, MaxCombined uint32
	Rx, Tx, Other, Combined             uint32
}

// IfreqData is struct ifreq (linux/if.h) with a pointer in its union, whose
// largest member, struct ifmap, is two words and 8 bytes.
type IfreqData struct {
	Name [unix.IFNAMSIZ]byte
	Data unsafe.Pointer
	_    [unsafe.Sizeof(uintptr(0)) + 8]byte
}
