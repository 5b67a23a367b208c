// Package result is what a run of the benchmarks leaves behind, as JSON. The
// tables of BENCHMARKS.md are made from these files alone.
package result

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Run is one run of one scenario: rounds of all its cases, interleaved.
type Run struct {
	Scenario string            `json:"scenario"`
	Started  time.Time         `json:"started"`
	Rounds   int               `json:"rounds"`         // the warm-up round, which is dropped, not counted
	Seconds  float64           `json:"seconds"`        // of a window
	Took     float64           `json:"took,omitempty"` // the whole run, in seconds
	Source   int               `json:"source_cpu"`
	DUT      int               `json:"dut_cpu"`
	Host     Host              `json:"host"`
	Versions map[string]string `json:"versions"`
	Rows     []Row             `json:"rows"`
}

// Host is the machine.
type Host struct {
	Kernel      string            `json:"kernel"`
	Config      map[string]string `json:"kernel_config,omitempty"`
	CPU         string            `json:"cpu"`
	CPUs        int               `json:"cpus"`
	Hypervisor  string            `json:"hypervisor,omitempty"`
	Mitigations map[string]string `json:"mitigations,omitempty"`
	MemoryMiB   uint64            `json:"memory_mib"`
	System      string            `json:"system"`
}

// Row is one case of the scenario.
type Row struct {
	Case    string   `json:"case"`
	Command string   `json:"command,omitempty"` // of the device under test
	Skipped string   `json:"skipped,omitempty"` // why there are no samples
	Failed  []string `json:"failed,omitempty"`  // rounds that gave no sample, and why
	Samples []Sample `json:"samples,omitempty"`
}

// Sample is one case in one round.
type Sample struct {
	Round   int                `json:"round"`
	Metrics map[string]float64 `json:"metrics"`
	Window  *Window            `json:"window,omitempty"`
	// Offloads of the interfaces while measuring, "d0": {"rx-gro": true}.
	Offloads map[string]map[string]bool `json:"offloads,omitempty"`
	// Final is what the device under test printed at its end, if that is JSON.
	Final json.RawMessage `json:"final,omitempty"`
}

// Window is what the machine did while a sample was taken. Shares are percent
// of one core.
type Window struct {
	Seconds float64         `json:"seconds"`
	Links   map[string]Link `json:"links"`
	CPUs    []Share         `json:"cpus"`
	// SoftIRQs are runs a second on each core: "NET_RX", "NET_TX".
	SoftIRQs map[string][]float64 `json:"softirqs"`
	// Threads of the kernel that worked: "ksoftirqd/1", "napi/d0-2".
	Threads map[string]float64 `json:"kernel_threads,omitempty"`
	App     *App               `json:"app,omitempty"`
	// Foreign is the share of everybody outside of the benchmark. A window
	// with too much of it was taken again, Tries times in all.
	Foreign float64 `json:"foreign"`
	Tries   int     `json:"tries"`
}

// Link is an interface's rates, per second.
type Link struct {
	RX      float64 `json:"rx"`
	RXBytes float64 `json:"rx_bytes"`
	RXDrops float64 `json:"rx_drops"`
	TX      float64 `json:"tx"`
	TXBytes float64 `json:"tx_bytes"`
	TXDrops float64 `json:"tx_drops"`
}

// Share of a core.
type Share struct {
	User    float64 `json:"user"`
	System  float64 `json:"system"`
	SoftIRQ float64 `json:"softirq"`
	IRQ     float64 `json:"irq"`
	Idle    float64 `json:"idle"`
	Steal   float64 `json:"steal"`
}

// App is the device under test, with its children, and the thread of it that
// worked most. Total is exact, the split is sampled by the kernel's tick. A
// softirq that runs inside a system call is charged to System.
type App struct {
	Total        float64 `json:"total"`
	User         float64 `json:"user"`
	System       float64 `json:"system"`
	WorkerUser   float64 `json:"worker_user"`
	WorkerSystem float64 `json:"worker_system"`
}

// Metric returns a metric by round; rounds without it are left out.
func (r *Row) Metric(name string) map[int]float64 {
	m := map[int]float64{}
	for _, s := range r.Samples {
		if v, ok := s.Metrics[name]; ok {
			m[s.Round] = v
		}
	}
	return m
}

// Row returns the row of a case, nil if there is none.
func (r *Run) Row(name string) *Row {
	for i := range r.Rows {
		if r.Rows[i].Case == name {
			return &r.Rows[i]
		}
	}
	return nil
}

// Save writes the run to dir, replacing an earlier run of the scenario.
func (r *Run) Save(dir string) (string, error) {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return "", fmt.Errorf("encode results: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	name := filepath.Join(dir, r.Scenario+".json")
	if err := os.WriteFile(name+".new", append(b, '\n'), 0o644); err != nil {
		return "", err
	}
	return name, os.Rename(name+".new", name)
}

// Load reads the run of a scenario from dir.
func Load(dir, scenario string) (*Run, error) {
	name := filepath.Join(dir, scenario+".json")
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var r Run
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if r.Scenario != scenario {
		return nil, fmt.Errorf("%s: is of scenario %q", name, r.Scenario)
	}
	return &r, nil
}

// Failures names the cases that have no sample though they were not skipped.
func (r *Run) Failures() (cases []string) {
	for i := range r.Rows {
		if row := &r.Rows[i]; row.Skipped == "" && len(row.Samples) == 0 {
			cases = append(cases, r.Scenario+": "+row.Case)
		}
	}
	return cases
}
