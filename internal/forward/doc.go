// Package forward is the data path of a bridge: workers that take frames from
// the receive rings of some ports and pass them to the transmit rings of
// others.
//
// Each worker is one goroutine locked to one OS thread. Worker w owns receive
// ring w and transmit ring w of every link, so no ring is shared and the data
// path has no lock. In a round it visits its receive rings: Sync, hand up to a
// budget of frames to the wire (two ports) or the switch (more), which give
// them to the egresses; at the end of the round the egresses are flushed, so
// that one doorbell covers the round. The frames' slots go back to the driver
// with the next Sync.
//
//	link ── rx ring w ─► [wire | switch] ─► egress (port, w) ─► tx ring w ── link
//
// # Accounting
//
// A frame that a receive ring gave is sent, or counted under one cause: on the
// transmit ring or queue that it was meant for, or on the receive ring if it
// had no destination. Frames that the kernel could not store are its drops. At
// the end what lies in the rings is forwarded until a deadline; what is left
// then is counted as closed. So, for every bridge, once Run has returned:
//
//	received + copies = forwarded + dropped
//
// where copies are those that a switch makes to send one frame to several
// ports; see [Stats].
//
// # Links
//
// A link that goes down is waited for: its frames are dropped (cause link)
// until it is back. A link whose interface is gone ends Run with an error that
// Is [ring.ErrGone] and names it.
package forward
