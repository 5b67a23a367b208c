// Package ring is the contract between programs and packet drivers: rings of
// slots over shared memory, in the manner of netmap.
//
// A [Ring] is an array of n slots (a power of two, all usable) and three
// free-running 32-bit cursors. Slot k of the stream lies at index k&(n-1).
//
//	        Head        Cur         Tail
//	          |          |           |
//	... driver|  program (Head..Tail)| driver ...
//
// Ownership: slots in [Head, Tail), and the buffers they name, belong to the
// program. Everything else belongs to the driver. The driver touches a ring
// only inside [Ring.Sync], which the program calls, so one goroutine owns a
// ring and the data path takes no lock.
//
//   - Transmit: fill slots from Head, advance Head, Sync. Sync hands the slots
//     that Head passed to the device and brings Tail forward over those that
//     the device is done with. At open all n slots belong to the program.
//   - Receive: Sync gives the slots that Head passed back to the driver and
//     brings Tail forward over what arrived. At open there is none.
//   - Cur, between Head and Tail, is how far the program has looked. It only
//     matters to whoever waits: a ring is ready when Cur != Tail.
//
// A frame's bytes ([Ring.Frame]) are valid from the Sync that granted the slot
// until the Sync that takes it back. Sync never blocks; waiting is the business
// of package poll, with the descriptor of [Ring.FD].
//
// A [Slot] is 16 bytes of plain data. What does not fit lies in headroom right
// before the frame (the virtio-net header, see [SlotVnet]) or is asked of the
// ring by index ([Ring.Meta]) and costs nothing when not asked.
//
// Zero copy is exchanging buffer indexes between slots of rings over one
// [Region]. [Move] does that where it can and copies the payload once where it
// cannot; callers never ask which.
//
// # Closing
//
// [Port.Close] refuses new work, wakes sleepers, waits until everybody who is
// inside has left, and only then unmaps. Sync is inside by itself. A goroutine
// that touches slots or frames while another one may call Close brackets each
// round with [Ring.Enter] and [Ring.Exit]; after Close, Enter and Sync answer
// [ErrClosed]. A program that closes from the goroutine that owns the rings
// needs no bracket, and must not hold one while it closes.
//
// # Limits
//
// A frame has at most [MaxFrame] bytes. Slots are not initialised between uses
// but for the fields that the driver writes. Counters are exact once the owner
// has synced; they are added once per batch.
package ring
