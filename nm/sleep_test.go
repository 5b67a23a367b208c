package nm_test

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/nm"
	"github.com/netring/netring/ring"
)

// TestSwitchSleeps: a switch takes no CPU time while nobody sends, and none
// while a port holds others up.
func TestSwitchSleeps(t *testing.T) {
	s := &nm.Space{}
	a, b := open(t, s, "vale0:a@conf:slots=8"), open(t, s, "vale0:b@conf:slots=8@vale:full=backpressure")
	open(t, s, "vale0:c@conf:slots=8")
	open(t, s, "vale0:b/rt@conf:slots=8")
	send(t, b, etherFrame(bcast, macB, 0, 60))
	idle := func(what string) {
		t.Helper()
		time.Sleep(50 * time.Millisecond) // not to synchronise: what ran before has its afterpains
		cpu, start := cpuTime(t), time.Now()
		time.Sleep(400 * time.Millisecond)
		if used, d := cpuTime(t)-cpu, time.Since(start); used > d/2 {
			t.Errorf("%s: %v of CPU time in %v", what, used, d)
		}
	}
	idle("nobody sends")
	for stuck := false; !stuck; {
		for a.Inject(etherFrame(macB, macA, 0, 1000)) == nil {
		}
		ready, err := a.Poll(limit(t), 50*time.Millisecond, nm.Out)
		must(t, err)
		stuck = ready == 0
	}
	idle("a port holds others up")
	// A frame of several slots waits for as many.
	must(t, b.SyncRx())
	_, _ = b.NextPkt()
	must(t, b.SyncRx())
	idle("one slot more")
	must(t, b.Close())
	must(t, a.Flush(limit(t)))
	idle("it has closed")
}

// cpuTime is what the process has used.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var u unix.Rusage
	must(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestSwitchHostile: what a program does to its rings hurts itself alone.
func TestSwitchHostile(t *testing.T) {
	d := ports(t, &nm.Space{}, 3, "@conf:slots=8")
	bad, good := d[0].TxRings()[0], etherFrame(bcast, macB, 1, 60)
	for name, spoil := range map[string]func(){
		"a buffer that there is not":   func() { bad.Slot(bad.Head).Buf = 1 << 30 },
		"a length beyond the buffer":   func() { bad.Slot(bad.Head).Len = 1 << 20 },
		"an offset beyond the buffer":  func() { bad.Slot(bad.Head).Off = 1 << 31 },
		"a head beyond the tail":       func() { bad.Head += 100 },
		"a buffer in two of its slots": func() { bad.Slot(bad.Head + 1).Buf = bad.Slot(bad.Head).Buf; bad.Head++ },
	} {
		bad.Buf(bad.Head)
		bad.Slot(bad.Head).Len, bad.Slot(bad.Head).Flags = 60, 0
		bad.Slot(bad.Head+1).Len, bad.Slot(bad.Head+1).Flags = 60, 0
		spoil()
		bad.Head++
		bad.Cur = bad.Head
		if err := bad.Sync(); !errors.Is(err, ring.ErrSlot) && !errors.Is(err, ring.ErrCursor) {
			t.Errorf("%s: %v", name, err)
		}
		// Whatever of it was good goes nowhere: it is all zeros or a runt.
		send(t, d[1], good)
		want(t, name, d[2], good)
	}
	f := etherFrame(bcast, macA, 2, 60)
	send(t, d[0], f)
	want(t, "repaired", d[2], f)
}
