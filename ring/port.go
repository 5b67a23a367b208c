package ring

import "io"

// Port is a network port as a driver opens it. Rings may be used by different
// goroutines, each ring by one. Close may be called by any goroutine, more
// than once; see the package comment for what it waits for.
type Port interface {
	// Name is the interface's name, or what the driver calls the port.
	Name() string
	// RxRings and TxRings are fixed for the life of the port. Either may be empty.
	RxRings() []*Ring
	TxRings() []*Ring
	io.Closer
}

// Driver is the device's side of a ring. Programs never call it.
type Driver interface {
	// Sync is called by Ring.Sync with the slots [from, to) that the program
	// has passed since the last call: to be sent, or to be reused for
	// receiving. It returns how far it took them over (accepted, in
	// [from, to]) and the new tail, at most accepted plus the ring's size. If
	// accepted is not to, err says why, and the program has the rest back. A
	// device that is merely busy is no reason: the driver takes the slots and
	// goes on with them at the next Sync.
	//
	// It never blocks and never allocates.
	Sync(r *Ring, from, to uint32) (accepted, tail uint32, err error)
}

// The following are abilities that a Driver may have beside Sync.
type (
	// Armer is a Driver whose descriptor only signals when asked to. Arm is
	// called before a wait; what came before it does not signal, so the
	// caller looks once more after it.
	Armer interface{ Arm(r *Ring) }
	// Metaer is a Driver that knows more about received frames. The slot k
	// belongs to the program.
	Metaer interface {
		Meta(r *Ring, k uint32, m *Meta) bool
	}
	// Refresher is a Driver that has counters or a state to fetch from the
	// kernel.
	Refresher interface{ Refresh(r *Ring) error }
	// Resetter is a Driver whose stuck transmit ring can be made anew.
	Resetter interface{ Reset(r *Ring) error }
)
