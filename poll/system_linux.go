package poll

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// system is what a worker needs of the operating system; tests simulate it.
type system interface {
	now() time.Duration // monotonic
	cpu() time.Duration // CPU time that this thread has had
	sleep(until time.Duration)
	// wait is poll(2); hot says that it is likely to be short.
	wait(fds []unix.PollFd, until time.Duration, hot bool) (int, error)
	// yield lets another thread have the core, if one wants it.
	yield()
	// waited is how long, in all, this thread has been ready to run while
	// another program had its core.
	waited() time.Duration
	// others is how long, in all, this thread's core has been idle, and how
	// long the kernel's receiving threads have had it; false if that cannot
	// be told.
	others() (idle, kern time.Duration, ok bool)
}

// monotime is CLOCK_MONOTONIC read without a system call.
type monotime struct {
	t  time.Time
	at time.Duration // CLOCK_MONOTONIC at t
}

func newMonotime() (monotime, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return monotime{}, fmt.Errorf("poll: read the monotonic clock: %w", err)
	}
	return monotime{time.Now(), time.Duration(ts.Nano())}, nil
}

func (m monotime) now() time.Duration { return m.at + time.Since(m.t) }

// thread is the real system, of one locked OS thread.
type thread struct {
	monotime
	sched *os.File // schedstat of this thread; nil where the kernel has none
	stat  *os.File // of all cores; nil where the thread is not pinned
	core  []byte   // how the line of our core starts
	lines []byte
	buf   [128]byte
	kern  kernelThreads
	hold  bool          // a processor of the Go runtime may be held for a wait: others have enough
	lost  time.Duration // by yields
}

// newThread sets the calling goroutine's thread up for a worker: wired to the
// goroutine for ever, on one core if cpu is not negative. The thread ends with
// the goroutine.
func newThread(m monotime, cpu, nice int, slice time.Duration) (*thread, error) {
	runtime.LockOSThread()
	if cpu >= 0 {
		var set unix.CPUSet
		set.Set(cpu)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			return nil, fmt.Errorf("pin to CPU %d: %w", cpu, err)
		}
	}
	if nice != 0 {
		if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), nice); err != nil {
			return nil, fmt.Errorf("set nice value %d (CAP_SYS_NICE): %w", nice, err)
		}
	}
	// Two wishes that a kernel may not grant, at a loss of punctuality only:
	// timers without the 50 us of slack, and a short time slice, which since
	// Linux 6.12 lets a woken thread go before one with a longer slice.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	if a, err := unix.SchedGetAttr(0, 0); err == nil && a.Policy == unix.SCHED_NORMAL {
		a.Runtime = uint64(slice)
		_ = unix.SchedSetAttr(0, a, 0)
	}
	t := &thread{monotime: m}
	t.sched, _ = os.Open("/proc/thread-self/schedstat")
	t.kern.find(cpu)
	if cpu >= 0 {
		t.stat, _ = os.Open("/proc/stat")
		t.core = []byte("\ncpu" + strconv.Itoa(cpu) + " ")
		t.lines = make([]byte, 64<<10)
	}
	return t, nil
}

func (t *thread) close() {
	if t.sched != nil {
		_ = t.sched.Close()
	}
	if t.stat != nil {
		_ = t.stat.Close()
	}
	t.kern.close()
}

func (t *thread) cpu() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

func (t *thread) sleep(until time.Duration) {
	ts := unix.NsecToTimespec(int64(until))
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil) == unix.EINTR {
	}
}

func (t *thread) wait(fds []unix.PollFd, until time.Duration, hot bool) (int, error) {
	if hot && t.hold {
		return pollHeld(t.monotime, fds, until)
	}
	return pollFDs(t.monotime, fds, until)
}

func (t *thread) yield() {
	start := t.now()
	_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	t.lost += t.now() - start
}

func (t *thread) waited() time.Duration {
	if t.sched == nil {
		return t.lost
	}
	_, delay := readSchedstat(t.sched, t.buf[:])
	return delay - t.kern.ran(t.buf[:])
}

func (t *thread) others() (idle, kern time.Duration, ok bool) {
	if t.stat == nil {
		return 0, 0, false
	}
	n, err := unix.Pread(int(t.stat.Fd()), t.lines, 0)
	if err != nil || n <= 0 {
		return 0, 0, false
	}
	i := bytes.Index(t.lines[:n], t.core)
	if i < 0 {
		return 0, 0, false
	}
	// user, nice, system, idle, iowait, in hundredths of a second.
	const hundredth = 10 * time.Millisecond
	rest := t.lines[i+len(t.core) : n]
	for range 3 {
		_, rest = parseNumber(rest)
	}
	idle, rest = parseNumber(rest)
	wait, _ := parseNumber(rest)
	return (idle + wait) * hundredth, t.kern.ran(t.buf[:]), true
}

// readSchedstat returns how long a thread has run, and how long it was ready
// and did not run. It allocates nothing.
func readSchedstat(f *os.File, buf []byte) (ran, delay time.Duration) {
	n, err := unix.Pread(int(f.Fd()), buf, 0)
	if err != nil || n <= 0 {
		return 0, 0
	}
	ran, rest := parseNumber(buf[:n])
	delay, _ = parseNumber(rest)
	return ran, delay
}

func parseNumber(b []byte) (time.Duration, []byte) {
	for len(b) > 0 && b[0] == ' ' {
		b = b[1:]
	}
	var v int64
	for len(b) > 0 && b[0] >= '0' && b[0] <= '9' {
		v = v*10 + int64(b[0]-'0')
		b = b[1:]
	}
	return time.Duration(v), b
}

// kernelThreads are the kernel's threads that receive packets on a core: what
// they take is not taken by a program, and giving them the core by leaving
// some of it free would only feed them.
type kernelThreads struct{ stats []*os.File }

// find looks for the softirq thread of the core. A process in a container does
// not see it; then its time counts as a program's.
func (k *kernelThreads) find(cpu int) {
	if cpu < 0 {
		return
	}
	want := []byte("ksoftirqd/" + strconv.Itoa(cpu) + "\n")
	// Kernel threads of the first cores have small numbers, and there are a
	// handful per core.
	for pid := 2; pid < 64+16*(cpu+1); pid++ {
		dir := "/proc/" + strconv.Itoa(pid)
		if comm, err := os.ReadFile(dir + "/comm"); err == nil && bytes.Equal(comm, want) {
			if f, err := os.Open(dir + "/schedstat"); err == nil {
				k.stats = append(k.stats, f)
			}
			return
		}
	}
}

// ran is how long they have run, in all.
func (k *kernelThreads) ran(buf []byte) time.Duration {
	var sum time.Duration
	for _, f := range k.stats {
		d, _ := readSchedstat(f, buf)
		sum += d
	}
	return sum
}

func (k *kernelThreads) close() {
	for _, f := range k.stats {
		_ = f.Close()
	}
}
