package ring

import "sync/atomic"

// Life counts who is inside of a port, so that its memory outlives them. The
// driver makes one per port; all rings of the port share it.
type Life struct {
	state atomic.Int64 // those inside, plus lifeClosed once closed
	empty chan struct{}
}

const lifeClosed = int64(1) << 62

// NewLife returns an open Life with nobody inside.
func NewLife() *Life { return &Life{empty: make(chan struct{}, 1)} }

// Enter reports whether the caller may go in; if so it must Exit. It may nest.
func (l *Life) Enter() bool {
	if l.state.Add(1) < lifeClosed {
		return true
	}
	l.Exit()
	return false
}

// Exit undoes one Enter.
func (l *Life) Exit() {
	if l.state.Add(-1) == lifeClosed {
		// Several may see this, as a late Enter that is refused comes here
		// too: one word in the channel is enough, Drain looks again.
		select {
		case l.empty <- struct{}{}:
		default:
		}
	}
}

// Closed reports whether Shut has been called.
func (l *Life) Closed() bool { return l.state.Load() >= lifeClosed }

// Shut refuses all later Enters and reports whether this call was the first.
func (l *Life) Shut() bool {
	for {
		s := l.state.Load()
		if s >= lifeClosed {
			return false
		}
		if l.state.CompareAndSwap(s, s+lifeClosed) {
			return true
		}
	}
}

// Drain returns when nobody is inside. Only after Shut, by the one caller for
// whom Shut was true.
func (l *Life) Drain() {
	for l.state.Load() != lifeClosed {
		<-l.empty
	}
}
