//go:build linux

package report

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/netring/netring/bench/internal/result"
	"github.com/netring/netring/bench/internal/scenario"
	"github.com/netring/netring/bench/internal/stats"
)

// published sets figures from elsewhere beside what was measured here.
func published(b *strings.Builder, s *scenario.Scenario, r *result.Run) {
	if len(s.Published) == 0 {
		return
	}
	b.WriteString("\n| published: what | figure | here | where they differ, and why |\n| --- | --- | --- | --- |\n")
	for _, p := range s.Published {
		row(b, []string{p.What, fmt.Sprintf("%s (%s)", p.Figure, p.Source), ours(&p, r), p.Why})
	}
}

// ours is the figure of this run that a published one is compared with.
func ours(p *scenario.Published, r *result.Run) string {
	if p.Case == "" {
		return "nothing comparable"
	}
	s, ok := stats.Summarize(values(r, p.Case, p.Metric, p.Against))
	if !ok {
		return notMeasured
	}
	scale := cmp.Or(p.Scale, 1)
	return fmt.Sprintf("%.*f [%.*f to %.*f]%s", p.Digits, s.Median/scale, p.Digits, s.Min/scale, p.Digits, s.Max/scale, p.Unit)
}
