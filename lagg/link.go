package lagg

import "time"

// link is the history of one member's link, and the hold-down: a link that
// comes back is not used before it has been up for a time that doubles with
// each flap.
type link struct {
	up      bool
	seen    bool // has ever been up
	flaps   uint // since the last calm time
	downs   uint64
	changed time.Duration // when it last went up or down
	holdEnd time.Duration // not used before
}

// set notes the state at now. Down is effective at once.
func (l *link) set(up bool, now, hold, most time.Duration) {
	if l.up == up {
		return
	}
	if l.seen && now-l.changed > 2*most {
		l.flaps = 0
	}
	switch {
	case !up:
		l.flaps++
		l.downs++
	case l.seen && l.flaps != 0 && hold > 0:
		l.holdEnd = now + grow(hold, most, l.flaps-1)
	}
	l.up, l.seen, l.changed = up, l.seen || up, now
}

// grow is hold doubled times times, at most most.
func grow(hold, most time.Duration, times uint) time.Duration {
	for ; times > 0 && hold < most; times-- {
		hold *= 2
	}
	return min(hold, most)
}

// held reports whether the link is up and waits for its hold-down.
func (l *link) held(now time.Duration) bool { return l.up && l.holdEnd > now }
