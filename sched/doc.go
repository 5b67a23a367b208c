// Package sched is the transmit side of a worker: what happens to a frame
// between the ring that it came in on and the device that it leaves by.
//
// A [Queue] stands before one transmit ring and belongs to one worker. It is a
// [ring.Egress]:
//
//	rx ring ──► room in the tx ring, within the limit, nothing waiting? ── yes ──► ring.Move
//	                     │ no
//	                     ▼
//	            classify, copy ──► two-level queue ──► tx ring, when completions make room
//
// It is put together from types that decide one thing each, do no I/O and have
// no clock of their own; each is usable by itself:
//
//   - [DynamicLimit]: how many bytes may be in the device's hands.
//   - [PriorityQueue]: which of the waiting frames goes first, and which one
//     gives way when there is no room.
//   - [Stager]: when the device is told of new slots (the doorbell).
//   - [Classifier]: which frames have priority.
//   - [CPUMap]: which transmit ring a processor uses.
//
// # What is paid when
//
// While nothing waits, a frame goes from ring to ring as with [ring.Move]
// alone; the limit and the staging cost one look at its length. Only a frame
// that has to wait is classified and copied. With the zero [Options] a Queue
// is [ring.Move] and one doorbell per [Queue.Flush].
//
// # Limits
//
// Priority is rough: it applies to waiting frames only. Frames that are in the
// transmit ring stay in order; the dynamic limit keeps them few.
//
// A waiting frame has at most [ring.MaxFrame] bytes. The memory for waiting
// frames is taken when the Queue is made and is never more than
// [Queue.Memory] says.
package sched
