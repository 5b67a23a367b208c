// Package nm is what a program imports to move packets: it opens ports by name
// and gives access to their rings, in the manner of netmap's library.
//
//	d, err := nm.Open("netmap:eth0", nm.Options{})
//	defer d.Close()
//	for {
//		if _, err := d.Poll(ctx, -1, nm.In); err != nil { ... }
//		for p := range d.Packets() {
//			use(p.Frame)
//		}
//	}
//
// The names are those of [ParsePort]: interfaces through TPACKET (netmap:eth0)
// or AF_XDP (xdp:eth0), several as one (lagg:eth1+eth2), pipes between
// goroutines (netmap:x{1 and netmap:x}1), ports of a learning switch (vale0:a,
// vale0:eth1), capture files (pcap:FILE).
//
// A vale switch is a goroutine, which forwards between the ports of its prefix:
// virtual ones, each of which a program has, and attached interfaces. It starts
// with the first port and ends with the last. See [Switch].
//
// # Who may call
//
// A [Desc] belongs to one goroutine, but for Close, which any may call. A
// program that wants a goroutine for each ring opens a Desc for each
// (netmap:eth0-0, netmap:eth0-1) or uses the rings of one Desc directly: each
// [ring.Ring] belongs to one goroutine, and the methods of the Desc to none
// then.
//
// # Differences from netmap
//
// Interfaces stay with the host: its stack receives and sends as before, so
// there are no host rings. All n slots of a ring are usable. Errors of Sync are
// returned, never swallowed. docs/netmap-differences.md has the list.
package nm
