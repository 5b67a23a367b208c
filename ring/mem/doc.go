// Package mem is the driver that needs no network: a pair of ports over one
// piece of memory, like the two ends of a cable. What one end transmits the
// other receives.
//
//	a.TxRings()[i] ──► b.RxRings()[i]
//	a.RxRings()[i] ◄── b.TxRings()[i]
//
// The semantics are those of netmap's pipes. Nothing is copied: Sync hands
// descriptors over, and when the reader gives a slot back, its descriptor
// returns to the sender, with whatever buffer the reader left in it. Nothing is
// lost: a slow reader makes the sender's Tail stop. Only whole frames are
// published; the beginning of a chain ([ring.SlotMoreFrag]) waits for its end.
// A frame is sent (completed) when the reader has given it back.
//
// The ends may be used by two goroutines; see [ring.Ring] for who owns what.
// They share two cursors for each direction, each on a cache line of its own
// and stored once per Sync.
//
// # Buffers
//
// Buffers come from a [Pool]. Pairs over the same Pool share a region, so
// [ring.Move] between them exchanges buffers, and a program may exchange the
// buffer in a slot for one that it has taken from the Pool. The driver keeps
// the book of who has which buffer: a slot that names a buffer outside of the
// region, one in flight, or one that is in no program's hands is refused
// ([ring.ErrSlot]) and gets a buffer back. The entries of the book are guarded
// by the same rule as the buffers themselves: only who owns a buffer hands it
// over. Two goroutines that hand over one buffer at the same time are a data
// race.
//
// # Waiting
//
// A descriptor ([ring.Ring.FD], an eventfd) signals only after [ring.Ring.Arm],
// once; a pair that nobody waits for makes no system call.
//
// # Closing
//
// When one end closes, the other still receives what had been published; then
// its Sync answers an error that Is [ring.ErrGone], as do its transmit rings at
// once. Frames that the closing end had not taken yet count as dropped (closed)
// on the sender's ring, so that sent = received + dropped. The buffers go back
// to the Pool when both ends are closed.
package mem
