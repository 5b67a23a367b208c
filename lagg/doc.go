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
// A bucket that is new gets a home: the member that rendezvous hashing gives,
// or the next one in its order if that one has more than its share already
// (consistent hashing with bounded loads: Mirrokni, Thorup, Zadimoghaddam,
// 2016). Links that are down are no reason to choose another home. When the
// home's link is down, its buckets, and no others, go to the members that are
// next, by the same rule; when it comes up they return, each as soon as nothing
// of it can be overtaken: its present member's queue has drained or the flow
// has been silent for the flowlet gap. A flow whose queue never drains stays
// where it is. Failover returns to the primary in the same way, all at once.
//
// # Wiring
//
// Whoever watches the links calls [Group.SetLink] on each change (and once for
// each member at the start: all are down before), and [Group.Tick] when either
// said so. Members' egresses tell their backlog by [Pender]. On receive, ask
// [Group.Accepts] once per batch.
//
// # Limits
//
// At most [MaxMembers] members. A worker tells 16,384 flows apart; more share
// buckets and move together. A member that pushes back holds up the frames for
// the others behind it: let members drop if that is not wanted. A stride counts
// a segmentation super-frame as one frame; a stride in bytes counts all of it.
// The sequence of roundrobin is 32 bits: its phase jumps once in 2^32 frames.
package lagg
