// Package xdp is the AF_XDP driver: rings of descriptors over memory that the
// program and the kernel share.
//
// # Flow
//
// A [Mem] is one area of equal frames (a UMEM), a [ring.Region]. Ports opened
// over the same Mem share it, across queues and interfaces, so that [ring.Move]
// between them exchanges frames and copies nothing.
//
// Every slot always has a frame. A receive ring's free slots' frames lie in
// the kernel's fill ring; a packet comes back as a descriptor in a slot; once
// the program passes the slot, whatever frame is then in it is filled again. A
// transmit ring's slots come with free frames; handed over, a frame is the
// kernel's until it shows up in the completion ring, which puts it back into a
// slot.
//
// A small program, assembled here, redirects each packet that arrives on an
// open queue to that queue's socket; all others go on into the host's stack.
// It is attached with a BPF link: when the port is closed or the process dies,
// it is gone.
//
// While much arrives through a device without an interrupt of its own, such as
// a veth, the kernel is told to gather packets for [Options.Coalesce]. Refresh
// looks at the rate, so a program that never calls it does without.
//
// # Limits
//
//   - Packets arrive without what the kernel knows about them: no VLAN tag that
//     the device took out, no unfinished checksum or segmentation. On veth the
//     sending end must finish both itself ("ethtool -K ... tx off"), or TCP
//     does not pass. What is transmitted must be complete.
//   - A frame larger than a buffer needs [Options.MultiBuffer], Linux 6.6 and
//     a driver that can do it; it then takes several slots.
//   - Traffic of queues that are not open, and of other protocols' sockets, is
//     not seen; by default all queues are opened.
//   - Needs CAP_NET_RAW for the sockets, CAP_BPF and CAP_NET_ADMIN (in the
//     initial user namespace) for the program. Without CAP_IPC_LOCK the shared
//     memory counts against RLIMIT_MEMLOCK: rings shrink to fit, unless their
//     size is given.
//   - Linux 5.11 and later.
package xdp
