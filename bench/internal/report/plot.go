//go:build linux

package report

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/netring/netring/bench/internal/result"
	"github.com/netring/netring/bench/internal/scenario"
	"github.com/netring/netring/bench/internal/stats"
)

// Draw makes the scenario's plot, if it has one, beside its results.
func Draw(s *scenario.Scenario, r *result.Run, dir string) error {
	if s.Plot == nil {
		return nil
	}
	p := plot.New()
	p.Title.Text = s.Title
	p.X.Label.Text, p.Y.Label.Text = s.Plot.X, s.Plot.Y
	p.X.Min, p.Y.Min = 0, 0
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	for i, name := range s.Plot.Lines {
		pts := points(s.Plot, r, name)
		if len(pts) == 0 {
			continue
		}
		line, marks, err := plotter.NewLinePoints(pts)
		if err != nil {
			return fmt.Errorf("plot %s: %w", s.Name, err)
		}
		line.Color, line.Width = plotutil.Color(i), vg.Points(1.5)
		marks.Color, marks.Shape = plotutil.Color(i), plotutil.Shape(i)
		p.Add(line, marks)
		p.Legend.Add(name, line, marks)
	}
	if err := p.Save(16*vg.Centimeter, 10*vg.Centimeter, filepath.Join(dir, s.Name+".svg")); err != nil {
		return fmt.Errorf("plot %s: %w", s.Name, err)
	}
	return nil
}

// points are the medians of the cases that belong to a line, in the order of x.
func points(p *scenario.Plot, r *result.Run, line string) (pts plotter.XYs) {
	for i := range r.Rows {
		rw := &r.Rows[i]
		if !strings.HasPrefix(rw.Case, line+",") {
			continue
		}
		x, okX := stats.Summarize(slices.Collect(maps.Values(rw.Metric(p.XKey))))
		y, okY := stats.Summarize(slices.Collect(maps.Values(rw.Metric(p.YKey))))
		if okX && okY {
			pts = append(pts, plotter.XY{X: x.Median / p.XScale, Y: y.Median / p.YScale})
		}
	}
	slices.SortFunc(pts, func(a, b plotter.XY) int {
		if a.X < b.X {
			return -1
		}
		return 1
	})
	return pts
}
