package lagg

import (
	"math"
	"sync/atomic"
)

// MaxMembers bounds a group.
const MaxMembers = 32

// Mix scrambles 64 bits: the finaliser of SplitMix64 (Steele, Lea, Flood, 2014).
func Mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// weight is what member m bids for a flow: rendezvous hashing (Thaler and
// Ravishankar, 1998). With shares it is the weighted form, -share/ln(u).
func weight(flow uint64, m int, share uint32) float64 {
	h := Mix(flow ^ Mix(uint64(m)+0x9e3779b97f4a7c15))
	u := (float64(h>>11) + 0.5) / (1 << 53)
	return -float64(share) / math.Log(u)
}

// Rendezvous returns the member of live with the highest bid for the flow; the
// first of equals; -1 if live is empty. shares may be nil for equal ones.
func Rendezvous(flow uint64, live []int, shares []uint32) int {
	best, high := -1, uint64(0)
	if shares == nil {
		for _, m := range live {
			if w := Mix(flow ^ Mix(uint64(m)+0x9e3779b97f4a7c15)); best < 0 || w > high {
				best, high = m, w
			}
		}
		return best
	}
	top := 0.0
	for _, m := range live {
		if w := weight(flow, m, shares[m]); best < 0 || w > top {
			best, top = m, w
		}
	}
	return best
}

// LinkActive is lagg(4)'s choice of a stand-in: the member asked for if it is
// active, else its immediate neighbour if that is, else the first active one;
// -1 if there is none. want is -1 for "none in particular".
func LinkActive(active []bool, want int) int {
	if want >= 0 && want < len(active) {
		if active[want] {
			return want
		}
		if want+1 < len(active) && active[want+1] {
			return want + 1
		}
	}
	for i, a := range active {
		if a {
			return i
		}
	}
	return -1
}

// Sequence is the round robin's position, shared by all workers: one atomic
// add for a batch, whoever comes first.
type Sequence struct{ n atomic.Uint32 }

// Take reserves n places and returns the first.
func (s *Sequence) Take(n uint32) uint32 { return s.n.Add(n) - n }

// GiveBack returns the last n places of what Take reserved. If another worker
// has reserved since, runs get longer or shorter by as much, once.
func (s *Sequence) GiveBack(n uint32) {
	if n != 0 {
		s.n.Add(-n)
	}
}

// At returns which of live members place seq belongs to, and how many places
// from there on, itself among them, belong to the same.
func At(seq, stride uint32, live int) (index int, run uint32) {
	return int(seq / stride % uint32(live)), stride - seq%stride
}
