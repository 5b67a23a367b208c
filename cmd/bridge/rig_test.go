package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/netring/netring/internal/cli"
	"github.com/netring/netring/internal/netlab"
)

// asBridge makes the test binary be the bridge.
const asBridge = "NETRING_TEST_BRIDGE"

func TestMain(m *testing.M) {
	if os.Getenv(asBridge) != "" {
		main()
	}
	netlab.Main(m)
}

// patience is how long to wait for what must come.
const patience = 20 * time.Second

// rig is a test network: hosts h1, h2, ... each joined to the namespace dut by
// a veth pair eI-pI; the bridge joins p1, p2, ...
type rig struct {
	*netlab.Lab
	t     *testing.T
	hosts int
}

func newRig(t *testing.T, hosts int, o netlab.VethOpts) *rig {
	t.Helper()
	netlab.NeedNet(t)
	r := &rig{t: t, hosts: hosts}
	names := []string{"dut"}
	for i := range hosts {
		names = append(names, r.host(i))
	}
	lab, err := netlab.New(names...)
	if err != nil {
		t.Fatal(err)
	}
	r.Lab = lab
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	for i := range hosts {
		r.ok(lab.Veth(r.host(i), r.end(i), "dut", r.port(i), o))
	}
	return r
}

func (r *rig) host(i int) string { return fmt.Sprintf("h%d", i+1) }
func (r *rig) end(i int) string  { return fmt.Sprintf("e%d", i+1) }
func (r *rig) port(i int) string { return fmt.Sprintf("p%d", i+1) }

func (r *rig) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// taps opens a tap at every host.
func (r *rig) taps() (taps []*tap) {
	for i := range r.hosts {
		taps = append(taps, openTap(r.t, r.NS(r.host(i)), r.end(i)))
	}
	return taps
}

// proc is a running bridge.
type proc struct {
	*netlab.Cmd
	t    *testing.T
	out  output
	mu   sync.Mutex
	errs strings.Builder
	read chan struct{}
}

// output is what a program has printed; it may be read while it runs.
type output struct {
	mu  sync.Mutex
	buf []byte
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf = append(o.buf, b...)
	return len(b), nil
}

// lines are the whole lines up to now.
func (o *output) lines() [][]byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	end := bytes.LastIndexByte(o.buf, '\n')
	if end < 0 {
		return nil
	}
	return bytes.Split(bytes.Clone(o.buf[:end]), []byte("\n"))
}

// has says whether a whole line has the text.
func (o *output) has(text string) bool {
	return slices.ContainsFunc(o.lines(), func(line []byte) bool { return bytes.Contains(line, []byte(text)) })
}

// start runs the bridge over all ports with more arguments, and returns once
// it forwards.
func (r *rig) start(args ...string) *proc {
	r.t.Helper()
	for i := range r.hosts {
		args = append(args, "-i", r.port(i))
	}
	return r.startArgs(args...)
}

func (r *rig) startArgs(args ...string) *proc {
	r.t.Helper()
	return r.startWith(func(*netlab.Cmd) {}, args...)
}

// startWith is startArgs of a command that how has changed.
func (r *rig) startWith(how func(*netlab.Cmd), args ...string) *proc {
	r.t.Helper()
	p := &proc{t: r.t, Cmd: r.NS("dut").Command(os.Args[0], args...), read: make(chan struct{})}
	p.Env = append(os.Environ(), asBridge+"=1")
	how(p.Cmd)
	p.Stdout = &p.out
	stderr, w, err := os.Pipe()
	r.ok(err)
	p.Stderr = w
	r.ok(p.Start())
	w.Close()
	ready := make(chan struct{})
	go p.watch(stderr, ready)
	r.t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	select {
	case <-ready:
	case <-p.read:
		r.t.Fatalf("bridge %s ended: %v\n%s", strings.Join(args, " "), p.Wait(), p.stderr())
	case <-time.After(patience):
		r.t.Fatalf("bridge %s does not say that it forwards\n%s", strings.Join(args, " "), p.stderr())
	}
	return p
}

// refused runs a bridge that cannot start, and returns what it says.
func (r *rig) refused(want int, args ...string) string {
	r.t.Helper()
	c := r.NS("dut").Command(os.Args[0], args...)
	c.Env = append(os.Environ(), asBridge+"=1")
	var said bytes.Buffer
	c.Stderr = &said
	r.ok(c.Start())
	_ = c.Wait()
	if code := c.ProcessState.ExitCode(); code != want {
		r.t.Errorf("bridge %s: exit code %d, want %d", strings.Join(args, " "), code, want)
	}
	return said.String()
}

// watch reads the bridge's stderr.
func (p *proc) watch(r io.ReadCloser, ready chan<- struct{}) {
	defer close(p.read)
	defer r.Close()
	for s := bufio.NewScanner(r); s.Scan(); {
		p.mu.Lock()
		fmt.Fprintln(&p.errs, s.Text())
		p.mu.Unlock()
		if strings.Contains(s.Text(), "msg=forwarding") {
			close(ready)
		}
	}
}

func (p *proc) stderr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.errs.String()
}

// await returns once stderr has the text.
func (p *proc) await(text string) {
	p.t.Helper()
	for end := time.Now().Add(patience); !strings.Contains(p.stderr(), text); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("stderr has no %q:\n%s", text, p.stderr())
		}
	}
}

// exit waits for the bridge to end and returns its exit code.
func (p *proc) exit() int {
	p.t.Helper()
	done := make(chan struct{})
	go func() { _ = p.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		p.t.Fatalf("bridge does not end\n%s", p.stderr())
	}
	<-p.read
	return p.ProcessState.ExitCode()
}

// stop ends the bridge with SIGTERM and returns its final object.
func (p *proc) stop() *report {
	p.t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	if code := p.exit(); code != cli.ExitOK {
		p.t.Fatalf("exit code %d\n%s", code, p.stderr())
	}
	return p.final()
}

// final parses the last object of --json.
func (p *proc) final() *report {
	p.t.Helper()
	r := p.last()
	if r == nil || r.Type != "final" {
		p.t.Fatalf("the last line is no final object: %+v", r)
	}
	return r
}

// last parses the newest object of --json, nil if there is none.
func (p *proc) last() *report {
	p.t.Helper()
	lines := p.out.lines()
	if lines == nil {
		return nil
	}
	var r report
	if err := json.Unmarshal(lines[len(lines)-1], &r); err != nil {
		p.t.Fatalf("%v in line %q", err, lines[len(lines)-1])
	}
	return &r
}

// often makes a bridge report so often that a test can wait for what it says.
const often = "--interval=10ms"

// until waits for a report that has what is wanted, of a bridge that reports
// often.
func (p *proc) until(what string, has func(*report) bool) *report {
	p.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		r := p.last()
		if r != nil && has(r) {
			return r
		}
		if time.Now().After(end) {
			p.t.Fatalf("no report of %s; the last is %+v\n%s", what, r, p.stderr())
		}
	}
}

// received waits until so many frames have come to the bridge.
func (p *proc) received(n uint64) {
	p.t.Helper()
	p.until(fmt.Sprintf("%d frames received", n), func(r *report) bool { return r.Received >= n })
}

// processTime is the user and system time of a process, from its stat file.
func processTime(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	var ticks time.Duration
	for _, s := range f[11:13] { // utime and stime, of 10 ms each
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond, nil
}
