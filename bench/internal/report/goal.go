//go:build linux

package report

import (
	"fmt"
	"maps"
	"slices"

	"github.com/netring/netring/bench/internal/result"
	"github.com/netring/netring/bench/internal/scenario"
	"github.com/netring/netring/bench/internal/stats"
)

// Verdict says whether a goal was reached.
type Verdict struct {
	Text string // the measured value
	Word string // "met", "not met" or "not measured"
}

const (
	met         = "met"
	notMet      = "**not met**"
	notMeasured = "not measured"
)

// Judge compares a goal with what was measured. The median over the rounds
// decides; a metric that must be zero must be so in every round.
func Judge(g *scenario.Goal, r *result.Run) Verdict {
	s, ok := stats.Summarize(values(r, g.Case, g.Metric, g.Against))
	if !ok {
		return Verdict{Word: notMeasured}
	}
	v := Verdict{Text: fmt.Sprintf("%s [%s to %s]", short(s.Median), short(s.Min), short(s.Max)), Word: met}
	switch {
	case g.Min != 0 && s.Median < g.Min, g.Max != 0 && s.Median > g.Max, g.ZeroMax && s.Max > 0:
		v.Word = notMet
	}
	return v
}

// values are a metric of a case in each round, or its ratios to another case's.
func values(r *result.Run, name, metric, against string) []float64 {
	row := r.Row(name)
	if row == nil {
		return nil
	}
	if against == "" {
		return slices.Collect(maps.Values(row.Metric(metric)))
	}
	if other := r.Row(against); other != nil {
		return stats.Ratios(row.Metric(metric), other.Metric(metric))
	}
	return nil
}

// short prints three significant digits, and integers whole.
func short(v float64) string {
	if v == float64(int64(v)) || v >= 1000 || v <= -1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
