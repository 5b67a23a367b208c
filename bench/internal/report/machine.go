//go:build linux

package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/netring/netring/bench/internal/result"
)

// Machine is the generated part about the machine: that of the newest run. It
// says which scenarios were measured elsewhere.
func Machine(runs []*result.Run) string {
	if len(runs) == 0 {
		return "Nothing measured yet.\n"
	}
	newest := slices.MaxFunc(runs, func(a, b *result.Run) int { return a.Started.Compare(b.Started) })
	h := &newest.Host
	var b strings.Builder
	fmt.Fprintf(&b, "* CPU: %s; %d cores", h.CPU, h.CPUs)
	if h.Hypervisor != "" {
		b.WriteString("; a virtual machine")
	}
	fmt.Fprintf(&b, "\n* kernel: %s", h.Kernel)
	for _, k := range slices.Sorted(maps.Keys(h.Config)) {
		fmt.Fprintf(&b, ", %s=%s", k, h.Config[k])
	}
	b.WriteString("\n")
	for _, k := range slices.Sorted(maps.Keys(h.Mitigations)) {
		fmt.Fprintf(&b, "* %s: %s\n", k, h.Mitigations[k])
	}
	fmt.Fprintf(&b, "* memory: %.1f GiB; %s\n", float64(h.MemoryMiB)/1024, h.System)
	var tools []string
	for _, k := range slices.Sorted(maps.Keys(newest.Versions)) {
		if k != "netring" {
			tools = append(tools, k+" "+newest.Versions[k])
		}
	}
	fmt.Fprintf(&b, "* %s\n", strings.Join(tools, ", "))
	for _, r := range runs {
		if r.Host.Kernel != h.Kernel || r.Host.CPU != h.CPU || r.Host.CPUs != h.CPUs {
			fmt.Fprintf(&b, "* `%s` was measured on another machine: %s, %d cores, kernel %s\n", r.Scenario, r.Host.CPU, r.Host.CPUs, r.Host.Kernel)
		}
	}
	return b.String()
}
