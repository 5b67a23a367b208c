// Package vale is a learning switch: it decides where received frames go and
// hands them to the ports' egresses. It is the engine of the bridge and of the
// VALE ports of package nm.
//
//	rx ring ─► Forward: look up the whole batch ─► runs of equal destination
//	                                                ├─ one port:  Egress.Move
//	                                                ├─ flood:     Egress.Copy to all others
//	                                                └─ drop:      counted by cause
//
// A [Switch] has workers, each a goroutine with receive rings of its own, and
// ports, each with one [ring.Egress] per worker. They share only the address
// [Table], which is read without locks, and the list of ports, which is
// replaced as a whole when a port comes or goes.
//
// # Rules
//
// Those of IEEE 802.1D, clause 7, for a bridge that looks at no VLANs: a source
// address is learned with the port that it came from; a known destination gets
// the frame alone; unknown, multicast and broadcast ones are flooded to all
// ports but the one they came from. Dropped are frames for the port that they
// came from, frames to the link-local group 01-80-C2-00-00-0x (spanning tree,
// pause, LACP, 802.1X, LLDP: between two neighbours only), frames from a group
// address or from zero, and frames without an Ethernet header.
//
// With exactly two ports and no lookup of the program's own, the switch is a
// wire: every frame goes to the other port, whatever it is, so that the
// neighbours see each other as if there were no switch. Addresses are learned
// all the same.
//
// # Back-pressure
//
// An egress that takes only part of a run ends the call: [Switch.Forward]
// returns how many frames it has passed on, the rest stays in the receive ring
// and is decided anew next time. Until then frames for other ports that stand
// behind it in that ring wait too (head-of-line blocking); other rings go on.
// Egresses that drop what they have no room for, and count it, never do that.
// Flooded copies are never back-pressured.
//
// # Limits
//
// Addresses are learned for all VLANs together. There is no spanning tree:
// loops between switches are for the program to avoid. At most [MaxPorts] ports.
package vale
