package netdev

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/netring/netring/ring"
)

// XDPFeatures are what a driver says that it can do with XDP, as bits of the
// kernel's netdev family (Documentation/netlink/specs/netdev.yaml).
type XDPFeatures uint64

const (
	XDPBasic       XDPFeatures = 1 << iota // programs run in the driver
	XDPRedirect                            // which may redirect packets
	XDPXmit                                // takes frames that others redirect to it
	XDPZeroCopy                            // AF_XDP zero-copy
	XDPHardware                            // programs run in the device
	XDPMultiBuffer                         // packets of several buffers
	XDPXmitMulti                           // takes those from others
)

// The netdev family's command and attributes.
const (
	netdevGet      = 1
	netdevIfindex  = 1
	netdevFeatures = 3
)

// genlHeader is struct genlmsghdr: command, version, and two reserved bytes that
// the kernel wants to be 0.
type genlHeader [nl.SizeofGenlmsg]byte

func (h genlHeader) Len() int          { return len(h) }
func (h genlHeader) Serialize() []byte { return h[:] }

// AskXDP asks the kernel what the interface's driver can do; Linux 6.3.
func AskXDP(ifindex int) (XDPFeatures, error) {
	family, err := netlink.GenlFamilyGet("netdev")
	if err != nil {
		if errors.Is(err, unix.ENOENT) {
			return 0, &ring.UnsupportedError{Feature: "asking drivers for XDP features", Since: "6.3", Err: err}
		}
		return 0, fmt.Errorf("ask for the netdev family: %w", err)
	}
	req := nl.NewNetlinkRequest(int(family.ID), 0)
	req.AddData(genlHeader{netdevGet, uint8(family.Version), 0, 0})
	req.AddData(nl.NewRtAttr(netdevIfindex, nl.Uint32Attr(uint32(ifindex))))
	msgs, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return 0, fmt.Errorf("ask the driver for XDP features: %w", err)
	}
	for _, m := range msgs {
		if len(m) < nl.SizeofGenlmsg {
			continue
		}
		attrs, err := nl.ParseRouteAttr(m[nl.SizeofGenlmsg:])
		if err != nil {
			return 0, fmt.Errorf("read XDP features: %w", err)
		}
		for _, a := range attrs {
			if a.Attr.Type == netdevFeatures && len(a.Value) >= 8 {
				return XDPFeatures(binary.NativeEndian.Uint64(a.Value)), nil
			}
		}
	}
	return 0, errors.New("the kernel's answer has no XDP features")
}
