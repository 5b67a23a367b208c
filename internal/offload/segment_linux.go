package offload

import (
	"errors"
	"fmt"

	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"
)

// Segmenter is who makes frames of the UDP super-frames that a port is given
// to send.
type Segmenter uint8

const (
	// KernelSegments: the kernel does, on the sender's core.
	KernelSegments Segmenter = iota
	// DeviceSegments: the device does, or the one below it.
	DeviceSegments
	// NotSegmented: nobody does. The port is one end of a veth or a tap that
	// claims to, and hands them over whole.
	NotSegmented
)

// String is the name that reports use; it is stable.
func (s Segmenter) String() string {
	return [...]string{"kernel", "device", "peer-sees-super-frames"}[s]
}

// UDPSegmenter tells who cuts the UDP super-frames sent through a port of the
// calling thread's network namespace.
func UDPSegmenter(port string) (Segmenter, error) {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return 0, fmt.Errorf("look at offloads of %s: %w", port, err)
	}
	defer e.Close()
	on, err := e.Features(port)
	if err != nil {
		return 0, fmt.Errorf("look at offloads of %s: %w", port, err)
	}
	driver, err := e.DriverName(port)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return 0, fmt.Errorf("ask for the driver of %s: %w", port, err)
	}
	return segmenter(driver, on), nil
}

func segmenter(driver string, on map[string]bool) Segmenter {
	switch {
	case !on["tx-udp-segmentation"]:
		return KernelSegments
	case driver == "veth" || driver == "tun":
		return NotSegmented
	}
	return DeviceSegments
}
