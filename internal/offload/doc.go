// Package offload deals with the features of a port that break traffic when
// frames do not carry the virtio-net header: [Check] tells which are in the
// way in the port's mode, and [Fix] switches them off, to be put back in the
// end.
//
// What a port sends is never the trouble: it is given complete frames, or the
// header tells it what to finish. What it receives may be: glued together by
// the device or by GRO, without its VLAN tag, or never completed by whoever
// sent it on this same machine.
//
// Unfinished frames that did arrive with the header, and leave where there is
// none, are the business of package finish.
package offload
