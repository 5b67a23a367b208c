package lagg

import "time"

// buckets is the number of flows, at most, that a worker tells apart.
const buckets = 1 << 14

// none marks a bucket without a member.
const none = 0xff

// bucket is one flow, or several whose hashes agree in the low bits.
type bucket struct {
	last uint32 // time of its last frame, in ticks
	home uint8  // member that it belongs to
	now  uint8  // member that it is sent through: home, or a stand-in
}

// table is a worker's memory of flows. load counts the buckets of each home.
type table struct {
	b     [buckets]bucket
	load  [MaxMembers]uint64
	used  uint64
	sweep uint32
}

// ticks is the time as buckets note it: in units of 2^16 ns, about 66 us.
func ticks(d time.Duration) uint32 { return uint32(uint64(d) >> 16) }

// forget is how many ticks a flow may be silent before its bucket is free.
const forget = uint32(60 * time.Second >> 16)

func newTable() *table {
	t := &table{}
	for i := range t.b {
		t.b[i].home = none
	}
	return t
}

// slack lets a member have a little more than its share before flows go
// elsewhere: 1/slack of it, and one.
const slack = 64

// full reports whether member m has its share of n buckets.
func (t *table) full(m int, s *snapshot) bool {
	fair := (t.used + 1) * s.shares[m]
	return t.load[m]*s.total > fair+fair/slack
}

// choose returns the member for a flow: the first in rendezvous order that has
// not got its share; -1 if none is live. skipFull false takes the very first.
func (t *table) choose(flow uint64, s *snapshot, shares []uint32, skipFull bool) int {
	var tried uint32
	for {
		best, high := -1, 0.0
		for _, m := range s.live {
			if tried&(1<<m) != 0 {
				continue
			}
			share := uint32(1)
			if shares != nil {
				share = shares[m]
			}
			if w := weight(flow, m, share); best < 0 || w > high {
				best, high = m, w
			}
		}
		if best < 0 {
			if tried == 0 {
				return -1
			}
			return Rendezvous(flow, s.live, shares) // all have their share: as it comes
		}
		if !skipFull || !t.full(best, s) {
			return best
		}
		tried |= 1 << best
	}
}

// member returns the member for a frame of the flow at tick now; -1 if none is
// live. drained reports whether a member has nothing left to send; gap is the
// flowlet gap in ticks, 0 for none.
func (t *table) member(flow uint64, now, gap uint32, s *snapshot, shares []uint32, drained func(int) bool) int {
	b := &t.b[flow&(buckets-1)]
	if b.home == none {
		m := t.choose(flow, s, shares, true)
		if m < 0 {
			return -1
		}
		b.home, b.now, b.last = uint8(m), uint8(m), now
		t.load[m]++
		t.used++
		return m
	}
	silent := now - b.last
	b.last = now
	switch {
	case !s.active[b.now]:
		// Its member is gone, and what that had queued with it: nothing can
		// be overtaken.
		m := int(b.home)
		if !s.active[m] {
			if m = t.choose(flow, s, shares, false); m < 0 {
				return -1
			}
		}
		b.now = uint8(m)
	case b.now != b.home && s.active[b.home]:
		if gap != 0 && silent >= gap || drained(int(b.now)) {
			b.now = b.home
		}
	}
	return int(b.now)
}

// age frees the buckets of some silent flows; called once per round.
func (t *table) age(now uint32) {
	for range 16 {
		b := &t.b[t.sweep&(buckets-1)]
		t.sweep++
		if b.home != none && now-b.last > forget {
			t.load[b.home]--
			t.used--
			b.home = none
		}
	}
}
