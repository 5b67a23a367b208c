// Package poll runs packet work by polling instead of interrupts: workers that
// give handlers a budget, so that work comes in batches, no handler starves
// another one, and a chosen part of the CPU is left to everybody else.
//
// A [Scheduler] has workers, each one OS thread. A [Handler] is registered
// with one worker, which alone calls it. In each round the worker gives every
// one of its handlers, in turn, a chunk of packets to move, and then lets
// every one finish up (ring doorbells, give slots back). How many chunks a
// tick has is the [Controller]'s decision; what a worker does between rounds
// is the [Mode]'s:
//
//	interrupt  sleep in poll(2) until a handler's descriptor is ready
//	tick       sleep until the next tick of the clock
//	busy       do not sleep
//	adaptive   sleep in poll(2) under light load; under more, sleep just long
//	           enough for a batch to gather; under full load do not sleep;
//	           and when somebody else wants the core, keep to the ticks
//
// [Wait] is for programs that have their own loop. [GatePolicy] decides when
// the kernel must be kept from receiving more than can be forwarded.
//
// The package knows handlers and descriptors, not packets.
package poll
