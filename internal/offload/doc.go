// Package offload deals with what the kernel leaves unfinished about a frame
// because it counts on a device to do it: checksums and segmentation.
//
// A frame from a local TCP stack has a checksum that covers the pseudo header
// only, and may be a super-frame of many segments; one that arrives through
// GRO or LRO is several packets glued together. Where both ports of a bridge
// carry the virtio-net header ([ring.SlotVnet]), such frames cross as they are
// and the far side finishes them. Where one does not, there are two ways:
//
//   - keep such frames from coming: [Check] tells which features of a port are
//     in the way and [Fix] switches them off, to be put back at the end;
//   - finish them here: [Finish] completes a checksum, [Segments] cuts a
//     super-frame, and [Move] and [Copy] do either between two rings.
//
// # Limits
//
// Finishing in software covers TCP and UDP over IPv4 and IPv6 directly over
// Ethernet, with any number of VLAN tags. Tunnels, fragments, IPv6 jumbograms
// and the old UDP fragmentation (UFO) are refused.
package offload
