package ring

// Egress is where a worker's received frames go: the transmit queue of one
// port, or a group of ports that chooses among its members' queues. Each
// worker has its own; none of its methods may be called by two goroutines at
// once.
//
// Its methods are called once per run of frames with the same destination, not
// once per frame.
type Egress interface {
	// Move takes up to n whole frames from the head of src, as [Move] does,
	// and returns how many it took: sent on, queued, or dropped and counted.
	// Fewer than n, with src holding more, is back-pressure: the rest stays
	// in src.
	Move(src *Ring, n int) int
	// Copy takes a copy of the frame at slot k of src and leaves src as it is.
	// It is never back-pressured: what does not fit is dropped and counted.
	Copy(src *Ring, k uint32)
	// Flush ends a round: staged doorbells are rung, finished slots taken
	// back, waiting frames sent as far as there is room.
	Flush() error
}
