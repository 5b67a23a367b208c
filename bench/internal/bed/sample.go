//go:build linux

package bed

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/netring/netring/bench/internal/procfs"
	"github.com/netring/netring/bench/internal/result"
	"github.com/netring/netring/internal/netlab"
)

// MaxForeign is the share of a core, in percent, that programs outside of the
// benchmark may use before a window is taken again.
const MaxForeign = 4.0

const maxTries = 4

// snapshot is all that a window is the difference of.
type snapshot struct {
	at      time.Time
	cpus    []procfs.CPU
	soft    map[string][]uint64
	tasks   map[int]procfs.Task
	threads map[int]procfs.Task // of the device under test
	ran     uint64              // by it and its children, ns; 0 if the kernel does not tell
	links   map[string]netlab.Counters
}

func (b *Bed) snapshot(app int) (*snapshot, error) {
	s := &snapshot{}
	var err error
	if s.tasks, err = procfs.Tasks(); err != nil {
		return nil, err
	}
	if app > 0 {
		if s.threads, err = procfs.Threads(app); err != nil {
			return nil, err
		}
		for pid := range procfs.Family(s.tasks, app) {
			n, _ := procfs.RunTime(pid)
			s.ran += n
		}
	}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil, err
	}
	if s.cpus, err = procfs.ParseStat(stat); err != nil {
		return nil, err
	}
	soft, err := os.ReadFile("/proc/softirqs")
	if err != nil {
		return nil, err
	}
	if s.soft, err = procfs.ParseSoftIRQs(soft); err != nil {
		return nil, err
	}
	if s.links, err = b.Counters(); err != nil {
		return nil, err
	}
	s.at = time.Now()
	return s, nil
}

// Measure samples the machine over d. app is the process of the device under
// test, 0 if it is in the kernel. A window in which others used the machine is
// taken again, and the least disturbed one is returned.
func (b *Bed) Measure(ctx context.Context, d time.Duration, app int) (*result.Window, error) {
	var best *result.Window
	for try := 1; try <= maxTries; try++ {
		w, err := b.Window(ctx, d, app)
		if err != nil {
			return nil, err
		}
		if best == nil || w.Foreign < best.Foreign {
			best = w
		}
		best.Tries = try
		if best.Foreign <= MaxForeign {
			break
		}
	}
	return best, nil
}

// Window samples the machine over d, once.
func (b *Bed) Window(ctx context.Context, d time.Duration, app int) (*result.Window, error) {
	from, err := b.snapshot(app)
	if err != nil {
		return nil, err
	}
	if err := Sleep(ctx, d); err != nil {
		return nil, err
	}
	to, err := b.snapshot(app)
	if err != nil {
		return nil, err
	}
	if _, ok := to.tasks[app]; app > 0 && !ok {
		return nil, fmt.Errorf("the device under test (process %d) ended while being measured", app)
	}
	return difference(from, to, app, os.Getpid()), nil
}

// difference turns two snapshots into rates and shares. bench is the process
// whose family is not foreign.
func difference(from, to *snapshot, app, bench int) *result.Window {
	s := to.at.Sub(from.at).Seconds()
	share := func(ticks uint64) float64 { return 100 * float64(ticks) / procfs.Hz / s }
	w := &result.Window{Seconds: s, Links: map[string]result.Link{}, SoftIRQs: map[string][]float64{}, Threads: map[string]float64{}}
	for name, n := range to.links {
		o := from.links[name]
		rate := func(n, o uint64) float64 { return float64(n-o) / s }
		w.Links[name] = result.Link{
			RX: rate(n.RxPackets, o.RxPackets), RXBytes: rate(n.RxBytes, o.RxBytes), RXDrops: rate(n.RxDropped, o.RxDropped),
			TX: rate(n.TxPackets, o.TxPackets), TXBytes: rate(n.TxBytes, o.TxBytes), TXDrops: rate(n.TxDropped, o.TxDropped),
		}
	}
	for i := range to.cpus {
		c := to.cpus[i].Sub(from.cpus[i])
		part := func(n uint64) float64 { return 100 * float64(n) / max(float64(c.Total()), 1) }
		w.CPUs = append(w.CPUs, result.Share{
			User: part(c.User), System: part(c.System), SoftIRQ: part(c.SoftIRQ),
			IRQ: part(c.IRQ), Idle: part(c.Idle), Steal: part(c.Steal),
		})
	}
	for _, kind := range []string{"NET_RX", "NET_TX"} {
		for i, n := range to.soft[kind] {
			w.SoftIRQs[kind] = append(w.SoftIRQs[kind], float64(n-from.soft[kind][i])/s)
		}
	}
	for pid, t := range to.tasks {
		if n := t.Own() - from.tasks[pid].Own(); t.Kernel() && n > 0 && (strings.HasPrefix(t.Name, "ksoftirqd/") || strings.HasPrefix(t.Name, "napi/")) {
			w.Threads[t.Name] = share(n)
		}
	}
	if now, old := procfs.Foreign(to.tasks, bench), procfs.Foreign(from.tasks, bench); now > old {
		w.Foreign = share(now - old)
	}
	if app > 0 {
		w.App = appShare(from, to, app, share)
	}
	return w
}

func appShare(from, to *snapshot, app int, share func(uint64) float64) *result.App {
	a := &result.App{}
	for pid := range procfs.Family(to.tasks, app) {
		n, o := to.tasks[pid], from.tasks[pid]
		a.User += share(n.User - o.User)
		a.System += share(n.System - o.System)
	}
	a.Total = a.User + a.System
	if from.ran != 0 && to.ran > from.ran {
		a.Total = 100 * float64(to.ran-from.ran) / float64(to.at.Sub(from.at))
	}
	var most uint64
	for tid, n := range to.threads {
		o := from.threads[tid]
		if d := n.Own() - o.Own(); d > most {
			most = d
			a.WorkerUser, a.WorkerSystem = share(n.User-o.User), share(n.System-o.System)
		}
	}
	return a
}

// Sleep waits for d, or for the run to be broken off.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
