package poll

import "time"

// rhythm foresees when the next packet comes where packets come at a steady
// interval: a voice stream, a control loop, a probe. The worker can then be
// awake just before it. It has no clock.
//
// The idea is that of Linux's interrupt timings (kernel/irq/timings.c), which
// tell an idle processor how deep it may sleep. Only beginnings count: packets
// with no silence of beatGap between them are one beat.
type rhythm struct {
	last   time.Duration // when a beat began
	period time.Duration // from one to the next
	jitter time.Duration // how far they are off it, smoothed
	steady int           // beats in a row that were close to it
}

const (
	// beatGap is the shortest silence before a beat. What comes faster is the
	// business of the pacer.
	beatGap = 2 * time.Millisecond
	// beatsKnown beats must have come in time before one is awaited, and one
	// that is off by more than period/beatOff starts all over.
	beatsKnown = 4
	beatOff    = 16
	// beatLead is what waking from a sleep by the clock may take, and is the
	// least that the wait begins before a beat.
	beatLead = 150 * time.Microsecond
	// beatShare bounds the wait: at most that part of the time is spent awake.
	beatShare = 16
)

// beat takes a packet that came at now after a silence.
func (r *rhythm) beat(now time.Duration) {
	d := now - r.last
	r.last = now
	off := d - r.period
	if off.Abs() > r.period/beatOff {
		*r = rhythm{last: now, period: d}
		return
	}
	r.period += off / 8
	r.jitter += (off.Abs() - r.jitter) / 4
	r.steady++
}

// window is when the next beat is awaited; ok is false if it cannot be
// foreseen, or not closely enough.
func (r *rhythm) window() (from, to time.Duration, ok bool) {
	half := min(beatLead+4*r.jitter, r.period/(2*beatShare))
	next := r.last + r.period
	return next - half, next + half, r.steady >= beatsKnown && half >= beatLead
}
