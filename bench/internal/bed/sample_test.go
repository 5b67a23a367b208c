//go:build linux

package bed

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/netring/netring/bench/internal/procfs"
	"github.com/netring/netring/internal/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

func TestDifference(t *testing.T) {
	start := time.Unix(100, 0)
	const app, bench, other = 50, 40, 60
	from := &snapshot{
		at: start, cpus: []procfs.CPU{{}, {User: 10}}, soft: map[string][]uint64{"NET_RX": {5, 5}},
		tasks: map[int]procfs.Task{
			bench: {PID: bench, PPID: 1}, app: {PID: app, PPID: bench, User: 10, System: 20}, other: {PID: other, PPID: 1, User: 7},
			9: {PID: 9, PPID: 2, Name: "ksoftirqd/1", System: 3},
		},
		threads: map[int]procfs.Task{50: {PID: 50, User: 10}, 51: {PID: 51, System: 20}},
		ran:     1e9,
		links:   map[string]netlab.Counters{"d0": {RxPackets: 1000}},
	}
	to := &snapshot{
		at: start.Add(2 * time.Second), cpus: []procfs.CPU{{Idle: 200}, {User: 60, SoftIRQ: 150}}, soft: map[string][]uint64{"NET_RX": {5, 25}},
		tasks: map[int]procfs.Task{
			bench: {PID: bench, PPID: 1, User: 100}, app: {PID: app, PPID: bench, User: 30, System: 180}, other: {PID: other, PPID: 1, User: 7, Children: 4},
			9: {PID: 9, PPID: 2, Name: "ksoftirqd/1", System: 23},
		},
		threads: map[int]procfs.Task{50: {PID: 50, User: 11}, 51: {PID: 51, User: 20, System: 180}},
		ran:     2.8e9,
		links:   map[string]netlab.Counters{"d0": {RxPackets: 5000, TxDropped: 10}},
	}
	w := difference(from, to, app, bench)
	check := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	check("seconds", w.Seconds, 2)
	check("d0 rx", w.Links["d0"].RX, 2000)
	check("d0 tx drops", w.Links["d0"].TXDrops, 5)
	check("core 0 idle", w.CPUs[0].Idle, 100)
	check("core 1 user", w.CPUs[1].User, 25)
	check("core 1 softirq", w.CPUs[1].SoftIRQ, 75)
	check("NET_RX on core 1", w.SoftIRQs["NET_RX"][1], 10)
	check("ksoftirqd", w.Threads["ksoftirqd/1"], 10)
	check("foreign: a child of somebody else, and nothing of ours", w.Foreign, 2)
	check("app user", w.App.User, 10)
	check("app system", w.App.System, 80)
	check("app total, from the exact clock", w.App.Total, 90)
	check("worker user", w.App.WorkerUser, 10)
	check("worker system", w.App.WorkerSystem, 80)
}

func TestSleepIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("told to")
	cancel(why)
	if err := Sleep(ctx, time.Hour); !errors.Is(err, why) {
		t.Errorf("%v, want %v", err, why)
	}
}

// The sink's own counter has to see every frame, or no figure is worth anything.
func TestDropCountsEveryFrame(t *testing.T) {
	netlab.NeedNet(t)
	netlab.NeedRoot(t)
	for name, o := range map[string]Options{"XDP": {Drop: true, Lanes: 2}, "tcx": {DropTC: true, Lanes: 2}} {
		t.Run(name, func(t *testing.T) { dropCounts(t, o) })
	}
}

func dropCounts(t *testing.T, o Options) {
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if got := b.Lanes(); len(got) != 2 || got[0] != "s0" || got[1] != "s1" {
		t.Fatalf("lanes %v", got)
	}
	const n = 1000
	if err := send(b.DUT, "d2", n); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Second); ; {
		c, err := b.Counters()
		if err != nil {
			t.Fatal(err)
		}
		if c["s1"].RxPackets == n && c["d2"].TxPackets == n && c["s0"].RxPackets == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("sent %d, counters %+v", n, c)
		}
	}
	off, err := b.Offloads()
	if err != nil || len(off["d0"]) < 5 {
		t.Errorf("offloads %v, %v", off["d0"], err)
	}
}
