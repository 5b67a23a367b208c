// Package lagg makes several links act as one: it decides which member of a
// group sends a frame, and which may deliver one.
//
// A [Group] is shared: its members, their links' state, and the protocol. Each
// worker sends through an [Egress] of its own, made by [Group.Egress] over the
// worker's egress of each member; it is a [ring.Egress] itself. Decisions are
// made for a batch, and runs of frames for the same member are handed over at
// once.
//
//   - roundrobin: Stride frames, or StrideBytes bytes, to one member, then to
//     the next. Frames of one flow may overtake each other; the longer the
//     stride, the less (and the better segmentation works).
//   - loadbalance: by flow. A flow stays with its member as long as that is up.
//   - failover: the primary, or who stands in for it.
//   - broadcast: a copy through every member.
//
// The ideas are those of lagg(4) of FreeBSD; selection differs where that
// piles load up or moves more flows than it must, see docs/lagg.md.
//
// # Flows
//
// A flow is a bucket of a table that each worker has, found by a seeded hash.
// A bucket that is new goes to the member that rendezvous hashing gives, or the
// next one in its order if that member has more than its share already
// (consistent hashing with bounded loads: Mirrokni, Thorup, Zadimoghaddam,
// 2016), and that is its home. When the home's link goes down, its buckets,
// and no others, go to the members that are next; when it is back they return,
// each as soon as nothing of it can be overtaken: its present member's queue
// has drained or the flow has been silent for the flowlet gap.
package lagg
