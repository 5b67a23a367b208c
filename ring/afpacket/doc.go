// Package afpacket is a ring driver on github.com/google/gopacket/afpacket:
// the reference that other drivers are checked against, and the baseline of
// the benchmarks. It needs cgo; without it the package is empty.
//
// It is what gopacket offers, no more: one queue, one copy into the slots of
// the receive ring, one write(2) for each frame sent, no virtio-net header (a
// frame with an unfinished checksum or a super-frame is received as it is and
// must not be forwarded), VLAN tags put back with EtherType 0x8100 only and an
// allocation for each. For anything else use ring/tpacket.
package afpacket
