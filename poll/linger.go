package poll

import "time"

// linger decides whether a worker that has nothing left to do stays awake for a
// moment, since the next packet is likely to come before a sleep would pay.
// It has no clock.
//
// The rule is that of a hypervisor that polls before it halts a processor: had
// the last silence ended within the longest time that we would stay awake, the
// next one probably will; had it not, staying awake would have been for
// nothing. So sparse traffic costs nothing, however long that time is, and a
// steady exchange is served without wake-ups.
type linger struct {
	max time.Duration // longest time awake in a silence; 0 is none

	last   time.Duration // of the last round that moved something
	silent bool          // rounds since then moved nothing
	since  time.Duration // when that began
	worth  bool          // the last silence was short enough to stay awake
	warm   bool          // it was no longer than hotTime
	off    time.Duration // not before then, as somebody else wants the core
}

// hotTime is how long after a packet a wake-up is to be had that is fast, and
// costs something while it is waited for. The same rule applies: only if the
// last silence was no longer.
const hotTime = 100 * time.Millisecond

// round takes the outcome of a round that started at now. It reports whether
// it ended a silence that we stayed awake in.
func (l *linger) round(now time.Duration, done int) (caught bool) {
	switch {
	case done == 0 && !l.silent:
		l.silent, l.since = true, now
	case done > 0:
		if l.silent {
			d := now - l.since
			caught = l.worth && d <= l.max
			l.silent, l.worth, l.warm = false, d <= l.max, d <= hotTime
		}
		l.last = now
	}
	return caught
}

// awake reports whether to stay awake at now.
func (l *linger) awake(now time.Duration) bool {
	return l.worth && l.silent && now-l.since <= l.max && now >= l.off
}

// hot reports whether the next packet is likely soon after now.
func (l *linger) hot(now time.Duration) bool { return l.warm && now-l.last <= hotTime }

// contended makes it sleep at once, until the given time.
func (l *linger) contended(until time.Duration) { l.worth, l.off = false, until }
