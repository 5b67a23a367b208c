//go:build linux

// Package peer starts the programs that a benchmark needs: the source, the
// devices under test, the ends of connections.
package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/netring/netring/bench/internal/bed"
	"github.com/netring/netring/bench/internal/procfs"
	"github.com/netring/netring/internal/netlab"
)

// Proc is a program that runs in a namespace of the bed.
type Proc struct {
	Args []string // without the taskset in front

	cmd      *netlab.Cmd
	out, err output
	stdin    io.Closer
	ended    chan struct{}
	status   error // once ended is closed
}

// output may be read while the program still writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Anywhere leaves the choice of a core to the kernel.
const Anywhere = -1

// Start runs a program pinned to a core. Its standard input stays open and
// empty until it has ended. It is killed when the bed closes.
func Start(ns *netlab.NS, cpu int, args ...string) (*Proc, error) {
	p := &Proc{Args: args, ended: make(chan struct{})}
	if cpu == Anywhere {
		p.cmd = ns.Command(args[0], args[1:]...)
	} else {
		p.cmd = ns.Command("taskset", append([]string{"-c", strconv.Itoa(cpu)}, args...)...)
	}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.status = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// PID of the program: taskset and stdbuf turn into what they run.
func (p *Proc) PID() int {
	if p == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Stdout is what it has printed so far.
func (p *Proc) Stdout() string { return p.out.String() }

// failure says how the program ended, with the last that it wrote.
func (p *Proc) failure() error {
	said := strings.TrimSpace(p.err.String())
	if said == "" {
		said = strings.TrimSpace(p.out.String())
	}
	if i := len(said) - 400; i > 0 {
		said = "..." + said[i:]
	}
	how := "it ended"
	if p.status != nil {
		how = p.status.Error()
	}
	return fmt.Errorf("%s: %s: %s", filepath.Base(p.Args[0]), how, said)
}

// Wait waits for the program to end by itself.
func (p *Proc) Wait(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s: still running after %v", filepath.Base(p.Args[0]), limit))
	defer cancel()
	select {
	case <-p.ended:
		if p.status != nil {
			return p.failure()
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// descendants are the program's children and theirs. A handle on each is taken
// while they run, so that it never means another process.
func (p *Proc) descendants() (kids []*os.Process, err error) {
	all, err := procfs.Tasks()
	if err != nil {
		return nil, err
	}
	for pid := range procfs.Family(all, p.PID()) {
		if pid == p.PID() {
			continue
		}
		if k, err := os.FindProcess(pid); err == nil {
			kids = append(kids, k)
		}
	}
	return kids, nil
}

// stopTime is how long a program has to end after SIGTERM.
const stopTime = 5 * time.Second

// Stop ends the program and waits for it. It gives an error if the program had
// ended before, or would not end. On a nil Proc, for a device under test that
// is in the kernel, it does nothing.
func (p *Proc) Stop() error {
	if p == nil {
		return nil
	}
	select {
	case <-p.ended:
		return fmt.Errorf("before it was told to: %w", p.failure())
	default:
	}
	kids, err := p.descendants()
	if err != nil {
		return err
	}
	defer func() {
		for _, k := range kids { // one that outlives the program would go on sending
			_ = k.Kill()
			_ = k.Release()
		}
	}()
	for _, t := range append(kids, p.cmd.Process) { // trafgen waits for its child, and does not tell it
		if err := t.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopTime):
		_ = p.cmd.Process.Kill()
		<-p.ended
		return fmt.Errorf("%s: did not end within %v of SIGTERM, killed", filepath.Base(p.Args[0]), stopTime)
	}
}

const (
	readyTime = 10 * time.Second
	readyPoll = 10 * time.Millisecond
)

// Until waits for cond, for the program to end, or for readyTime to pass. what
// names the condition in the error.
func (p *Proc) Until(ctx context.Context, what string, cond func() (bool, error)) error {
	for end := time.Now().Add(readyTime); ; {
		if ok, err := cond(); ok || err != nil {
			return err
		}
		if p != nil {
			select {
			case <-p.ended:
				return p.failure()
			default:
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: no %s after %v: %s", filepath.Base(p.Args[0]), what, readyTime, p.err.String())
		}
		if err := bed.Sleep(ctx, readyPoll); err != nil {
			return err
		}
	}
}

// Says waits until the program has printed text.
func (p *Proc) Says(ctx context.Context, text string) error {
	return p.Until(ctx, strconv.Quote(text), func() (bool, error) {
		return strings.Contains(p.out.String(), text), nil
	})
}

// Logs waits until the program has written text to its standard error.
func (p *Proc) Logs(ctx context.Context, text string) error {
	return p.Until(ctx, strconv.Quote(text), func() (bool, error) {
		return strings.Contains(p.err.String(), text), nil
	})
}

// Sockets waits until packet sockets are bound to both of the device's ports.
func (p *Proc) Sockets(ctx context.Context, ns *netlab.NS, names ...string) error {
	want := map[int]bool{}
	for _, n := range names {
		i, err := ns.Index(n)
		if err != nil {
			return err
		}
		want[i] = true
	}
	return p.Until(ctx, "packet sockets", func() (ok bool, err error) {
		err = ns.Do(func() error {
			b, err := os.ReadFile("/proc/thread-self/net/packet")
			if err != nil {
				return err
			}
			ok = bound(string(b), want)
			return nil
		})
		return ok, err
	})
}

// bound reports whether a /proc/net/packet has a running socket on each of the
// interfaces.
func bound(table string, want map[int]bool) bool {
	seen := map[int]bool{}
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 7 {
			continue
		}
		if i, err := strconv.Atoi(f[4]); err == nil && want[i] && f[5] == "1" {
			seen[i] = true
		}
	}
	return len(seen) == len(want)
}

// Listens waits until something listens on a TCP port in the namespace.
func (p *Proc) Listens(ctx context.Context, ns *netlab.NS, port int) error {
	needle := fmt.Sprintf(":%04X ", port)
	return p.Until(ctx, "listening socket", func() (ok bool, err error) {
		err = ns.Do(func() error {
			for _, name := range []string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"} {
				b, err := os.ReadFile(name)
				if err != nil {
					return err
				}
				for line := range strings.Lines(string(b)) {
					f := strings.Fields(line)
					const listen = "0A"
					ok = ok || len(f) > 3 && f[3] == listen && strings.Contains(f[1]+" ", needle)
				}
			}
			return nil
		})
		return ok, err
	})
}
