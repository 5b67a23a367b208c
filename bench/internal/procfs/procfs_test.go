package procfs

import (
	"os"
	"slices"
	"testing"
)

func TestParseStat(t *testing.T) {
	got, err := ParseStat([]byte("cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 10 1 20 300 4 5 60 7 0 0\ncpu1 1 0 2 3 0 0 6 0 0 0\nintr 5 4\n"))
	want := []CPU{{User: 11, System: 20, IRQ: 5, SoftIRQ: 60, Idle: 304, Steal: 7}, {User: 1, System: 2, SoftIRQ: 6, Idle: 3}}
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("got %+v, %v; want %+v", got, err, want)
	}
	if d := got[0].Sub(CPU{User: 1, Idle: 4}); d.User != 10 || d.Idle != 300 || d.Total() != 10+20+5+60+300+7 {
		t.Errorf("difference %+v, total %d", d, d.Total())
	}
	for _, bad := range []string{"", "cpu 1 2 3 4 5 6 7 8\n", "cpu0 1 2 3\n", "cpu0 a 2 3 4 5 6 7 8\n"} {
		if _, err := ParseStat([]byte(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestParseSoftIRQs(t *testing.T) {
	got, err := ParseSoftIRQs([]byte("        CPU0       CPU1\n  NET_TX:   3   0\n  NET_RX:   17   29\n"))
	if err != nil || !slices.Equal(got["NET_RX"], []uint64{17, 29}) || len(got) != 2 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := ParseSoftIRQs([]byte("NET_RX: x\n")); err == nil {
		t.Error("no error for a count that is none")
	}
}

const statLine = "1234 (a (b) c) S 77 1 1 0 -1 4194560 1 2 3 4 500 600 70 8 20 0 1 0 99 1 1"

func TestParseTask(t *testing.T) {
	got, err := ParseTask([]byte(statLine))
	want := Task{PID: 1234, PPID: 77, Name: "a (b) c", User: 500, System: 600, Children: 78}
	if err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{"", "1 x S 1", "1 (x) S 1 2", "x (y) S 77 1 1 0 -1 4194560 1 2 3 4 500 600 70 8 20"} {
		if _, err := ParseTask([]byte(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func FuzzParseTask(f *testing.F) {
	f.Add([]byte(statLine))
	f.Add([]byte("1 () R 0"))
	f.Add([]byte(")("))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := ParseTask(b); err == nil && len(b) < 30 {
			t.Errorf("%q parsed", b)
		}
	})
}

func TestFamilyAndForeign(t *testing.T) {
	all := map[int]Task{
		1:  {PID: 1, User: 1},
		2:  {PID: 2, System: 1000},
		3:  {PID: 3, PPID: 2, System: 1000}, // a kernel thread
		10: {PID: 10, PPID: 1, User: 5, Children: 7},
		20: {PID: 20, PPID: 10, User: 100}, // the bench
		21: {PID: 21, PPID: 20, User: 100}, // its child
		22: {PID: 22, PPID: 21, User: 100},
	}
	if got := Family(all, 20); len(got) != 3 || !got[20] || !got[21] || !got[22] {
		t.Errorf("family %v", got)
	}
	if got := Foreign(all, 20); got != 1+5+7 {
		t.Errorf("foreign %d, want 13", got)
	}
	// 10 starts a child of 4 ticks, which ends and is waited for: nothing is lost.
	t10 := all[10]
	t10.Children += 4
	all[10] = t10
	if got := Foreign(all, 20); got != 17 {
		t.Errorf("foreign %d after a short-lived process, want 17", got)
	}
	if got := Family(all, 99); len(got) != 0 {
		t.Errorf("family of nobody: %v", got)
	}
}

func TestOwnProcess(t *testing.T) {
	all, err := Tasks()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := all[os.Getpid()]; !ok {
		t.Error("own process not found")
	}
	th, err := Threads(os.Getpid())
	if err != nil || len(th) == 0 {
		t.Errorf("threads: %d, %v", len(th), err)
	}
	if kib, err := StatusKiB(os.Getpid(), "VmHWM"); err != nil || kib == 0 {
		t.Errorf("VmHWM %d, %v", kib, err)
	}
	old, ok := RunTime(os.Getpid())
	for ok {
		if now, _ := RunTime(os.Getpid()); now > old {
			break // it went on while we worked
		}
	}
	if _, err := parseStatus([]byte("VmHWM:\t12 pages\n"), "VmHWM"); err == nil {
		t.Error("no error for another unit")
	}
}
