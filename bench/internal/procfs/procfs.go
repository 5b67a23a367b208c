// Package procfs parses the few files under /proc that tell who used the CPU.
//
// Times are clock ticks (USER_HZ, 100 a second in these files on every Linux).
package procfs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Hz is the unit of the times in /proc: the kernel converts to it whatever its
// own tick is.
const Hz = 100

// CPU is what one core did since boot, in ticks.
type CPU struct{ User, System, IRQ, SoftIRQ, Idle, Steal uint64 }

// Total is all of the core's time.
func (c CPU) Total() uint64 { return c.User + c.System + c.IRQ + c.SoftIRQ + c.Idle + c.Steal }

// Sub returns what was added since old.
func (c CPU) Sub(old CPU) CPU {
	return CPU{c.User - old.User, c.System - old.System, c.IRQ - old.IRQ, c.SoftIRQ - old.SoftIRQ, c.Idle - old.Idle, c.Steal - old.Steal}
}

// ParseStat reads the per-core lines of /proc/stat, in their order.
func ParseStat(b []byte) ([]CPU, error) {
	var cpus []CPU
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) == 0 || !strings.HasPrefix(f[0], "cpu") || f[0] == "cpu" {
			continue
		}
		v, err := numbers(f[1:], 8)
		if err != nil {
			return nil, fmt.Errorf("/proc/stat: %q: %w", line, err)
		}
		// Nice is user time, iowait is idle time.
		cpus = append(cpus, CPU{User: v[0] + v[1], System: v[2], Idle: v[3] + v[4], IRQ: v[5], SoftIRQ: v[6], Steal: v[7]})
	}
	if cpus == nil {
		return nil, fmt.Errorf("/proc/stat: no core in it")
	}
	return cpus, nil
}

func numbers(f []string, n int) ([]uint64, error) {
	if len(f) < n {
		return nil, fmt.Errorf("%d numbers, want %d", len(f), n)
	}
	v := make([]uint64, n)
	for i := range v {
		var err error
		if v[i], err = strconv.ParseUint(f[i], 10, 64); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// ParseSoftIRQs reads /proc/softirqs: for each kind ("NET_RX"), the count of
// runs on each core.
func ParseSoftIRQs(b []byte) (map[string][]uint64, error) {
	out := map[string][]uint64{}
	for line := range strings.Lines(string(b)) {
		name, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			continue // the heading
		}
		f := strings.Fields(rest)
		v, err := numbers(f, len(f))
		if err != nil {
			return nil, fmt.Errorf("/proc/softirqs: %s: %w", name, err)
		}
		out[name] = v
	}
	return out, nil
}

// Task is a process, or a thread of one.
type Task struct {
	PID, PPID    int
	Name         string
	User, System uint64 // its own time
	Children     uint64 // the time of children that it has waited for
}

// Own is the task's own time.
func (t Task) Own() uint64 { return t.User + t.System }

// ParseTask reads a /proc/PID/stat or /proc/PID/task/TID/stat. The name may
// hold spaces and brackets, so the fields are counted from its last bracket.
func ParseTask(b []byte) (Task, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return Task{}, fmt.Errorf("/proc/PID/stat: no name in %q", b)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:open])))
	if err != nil {
		return Task{}, fmt.Errorf("/proc/PID/stat: %w", err)
	}
	f := strings.Fields(string(b[end+1:]))
	if len(f) < 15 {
		return Task{}, fmt.Errorf("/proc/PID/stat: %d fields after the name, want at least 15", len(f))
	}
	ppid, err := strconv.Atoi(f[1])
	if err != nil {
		return Task{}, fmt.Errorf("/proc/PID/stat: %w", err)
	}
	v, err := numbers(f[11:], 4)
	if err != nil {
		return Task{}, fmt.Errorf("/proc/PID/stat: %w", err)
	}
	return Task{PID: pid, PPID: ppid, Name: string(b[open+1 : end]), User: v[0], System: v[1], Children: v[2] + v[3]}, nil
}

// Tasks reads every process. One that ends meanwhile is left out.
func Tasks() (map[int]Task, error) { return tasks("/proc/[0-9]*/stat") }

// Threads reads the threads of a process.
func Threads(pid int) (map[int]Task, error) {
	return tasks(fmt.Sprintf("/proc/%d/task/[0-9]*/stat", pid))
}

func tasks(glob string) (map[int]Task, error) {
	files, err := filepath.Glob(glob)
	if err != nil {
		return nil, err
	}
	out := make(map[int]Task, len(files))
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		t, err := ParseTask(b)
		if err != nil {
			return nil, err
		}
		out[t.PID] = t
	}
	return out, nil
}

// kthreadd is the parent of all kernel threads.
const kthreadd = 2

// Kernel reports whether the task is a kernel thread.
func (t Task) Kernel() bool { return t.PID == kthreadd || t.PPID == kthreadd }

// Family returns root and all its descendants.
func Family(all map[int]Task, root int) map[int]bool {
	kids := map[int][]int{}
	for pid, t := range all {
		kids[t.PPID] = append(kids[t.PPID], pid)
	}
	out := map[int]bool{}
	for todo := []int{root}; len(todo) > 0; {
		pid := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if _, ok := all[pid]; ok && !out[pid] {
			out[pid] = true
			todo = append(todo, kids[pid]...)
		}
	}
	return out
}

// Foreign sums the time of everybody who is neither of root's family nor a
// kernel thread. The time of ended children is counted with whoever waited for
// them, so the sum does not shrink when a process ends, and the difference
// of two sums holds processes that lived only in between.
func Foreign(all map[int]Task, root int) (ticks uint64) {
	ours := Family(all, root)
	for pid, t := range all {
		if !ours[pid] && !t.Kernel() {
			ticks += t.Own() + t.Children
		}
	}
	return ticks
}

// RunTime sums up how long the threads of a process have run, in nanoseconds:
// finer than ticks. ok is false where the kernel does not tell, or the process
// has ended.
func RunTime(pid int) (ns uint64, ok bool) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*/schedstat", pid))
	if err != nil {
		return 0, false
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		v, err := numbers(strings.Fields(string(b)), 1)
		if err != nil {
			return 0, false
		}
		ns += v[0]
		ok = true
	}
	return ns, ok
}

// StatusKiB reads a field of /proc/PID/status that is given in kB, such as
// VmHWM.
func StatusKiB(pid int, field string) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	return parseStatus(b, field)
}

func parseStatus(b []byte, field string) (uint64, error) {
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			f := strings.Fields(rest)
			if len(f) != 2 || f[1] != "kB" {
				break
			}
			return strconv.ParseUint(f[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("/proc/PID/status: no field %s in kB", field)
}
