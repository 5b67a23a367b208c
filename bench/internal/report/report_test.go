//go:build linux

package report

import (
	"strings"
	"testing"
	"time"

	"github.com/netring/netring/bench/internal/result"
	"github.com/netring/netring/bench/internal/scenario"
)

func TestUpdate(t *testing.T) {
	text := "# Head\n<!-- begin bench a -->\nold\n<!-- end bench a -->\nprose\n  <!-- begin bench b -->\n<!-- end bench b -->\ntail\n"
	got, unused, err := Update(text, map[string]string{"a": "new a\n", "b": "new b", "c": "x"})
	want := "# Head\n<!-- begin bench a -->\n\nnew a\n\n<!-- end bench a -->\nprose\n  <!-- begin bench b -->\n\nnew b\n\n<!-- end bench b -->\ntail\n"
	if err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if len(unused) != 1 || unused[0] != "c" {
		t.Errorf("unused %v", unused)
	}
	again, _, err := Update(got, map[string]string{"a": "new a", "b": "new b"})
	if err != nil || again != got {
		t.Errorf("a second update changed the text: %q, %v", again, err)
	}
}

func TestUpdateRefusesBrokenMarks(t *testing.T) {
	for name, text := range map[string]string{
		"unknown":  "<!-- begin bench zzz -->\n<!-- end bench zzz -->\n",
		"unended":  "<!-- begin bench a -->\n",
		"nested":   "<!-- begin bench a -->\n<!-- begin bench a -->\n",
		"unbegun":  "<!-- end bench a -->\n",
		"mismatch": "<!-- begin bench a -->\n<!-- end bench b -->\n",
	} {
		if _, _, err := Update(text, map[string]string{"a": "", "b": ""}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func run(rows ...result.Row) *result.Run {
	return &result.Run{Scenario: "s", Started: time.Unix(0, 0).UTC(), Rounds: 3, Seconds: 2, Versions: map[string]string{"netring": "v1"}, Rows: rows}
}

func rowOf(name string, values ...float64) result.Row {
	r := result.Row{Case: name}
	for i, v := range values {
		r.Samples = append(r.Samples, result.Sample{Round: i + 1, Metrics: map[string]float64{"pps": v}})
	}
	return r
}

func TestJudge(t *testing.T) {
	r := run(rowOf("ours", 100, 120, 90), rowOf("theirs", 100, 100, 100), result.Row{Case: "skipped", Skipped: "why"}, rowOf("zero", 0, 0, 1))
	for _, c := range []struct {
		name string
		goal scenario.Goal
		word string
		text string
	}{
		{"ratio by round", scenario.Goal{Case: "ours", Against: "theirs", Metric: "pps", Min: 1}, met, "1 [0.9 to 1.2]"},
		{"ratio too small", scenario.Goal{Case: "ours", Against: "theirs", Metric: "pps", Min: 1.01}, notMet, "1 [0.9 to 1.2]"},
		{"upper bound", scenario.Goal{Case: "ours", Metric: "pps", Max: 99}, notMet, "100 [90 to 120]"},
		{"zero in the median only", scenario.Goal{Case: "zero", Metric: "pps", ZeroMax: true}, notMet, "0 [0 to 1]"},
		{"nobody to compare with", scenario.Goal{Case: "ours", Against: "skipped", Metric: "pps", Min: 1}, notMeasured, ""},
		{"no such case", scenario.Goal{Case: "x", Metric: "pps", Min: 1}, notMeasured, ""},
		{"no such metric", scenario.Goal{Case: "ours", Metric: "x", Min: 1}, notMeasured, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if v := Judge(&c.goal, r); v.Word != c.word || v.Text != c.text {
				t.Errorf("got %+v, want %q %q", v, c.text, c.word)
			}
		})
	}
}

func TestSection(t *testing.T) {
	s := &scenario.Scenario{
		Name: "s", Title: "A title", About: "About it.",
		Columns: []scenario.Column{{Metric: "pps", Head: "kpps", Scale: 1e3, Digits: 1, Range: true}, {Metric: "never", Head: "never"}},
		Goals:   []scenario.Goal{{Case: "ours", Against: "theirs", Metric: "pps", Min: 1.15, Text: "faster"}},
	}
	ours := rowOf("ours", 2400, 2000, 2200)
	ours.Samples[0].Window = &result.Window{CPUs: []result.Share{{User: 1, System: 2, SoftIRQ: 3, Idle: 94}}, Foreign: 50}
	ours.Failed = []string{"round 4: a|b\nc"}
	got := Section(s, run(ours, rowOf("theirs", 1000, 1000, 1000), result.Row{Case: "absent", Skipped: "not installed"}))
	for _, want := range []string{
		"## A title\n\nAbout it.\n",
		"|  | kpps | core 0 user/sys/softirq/idle % |\n",
		"| ours | 2.2 [2.0 to 2.4] | 1/2/3/94 |\n",
		"| theirs | 1.0 [1.0 to 1.0] |  |\n",
		"| absent | skipped: not installed |  |\n",
		"| faster | 2.2 [2 to 2.4] | met |\n",
		"netring v1",
		"* ours: 1 failed: round 4: a/b c\n",
		"In 1 of 1 windows",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "never") {
		t.Error("a column without values is shown")
	}
	if got := Section(s, nil); !strings.Contains(got, "Not measured yet") {
		t.Errorf("section without a run: %q", got)
	}
}

func TestPublished(t *testing.T) {
	s := &scenario.Scenario{Name: "s", Title: "T", About: "A.", Columns: []scenario.Column{{Metric: "pps", Head: "pps"}}, Published: []scenario.Published{
		{What: "rate", Figure: "3 Mpps", Source: "a paper", Case: "ours", Metric: "pps", Scale: 1e3, Digits: 1, Unit: " kpps", Why: "Other hardware."},
		{What: "ratio", Figure: "twice", Source: "a paper", Case: "ours", Metric: "pps", Against: "theirs", Unit: " times", Why: "Other."},
		{What: "other", Figure: "1", Source: "a paper", Why: "Not of this kind."},
		{What: "gone", Figure: "1", Source: "a paper", Case: "nobody", Metric: "pps", Why: "Not of this kind."},
	}}
	got := Section(s, run(rowOf("ours", 1000, 1500, 2000), rowOf("theirs", 500, 500, 500)))
	for _, want := range []string{
		"| rate | 3 Mpps (a paper) | 1.5 [1.0 to 2.0] kpps | Other hardware. |", "| ratio | twice (a paper) | 3 [2 to 4] times | Other. |",
		"| other | 1 (a paper) | nothing comparable | Not of this kind. |", "| gone | 1 (a paper) | not measured | Not of this kind. |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	if got := Section(s, nil); !strings.Contains(got, "| rate | 3 Mpps (a paper) | not measured |") {
		t.Errorf("before a run:\n%s", got)
	}
}
