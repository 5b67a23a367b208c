//go:build linux

package netlab

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// waitDelay bounds how long Wait lingers for output that a killed program's
// own children keep open.
const waitDelay = 2 * time.Second

// Cmd is a program to run in a namespace. It is an exec.Cmd whose methods that
// start or await the program are replaced; Wait may be called by several.
type Cmd struct {
	*exec.Cmd
	ns   *NS
	once sync.Once
	err  error
}

// Command prepares a program to run in the namespace. It gets SIGKILL when
// the lab closes or this process ends, in whatever way.
func (n *NS) Command(name string, args ...string) *Cmd {
	c := exec.Command(name, args...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.WaitDelay = waitDelay
	return &Cmd{Cmd: c, ns: n}
}

// Start starts the program on the thread that stays in the namespace.
func (c *Cmd) Start() error {
	n := c.ns
	if n.nl == nil {
		return fmt.Errorf("run %s in namespace %q: %w", c.Args[0], n.name, errNoSuchNS)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return fmt.Errorf("run %s in namespace %q: %w", c.Args[0], n.name, errNoSuchNS)
	}
	res := make(chan error)
	n.jobs <- func() { res <- c.Cmd.Start() }
	if err := <-res; err != nil {
		return fmt.Errorf("run %s in namespace %q: %w", c.Args[0], n.name, err)
	}
	n.cmds[c] = struct{}{}
	return nil
}

// Wait waits for the program to end and returns its error.
func (c *Cmd) Wait() error {
	c.once.Do(func() {
		c.err = c.Cmd.Wait()
		c.ns.mu.Lock()
		delete(c.ns.cmds, c)
		c.ns.mu.Unlock()
	})
	return c.err
}

// Run starts the program and waits for it.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the program and returns what it wrote to its standard output.
func (c *Cmd) Output() ([]byte, error) {
	var out bytes.Buffer
	c.Stdout = &out
	err := c.Run()
	return out.Bytes(), err
}

// CombinedOutput runs the program and returns all that it wrote.
func (c *Cmd) CombinedOutput() ([]byte, error) {
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.Bytes(), err
}

// Exec runs a program to its end and returns all that it wrote. The error has
// the command line and that output.
func (n *NS) Exec(name string, args ...string) (string, error) {
	out, err := n.Command(name, args...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return string(out), nil
}
