// Package tpacket is the AF_PACKET driver: the kernel's own mapped rings
// (PACKET_RX_RING, PACKET_TX_RING) as rings of slots.
//
// # Flow
//
// Each receive ring is a socket of its own, bound to the interface; several
// share its traffic by PACKET_FANOUT. The kernel copies each frame into the
// mapped ring; Sync walks what has arrived into slots that name the frames in
// place. Each transmit ring is a further socket; Sync marks the filled frames
// and rings the doorbell, one sendto(2) for all of them, which the kernel
// answers with the frames' status words.
//
// # Frames
//
// By default each frame crosses with its virtio-net header, so that what a
// local sender left to the hardware (checksums, segmentation) is not lost: see
// [ring.SlotVnet]. VLAN tags that the kernel has taken out are put back. The
// host's own transmissions on the interface are not received.
//
// TPACKET_V2, the default, shows each frame as it arrives. Super-frames larger
// than a buffer come through the socket's queue into one of a few large
// buffers. TPACKET_V3 packs frames into blocks and shows a block when it is
// full or its timeout (at least 1 ms) is over: less work for bulk capture,
// later for a single frame.
//
// # Limits
//
//   - Frames cannot leave their ring: forwarding costs one copy, but for
//     super-frames in large buffers between V2 receive rings and devices
//     without a queueing discipline (see [ring.Large]).
//   - A frame that the kernel refuses in transmission (larger than the MTU,
//     inconsistent offload) is counted under refused and passed over.
//   - Transmission of super-frames needs the queueing discipline: not with
//     [Options.QdiscBypass].
//   - Needs CAP_NET_RAW in the user namespace that owns the network namespace.
//   - Linux 5.4 and later; a 12-byte virtio-net header needs 6.4.
package tpacket
