package gen

import (
	"math/bits"
	"time"
)

// Schedule says how much is due: units (packets, or bits) at a rate per second,
// counted from its start in whole nanoseconds, so that the rate does not drift
// however long it runs. What could not be sent in time for longer than Slack is
// given up, not caught up with in a burst.
type Schedule struct {
	rate  uint64 // units a second; 0 means as much as can be sent
	slack uint64 // units
	start time.Duration
	sent  uint64
	late  uint64
}

// Slack is how far behind a schedule may fall before it gives up what is due.
const Slack = 2 * time.Millisecond

// NewSchedule starts at time start with rate units a second; least is the most
// units of one frame or burst, which must always be allowed to wait.
func NewSchedule(rate, least uint64, start time.Duration) *Schedule {
	slack := mulDiv(rate, uint64(Slack), uint64(time.Second))
	return &Schedule{rate: rate, slack: max(slack, least), start: start}
}

// Due returns how many units may be sent at time now.
func (s *Schedule) Due(now time.Duration) uint64 {
	if s.rate == 0 {
		return 1<<64 - 1
	}
	if now < s.start {
		return 0
	}
	// One unit is due at the start, the next one a unit later.
	due := mulDiv(s.rate, uint64(now-s.start), uint64(time.Second)) + 1
	if due <= s.sent {
		return 0
	}
	if due-s.sent > s.slack {
		give := due - s.sent - s.slack
		s.late += give
		s.sent += give
	}
	return due - s.sent
}

// Sent notes that n units have been sent.
func (s *Schedule) Sent(n uint64) { s.sent += n }

// Late is the number of units that were given up.
func (s *Schedule) Late() uint64 { return s.late }

// Next is when n more units will be due.
func (s *Schedule) Next(n uint64) time.Duration {
	if s.rate == 0 {
		return s.start
	}
	// Rounded up: at that time they are due.
	hi, lo := bits.Mul64(s.sent+n-1, uint64(time.Second))
	lo, carry := bits.Add64(lo, s.rate-1, 0)
	if hi+carry >= s.rate {
		return 1<<63 - 1
	}
	q, _ := bits.Div64(hi+carry, lo, s.rate)
	return s.start + time.Duration(q)
}

// mulDiv is a*b/c with 128 bits in between; the largest number if that is too
// large.
func mulDiv(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return 1<<64 - 1
	}
	q, _ := bits.Div64(hi, lo, c)
	return q
}
