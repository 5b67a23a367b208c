// Package pcap is a ring driver on capture files: a receive ring brings the
// frames of a file, a transmit ring writes what it is given to one.
//
//	p, err := pcap.Open(pcap.Options{Read: "in.pcapng", Write: "out.pcap"})
//
// It reads pcap (micro- and nanoseconds, either byte order) and pcapng, both
// of Ethernet, and writes pcap with nanoseconds. [ring.Ring.Meta] has the time
// and the length on the wire of each received frame; frames come as fast as
// they are asked for, and pacing is up to who reads them. Frames that are sent
// get the time of the Sync that hands them over.
//
// At the end of the file, once every frame has been passed, Sync answers an
// error that Is io.EOF; where the file is cut off or damaged, one that says
// so.
//
// # Limits
//
// Sync reads and writes files, so it waits for the disk; do not read from a
// pipe that may stay empty. Files are always ready: the rings' descriptor
// signals at once. Frames keep no virtio-net header: unfinished ones cannot be
// sent. A frame that was longer than its buffer, or was cut off when it was
// captured, has [ring.SlotTruncated].
package pcap
