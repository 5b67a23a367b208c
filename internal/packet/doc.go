// Package packet finds its way through the headers of Ethernet frames without
// allocating and without trusting them: [Parse] fills a [Packet] with offsets
// and facts and never reads past the frame, whatever is in it. [Inner] goes one
// step into a tunnel. Internet checksums are in [Sum] and its relatives.
//
// Nothing here keeps a reference to a frame, and nothing has state: any number
// of goroutines may call anything.
//
// # Limits
//
// At most [MaxTags] VLAN tags and [MaxExtensions] IPv6 extension headers are
// walked. MPLS, PPPoE and frames with an 802.3 length are not looked into.
// What follows an ESP header is encrypted and is not looked at.
package packet
