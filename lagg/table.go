package lagg

import "time"

// buckets is the number of flows, at most, that a worker tells apart.
const buckets = 1 << 14

// none marks a bucket that is free.
const none = 0xff

// bucket is one flow, or several whose hashes agree in the low bits.
type bucket struct {
	last uint32 // time of its last frame, in ticks
	home uint8  // member that it belongs to, be its link up or down
	now  uint8  // member that it is sent through: home, or a stand-in
}

// table is a worker's memory of flows.
type table struct {
	b     [buckets]bucket
	homes [MaxMembers]uint64 // buckets by home
	load  [MaxMembers]uint64 // and by now
	used  uint64
	sweep uint32

	moved, kept uint64 // see Counters; not published yet
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
// elsewhere: 1/slack of it.
const slack = 256

// place returns the member of p for a flow: the first in rendezvous order that
// has not got its share by load; -1 if there is no member.
func (t *table) place(flow uint64, p *pool, load *[MaxMembers]uint64) int {
	first, tried := -1, uint32(0)
	for range p.members {
		best, high := -1, 0.0
		for _, m := range p.members {
			if tried>>m&1 == 0 {
				if w := weight(flow, m, p.shares[m]); best < 0 || w > high {
					best, high = m, w
				}
			}
		}
		fair := (t.used + 1) * uint64(p.shares[best])
		if load[best]*p.total <= fair+fair/slack {
			return best
		}
		if first < 0 {
			first = best
		}
		tried |= 1 << best
	}
	return first // all have their share
}

// member returns the member for a frame of the flow at tick now; -1 if none is
// live. gap is the flowlet gap in ticks, 0 for none.
func (t *table) member(flow uint64, now, gap uint32, s *snapshot, d *drains) int {
	b := &t.b[flow&(buckets-1)]
	if b.home == none {
		if len(s.live) == 0 {
			return -1
		}
		m := t.place(flow, s.all, &t.homes)
		b.home, b.now = uint8(m), uint8(m)
		t.homes[m]++
		t.load[m]++
		t.used++
	}
	silent := now - b.last
	b.last = now
	switch {
	case !s.active[b.now]:
		// Its member is gone, and what that had queued with it: nothing can
		// be overtaken.
		m := int(b.home)
		if !s.active[m] {
			if m = t.place(flow, &s.pool, &t.load); m < 0 {
				return -1
			}
		}
		t.move(b, m)
	case b.now != b.home && s.active[b.home]:
		if gap != 0 && silent >= gap || d.drained(int(b.now)) {
			t.move(b, int(b.home))
		} else {
			t.kept++
		}
	}
	return int(b.now)
}

func (t *table) move(b *bucket, m int) {
	t.load[b.now]--
	t.load[m]++
	b.now = uint8(m)
	t.moved++
}

// age frees the buckets of some silent flows; called once per round.
func (t *table) age(now uint32) {
	for range 16 {
		b := &t.b[t.sweep&(buckets-1)]
		t.sweep++
		if b.home != none && now-b.last > forget {
			t.homes[b.home]--
			t.load[b.now]--
			t.used--
			b.home = none
		}
	}
}
