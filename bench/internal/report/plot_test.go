//go:build linux

package report

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/netring/netring/bench/internal/result"
	"github.com/netring/netring/bench/internal/scenario"
)

func point(name string, x, y float64) result.Row {
	return result.Row{Case: name, Samples: []result.Sample{{Round: 1, Metrics: map[string]float64{"x": x, "y": y}}}}
}

func TestDraw(t *testing.T) {
	r := run(point("a, 4 times", 4000, 10), point("a, 1 times", 1000, 30), point("ab, 1 times", 1, 1), result.Row{Case: "a, skipped", Skipped: "x"})
	p := &scenario.Plot{XKey: "x", YKey: "y", XScale: 1e3, YScale: 10, Lines: []string{"a", "nobody"}}
	pts := points(p, r, "a")
	if len(pts) != 2 || pts[0].X != 1 || pts[0].Y != 3 || pts[1].X != 4 || pts[1].Y != 1 {
		t.Fatalf("points %v", pts)
	}
	dir := t.TempDir()
	if err := Draw(&scenario.Scenario{Name: "s", Plot: p}, r, dir); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "s.svg")); err != nil || len(b) < 500 {
		t.Errorf("plot of %d bytes, %v", len(b), err)
	}
}
