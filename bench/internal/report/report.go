//go:build linux

// Package report turns the results of benchmarks into the generated parts of
// BENCHMARKS.md. No figure there is typed by hand.
//
// A generated part stands between two comment lines, "begin bench NAME" and
// "end bench NAME", where NAME is a scenario or "machine". What is outside of
// them is left as it is.
package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/netring/netring/bench/internal/bed"
	"github.com/netring/netring/bench/internal/result"
	"github.com/netring/netring/bench/internal/scenario"
	"github.com/netring/netring/bench/internal/stats"
)

const (
	beginMark = "<!-- begin bench "
	endMark   = "<!-- end bench "
	markEnd   = " -->"
)

// Update replaces the generated parts of text. It gives an error for a part
// that has no section, or whose marks do not pair; unused names the sections
// that the text has no part for.
func Update(text string, sections map[string]string) (updated string, unused []string, err error) {
	var out strings.Builder
	left := maps.Clone(sections)
	inside := ""
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, beginMark):
			name := markName(trimmed, beginMark)
			if inside != "" {
				return "", nil, fmt.Errorf("part %q begins inside of part %q", name, inside)
			}
			body, ok := sections[name]
			if !ok {
				return "", nil, fmt.Errorf("part %q: no such scenario", name)
			}
			delete(left, name)
			inside = name
			out.WriteString(line)
			out.WriteString("\n" + strings.TrimSpace(body) + "\n\n")
		case strings.HasPrefix(trimmed, endMark):
			if name := markName(trimmed, endMark); name != inside {
				return "", nil, fmt.Errorf("part %q ends where part %q should", name, inside)
			}
			inside = ""
			out.WriteString(line)
		case inside == "":
			out.WriteString(line)
		}
	}
	if inside != "" {
		return "", nil, fmt.Errorf("part %q has no end", inside)
	}
	return out.String(), slices.Sorted(maps.Keys(left)), nil
}

func markName(line, mark string) string {
	return strings.TrimSuffix(strings.TrimPrefix(line, mark), markEnd)
}

// Section is the generated part of a scenario.
func Section(s *scenario.Scenario, r *result.Run) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n%s\n\n", s.Title, s.About)
	if r == nil {
		fmt.Fprintf(&b, "Not measured yet: `bench run --scenario '^%s$'`.\n", s.Name)
		published(&b, s, &result.Run{})
		return b.String()
	}
	table(&b, s, r)
	goals(&b, s, r)
	published(&b, s, r)
	if s.Plot != nil {
		fmt.Fprintf(&b, "\n![%s](bench/results/%s.svg)\n", s.Title, s.Name)
	}
	fmt.Fprintf(&b, "\n`%s`, %s, netring %s: medians over %d rounds [minimum to maximum]", s.Name,
		r.Started.Format("2006-01-02"), version(r, "netring"), r.Rounds)
	if r.Seconds > 0 {
		fmt.Fprintf(&b, ", windows of %g s unless said otherwise", r.Seconds)
	}
	fmt.Fprintf(&b, ". Source on core %d, device under test on core %d.\n", r.Source, r.DUT)
	for _, n := range notes(r) {
		fmt.Fprintf(&b, "* %s\n", n)
	}
	return b.String()
}

func version(r *result.Run, name string) string {
	if v := r.Versions[name]; v != "" {
		return v
	}
	return "of unknown version"
}

// used are the columns for which any row has a value.
func used(s *scenario.Scenario, r *result.Run) (cols []scenario.Column) {
	for _, c := range s.Columns {
		for i := range r.Rows {
			if len(r.Rows[i].Metric(c.Metric)) > 0 {
				cols = append(cols, c)
				break
			}
		}
	}
	return cols
}

func table(b *strings.Builder, s *scenario.Scenario, r *result.Run) {
	cols := used(s, r)
	cores := 0
	for i := range r.Rows {
		for j := range r.Rows[i].Samples {
			if w := r.Rows[i].Samples[j].Window; w != nil {
				cores = max(cores, min(len(w.CPUs), 4))
			}
		}
	}
	head := []string{""}
	for _, c := range cols {
		head = append(head, c.Head)
	}
	for i := range cores {
		head = append(head, fmt.Sprintf("core %d user/sys/softirq/idle %%", i))
	}
	row(b, head)
	row(b, slices.Repeat([]string{"---"}, len(head)))
	for i := range r.Rows {
		rw := &r.Rows[i]
		cells := []string{rw.Case}
		if rw.Skipped != "" {
			cells = append(cells, "skipped: "+clean(rw.Skipped))
			row(b, append(cells, make([]string, len(head)-2)...))
			continue
		}
		for _, c := range cols {
			cells = append(cells, cell(c, rw))
		}
		for core := range cores {
			cells = append(cells, shares(rw, core))
		}
		row(b, cells)
	}
}

func row(b *strings.Builder, cells []string) { fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | ")) }

// clean makes a text fit into a cell.
func clean(s string) string {
	s = strings.Join(strings.Fields(strings.ReplaceAll(s, "|", "/")), " ")
	if len(s) > 120 {
		s = s[:117] + "..."
	}
	return s
}

func cell(c scenario.Column, rw *result.Row) string {
	sum, ok := stats.Summarize(slices.Collect(maps.Values(rw.Metric(c.Metric))))
	if !ok {
		return ""
	}
	text := fmt.Sprintf("%.*f", c.Digits, c.Value(sum.Median))
	if c.Range {
		text = spread(sum, c)
	}
	return text
}

func spread(s stats.Summary, c scenario.Column) string {
	return fmt.Sprintf("%.*f [%.*f to %.*f]", c.Digits, c.Value(s.Median), c.Digits, c.Value(s.Min), c.Digits, c.Value(s.Max))
}

// shares is the median use of a core.
func shares(rw *result.Row, core int) string {
	var user, sys, soft, idle []float64
	for _, s := range rw.Samples {
		if s.Window != nil && core < len(s.Window.CPUs) {
			c := s.Window.CPUs[core]
			user, sys, soft, idle = append(user, c.User), append(sys, c.System), append(soft, c.SoftIRQ), append(idle, c.Idle)
		}
	}
	var parts []string
	for _, xs := range [][]float64{user, sys, soft, idle} {
		sum, ok := stats.Summarize(xs)
		if !ok {
			return ""
		}
		parts = append(parts, fmt.Sprintf("%.0f", sum.Median))
	}
	return strings.Join(parts, "/")
}

func goals(b *strings.Builder, s *scenario.Scenario, r *result.Run) {
	if len(s.Goals) == 0 {
		return
	}
	b.WriteString("\n| goal | measured | |\n| --- | --- | --- |\n")
	for _, g := range s.Goals {
		v := Judge(&g, r)
		fmt.Fprintf(b, "| %s | %s | %s |\n", g.Text, v.Text, v.Word)
	}
}

// notes say what the figures do not.
func notes(r *result.Run) (out []string) {
	windows, disturbed := 0, 0
	for i := range r.Rows {
		rw := &r.Rows[i]
		for _, s := range rw.Samples {
			if s.Window != nil {
				windows++
				if s.Window.Foreign > bed.MaxForeign {
					disturbed++
				}
			}
		}
		if len(rw.Failed) > 0 {
			out = append(out, fmt.Sprintf("%s: %d failed: %s", rw.Case, len(rw.Failed), clean(rw.Failed[0])))
		}
	}
	if disturbed > 0 {
		out = append(out, fmt.Sprintf("In %d of %d windows other programs used more than %g %% of a core, even when measured again.",
			disturbed, windows, bed.MaxForeign))
	}
	return out
}
