// Package stats sums up repeated measurements: median with its range, and
// ratios taken round by round.
//
// Packet rates on a shared machine drift by the hour and have outliers on one
// side, so a mean says little. The median of interleaved rounds, and the
// median of the ratios within a round, are what the tables show.
package stats

import (
	"math"
	"slices"
)

// Summary is the median of N values with their range.
type Summary struct {
	N                int
	Median, Min, Max float64
}

// Summarize sums up xs; ok is false when it is empty or holds a value that is
// not a number.
func Summarize(xs []float64) (s Summary, ok bool) {
	if len(xs) == 0 || slices.ContainsFunc(xs, math.IsNaN) {
		return Summary{}, false
	}
	v := slices.Clone(xs)
	slices.Sort(v)
	m := len(v) / 2
	s = Summary{N: len(v), Median: v[m], Min: v[0], Max: v[len(v)-1]}
	if len(v)%2 == 0 {
		s.Median = v[m-1] + (v[m]-v[m-1])/2
	}
	return s, true
}

// Ratios divides a by b round by round. Rounds that either lacks, and those
// where b is zero, are left out. The order is that of the rounds.
func Ratios(a, b map[int]float64) []float64 {
	var rounds []int
	for r := range a {
		if d, ok := b[r]; ok && d != 0 {
			rounds = append(rounds, r)
		}
	}
	slices.Sort(rounds)
	out := make([]float64, len(rounds))
	for i, r := range rounds {
		out[i] = a[r] / b[r]
	}
	return out
}

// Percentile returns the p-th percentile of xs, p from 0 to 100, by the
// nearest-rank rule; NaN when xs is empty.
func Percentile(xs []float64, p float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	v := slices.Clone(xs)
	slices.Sort(v)
	k := int(math.Ceil(p / 100 * float64(len(v))))
	return v[min(max(k, 1), len(v))-1]
}
