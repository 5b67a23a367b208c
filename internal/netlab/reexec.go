//go:build linux

package netlab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// env marks a process that Reexec started, so that it does not start another.
const env = "NETRING_NETLAB"

// ForbiddenError: this process may not make namespaces.
type ForbiddenError struct {
	Op     string // "make a network namespace"
	Err    error  // what the kernel said
	Remedy string // what to do about it
}

func (e *ForbiddenError) Error() string { return e.Op + ": " + e.Err.Error() + "; " + e.Remedy }

func (e *ForbiddenError) Unwrap() error { return e.Err }

func forbidden(op string, err error) error {
	return &ForbiddenError{Op: op, Err: err, Remedy: remedy(func(name string) string {
		b, err := os.ReadFile("/proc/sys/" + name)
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	})}
}

// remedy says how to allow namespaces, by the switches that forbid them as far
// as sysctl (which answers "" for what this kernel lacks) shows any.
func remedy(sysctl func(name string) string) string {
	var todo []string
	if sysctl("kernel/unprivileged_userns_clone") == "0" {
		todo = append(todo, "sysctl -w kernel.unprivileged_userns_clone=1")
	}
	if sysctl("user/max_user_namespaces") == "0" {
		todo = append(todo, "sysctl -w user.max_user_namespaces=10000")
	}
	if sysctl("user/max_net_namespaces") == "0" {
		todo = append(todo, "sysctl -w user.max_net_namespaces=10000")
	}
	if sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1" {
		todo = append(todo, "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0")
	}
	if len(todo) == 0 {
		return "run as root, or with CAP_SYS_ADMIN and CAP_NET_ADMIN (a container may need --privileged)"
	}
	return "run as root, or allow user namespaces: " + strings.Join(todo, "; ")
}

// Available returns nil if this process may make network namespaces, else a
// [*ForbiddenError].
func Available() error {
	var err error
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // for good: the thread ends in its new namespace
		if e := unix.Unshare(unix.CLONE_NEWNET); e != nil {
			err = forbidden("make a network namespace", e)
		}
	})
	wg.Wait()
	return err
}

// Root reports whether this process is root of the machine, not of a user
// namespace.
func Root() bool {
	if os.Geteuid() != 0 {
		return false
	}
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false
	}
	return strings.Join(strings.Fields(string(b)), " ") == "0 0 4294967295"
}

// Reexec sees to it that the program may make network namespaces. If this
// process may, it returns again == false and the program goes on. Else it runs
// this program once more with the same arguments, as root of new user and
// network namespaces, passes signals on to it, and when that has ended returns
// again == true and the code to exit with. With always it does so for root
// too.
//
// Call it first thing in main, or leave it to [Main]. The error is a
// [*ForbiddenError] where user namespaces are forbidden.
func Reexec(always bool) (code int, again bool, err error) {
	if os.Getenv(env) != "" {
		return 0, false, Available()
	}
	if !always && Available() == nil {
		return 0, false, nil
	}
	// The child is to die with us: its parent-death signal is tied to the
	// thread that starts it, so that one must not end before.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Args[0] = os.Args[0]
	c.Env = append(os.Environ(), env+"=1")
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
		// Its own process group: what a terminal sends comes to us alone and
		// is passed on once.
		Setpgid: true,
	}
	// Catch signals before there is a child that could miss one.
	sig := make(chan os.Signal, 8)
	signal.Notify(sig, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2)
	defer signal.Stop(sig)
	if err := c.Start(); err != nil {
		return 0, false, forbidden("start in a user namespace", err)
	}
	return await(c, sig)
}

// await passes signals on to the child until it has ended.
func await(c *exec.Cmd, sig <-chan os.Signal) (code int, again bool, err error) {
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	for {
		select {
		case s := <-sig:
			_ = c.Process.Signal(s) // it may just have ended
		case err := <-ended:
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return 1, true, fmt.Errorf("wait for the program in its user namespace: %w", err)
			}
			if ws, ok := c.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
				return 128 + int(ws.Signal()), true, nil
			}
			return c.ProcessState.ExitCode(), true, nil
		}
	}
}
