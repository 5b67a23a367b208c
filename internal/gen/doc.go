// Package gen is the part of a packet generator that needs no network: frames
// whose addresses, ports and sizes vary and whose lengths and checksums are
// right all the same, a schedule that keeps a rate without drift, and the books
// of a receiver that wants to know what was lost, doubled or overtaken.
//
// Sizes are those of a frame as a driver sees it: Ethernet header to payload,
// without the 4 bytes of checksum. On the wire a frame takes [WireOverhead]
// bytes more: checksum, preamble, start and the gap.
package gen

// Bytes that a frame takes on the wire beyond its own.
const (
	FCS          = 4
	WireOverhead = FCS + 8 + 12 // checksum, preamble with start delimiter, gap
)
