// Package finish does in software what the kernel leaves to the device: it
// completes checksums ([Checksum]) and cuts segmentation super-frames
// ([Segments]).
//
// A frame from a local TCP stack has a checksum that covers the pseudo header
// only, and may be a super-frame of many segments; one that arrives through
// GRO is several packets glued together. Where both rings carry the virtio-net
// header ([ring.SlotVnet]) such frames cross as they are. Where the outgoing
// one does not, [Move] and [Copy] do what ring.Move and ring.Copy do and
// finish them on the way. [Egress] does so in front of a transmit queue.
//
// What comes out is what the kernel's own segmentation makes, bit for bit; the
// tests compare the two.
//
// # Limits
//
// TCP and UDP over IPv4 and IPv6 directly over Ethernet, with any number of
// VLAN tags. Tunnels, fragments, IPv6 jumbograms, fraglists and the old UDP
// fragmentation (UFO) are refused.
package finish
