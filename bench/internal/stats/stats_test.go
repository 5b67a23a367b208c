package stats

import (
	"math"
	"slices"
	"testing"
)

func TestSummarize(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []float64
		want Summary
		ok   bool
	}{
		{"none", nil, Summary{}, false},
		{"one", []float64{7}, Summary{1, 7, 7, 7}, true},
		{"odd, unsorted", []float64{9, 1, 5}, Summary{3, 5, 1, 9}, true},
		{"even", []float64{4, 1, 3, 2}, Summary{4, 2.5, 1, 4}, true},
		{"not a number", []float64{1, math.NaN()}, Summary{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := slices.Clone(c.in)
			got, ok := Summarize(c.in)
			if got != c.want || ok != c.ok {
				t.Errorf("Summarize(%v) = %+v, %v; want %+v, %v", c.in, got, ok, c.want, c.ok)
			}
			for i := range in {
				if in[i] != c.in[i] && !math.IsNaN(in[i]) {
					t.Fatal("Summarize changed its argument")
				}
			}
		})
	}
}

func TestRatiosPairRounds(t *testing.T) {
	a := map[int]float64{3: 30, 1: 10, 2: 20, 5: 50}
	b := map[int]float64{1: 5, 2: 0, 3: 10, 4: 1}
	got := Ratios(a, b)
	if want := []float64{2, 3}; !slices.Equal(got, want) {
		t.Errorf("Ratios = %v, want %v: rounds 1 and 3 only, in that order", got, want)
	}
	if got := Ratios(nil, b); len(got) != 0 {
		t.Errorf("Ratios of nothing = %v", got)
	}
}

func TestPercentile(t *testing.T) {
	xs := []float64{5, 1, 4, 2, 3}
	for _, c := range []struct{ p, want float64 }{{0, 1}, {20, 1}, {21, 2}, {50, 3}, {99, 5}, {100, 5}} {
		if got := Percentile(xs, c.p); got != c.want {
			t.Errorf("Percentile(%v) = %v, want %v", c.p, got, c.want)
		}
	}
	if !math.IsNaN(Percentile(nil, 50)) {
		t.Error("Percentile of nothing is a number")
	}
}
