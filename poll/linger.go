package poll

import "time"

// linger decides whether a worker that has nothing left to do is awake
// nevertheless, since the next packet is likely to come before a sleep would
// pay. It has no clock.
//
// The rule is that of a hypervisor that polls before it halts a processor: had
// the last silence ended within the longest time that we would stay awake, the
// next one probably will; had it not, staying awake would have been for
// nothing. So sparse traffic costs nothing, however long that time is, and a
// steady exchange is served without wake-ups. Besides, it is awake when a
// rhythm in the traffic says that a packet is due.
type linger struct {
	max time.Duration // longest time awake in a silence; 0 is none

	last   time.Duration // of the last round that moved something
	silent bool          // rounds since then moved nothing
	since  time.Duration // when that began
	worth  bool          // the last silence was short enough to stay awake
	warm   bool          // it was no longer than hotTime
	off    time.Duration // not before then, as somebody else wants the core
	rhythm rhythm
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
			caught = l.awake(now)
			l.silent, l.worth, l.warm = false, d <= l.max, d <= hotTime
			if d >= beatGap {
				l.rhythm.beat(now)
			}
		}
		l.last = now
	}
	return caught
}

// awake reports whether to be awake at now, though there is nothing to do.
func (l *linger) awake(now time.Duration) bool {
	return l.silent && (l.due(now) || l.worth && now-l.since <= l.max && now >= l.off)
}

// due reports whether a packet is due at now. That is so for a small part of
// the time, so others who want the core need not be asked.
func (l *linger) due(now time.Duration) bool {
	from, to, ok := l.rhythm.window()
	return ok && from <= now && now <= to
}

// alarm is when a sleep that begins at now must end: at until, or earlier, as
// a packet will be due.
func (l *linger) alarm(now, until time.Duration) time.Duration {
	if from, _, ok := l.rhythm.window(); ok && now < from {
		return min(from, until)
	}
	return until
}

// hot reports whether the next packet is likely soon after now.
func (l *linger) hot(now time.Duration) bool { return l.warm && now-l.last <= hotTime }

// contended makes it sleep at once, until the given time but for when a packet
// is due.
func (l *linger) contended(until time.Duration) { l.worth, l.off = false, until }
