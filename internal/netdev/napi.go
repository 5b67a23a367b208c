package netdev

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/netring/netring/ring"
)

// The netdev family's commands and attributes for NAPI contexts.
const (
	napiGet = 11
	napiSet = 14

	napiIfindex      = 1
	napiID           = 2
	napiIRQ          = 3 // of the device, absent if it has none
	napiDeferIRQs    = 5
	napiFlushTimeout = 6
)

// NAPI is how the kernel polls one receive queue.
type NAPI struct {
	ID  uint32
	IRQ bool // a hardware interrupt starts it
	// DeferIRQs is how many times in a row the queue is polled by the clock,
	// FlushTimeout apart, and found empty before its interrupt is enabled
	// again. 0 or 0: the interrupt is enabled as soon as the queue is empty.
	DeferIRQs    uint32
	FlushTimeout time.Duration
}

// NAPIs reads and changes NAPI contexts of the network namespace that it was
// made in; Linux 6.13. One goroutine at a time.
type NAPIs struct {
	family  *netlink.GenlFamily
	sockets map[int]*nl.SocketHandle
}

// OpenNAPIs makes it for the network namespace of the calling thread.
func OpenNAPIs() (*NAPIs, error) {
	family, err := netlink.GenlFamilyGet("netdev")
	if err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil, &ring.UnsupportedError{Feature: "settings of NAPI contexts", Since: "6.13", Err: err}
		}
		return nil, fmt.Errorf("ask for the netdev family: %w", err)
	}
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_GENERIC)
	if err != nil {
		return nil, fmt.Errorf("open generic netlink socket: %w", err)
	}
	return &NAPIs{family, map[int]*nl.SocketHandle{unix.NETLINK_GENERIC: {Socket: s}}}, nil
}

// Close closes the socket.
func (c *NAPIs) Close() { c.sockets[unix.NETLINK_GENERIC].Close() }

func (c *NAPIs) do(command uint8, flags int, attrs ...*nl.RtAttr) ([][]byte, error) {
	req := nl.NewNetlinkRequest(int(c.family.ID), flags)
	req.Sockets = c.sockets
	req.AddData(genlHeader{command, uint8(c.family.Version), 0, 0})
	for _, a := range attrs {
		req.AddData(a)
	}
	return req.Execute(unix.NETLINK_GENERIC, 0)
}

// List reads the contexts of an interface, in the order in which they were made,
// which drivers do queue by queue; none of an interface that is down.
func (c *NAPIs) List(ifindex int) ([]NAPI, error) {
	msgs, err := c.do(napiGet, unix.NLM_F_DUMP, nl.NewRtAttr(napiIfindex, nl.Uint32Attr(uint32(ifindex))))
	if err != nil {
		return nil, fmt.Errorf("list NAPI contexts: %w", err)
	}
	var list []NAPI
	for _, m := range msgs {
		n, err := parseNAPI(m)
		if err != nil {
			return nil, fmt.Errorf("list NAPI contexts: %w", err)
		}
		list = append(list, n)
	}
	slices.SortFunc(list, func(a, b NAPI) int { return cmp.Compare(a.ID, b.ID) })
	return list, nil
}

func parseNAPI(m []byte) (n NAPI, err error) {
	if len(m) < nl.SizeofGenlmsg {
		return n, fmt.Errorf("answer of %d bytes", len(m))
	}
	attrs, err := nl.ParseRouteAttr(m[nl.SizeofGenlmsg:])
	if err != nil {
		return n, err
	}
	known := false
	for _, a := range attrs {
		switch v := unsigned(a.Value); a.Attr.Type {
		case napiID:
			n.ID = uint32(v)
		case napiIRQ:
			n.IRQ = true
		case napiDeferIRQs:
			n.DeferIRQs, known = uint32(v), true
		case napiFlushTimeout:
			n.FlushTimeout = time.Duration(v)
		}
	}
	if !known {
		return n, &ring.UnsupportedError{Feature: "settings of NAPI contexts", Since: "6.13"}
	}
	return n, nil
}

// Set gives the context its two settings; needs CAP_NET_ADMIN.
func (c *NAPIs) Set(n NAPI) error {
	_, err := c.do(napiSet, unix.NLM_F_ACK, nl.NewRtAttr(napiID, nl.Uint32Attr(n.ID)),
		nl.NewRtAttr(napiDeferIRQs, nl.Uint32Attr(n.DeferIRQs)),
		nl.NewRtAttr(napiFlushTimeout, nl.Uint32Attr(uint32(n.FlushTimeout))))
	if err != nil {
		return fmt.Errorf("set NAPI %d: %w", n.ID, err)
	}
	return nil
}

// unsigned is a number of the 4 or 8 bytes that the kernel found enough for it.
func unsigned(b []byte) uint64 {
	switch {
	case len(b) >= 8:
		return binary.NativeEndian.Uint64(b)
	case len(b) >= 4:
		return uint64(binary.NativeEndian.Uint32(b))
	}
	return 0
}
