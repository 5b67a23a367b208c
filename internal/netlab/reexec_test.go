//go:build linux

package netlab_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/netring/netring/internal/netlab"
	"golang.org/x/sys/unix"
)

// marker is what Reexec sets; the helpers clear it, as the tests themselves
// may run in a process that has it.
const marker = "NETRING_NETLAB"

// reexecHelper runs itself in a user namespace and does there what is asked.
func reexecHelper(what string) int {
	stage := what + "-again"
	if os.Getenv("NETLAB_TEST_STAGE") != stage {
		os.Unsetenv(marker)
		os.Setenv("NETLAB_TEST_STAGE", stage)
		code, again, err := netlab.Reexec(true)
		if err != nil || !again {
			fmt.Fprintln(os.Stderr, "Reexec:", again, err)
			return 99
		}
		return code
	}
	if code, again, err := netlab.Reexec(true); code != 0 || again || err != nil {
		fmt.Fprintln(os.Stderr, "Reexec in the namespace:", code, again, err)
		return 98
	}
	switch what {
	case "re-exit":
		fmt.Println(os.Geteuid(), netlab.Root(), netlab.Available())
		return 7
	case "re-signal":
		c := make(chan os.Signal, 1)
		signal.Notify(c, unix.SIGTERM)
		fmt.Println("ready")
		<-c
		return 5
	case "re-hang":
		fmt.Println("ready")
		select {}
	case "re-die":
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	case "re-forbid":
		return forbidAndTry()
	}
	return 97
}

// forbidAndTry forbids further user namespaces within this one and tries.
func forbidAndTry() int {
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 96
	}
	os.Unsetenv(marker)
	_, again, err := netlab.Reexec(true)
	var f *netlab.ForbiddenError
	if again || !errors.As(err, &f) {
		fmt.Fprintln(os.Stderr, "Reexec where it is forbidden:", again, err)
		return 95
	}
	fmt.Println(err)
	return 0
}

func reexecCmd(t *testing.T, what string) *exec.Cmd {
	t.Helper()
	netlab.NeedNet(t)
	if _, err := os.Stat("/proc/self/ns/user"); err != nil {
		t.Skip("this kernel has no user namespaces")
	}
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), helperEnv+"="+what)
	c.Stderr = os.Stderr
	return c
}

func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

func TestReexecExit(t *testing.T) {
	out, err := reexecCmd(t, "re-exit").Output()
	if exitCode(err) != 7 || string(out) != "0 false <nil>\n" {
		t.Errorf("the program in its user namespace said %q and ended with %v", out, err)
	}
}

func TestReexecKilled(t *testing.T) {
	err := reexecCmd(t, "re-die").Run()
	if exitCode(err) != 128+int(unix.SIGKILL) {
		t.Errorf("ended with %v, want 137", err)
	}
}

// started starts the command and waits for its first line.
func started(t *testing.T, c *exec.Cmd) {
	t.Helper()
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("said %q, %v", line, err)
	}
}

func TestReexecSignal(t *testing.T) {
	c := reexecCmd(t, "re-signal")
	started(t, c)
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); exitCode(err) != 5 {
		t.Errorf("ended with %v, want 5: the signal was not passed on once", err)
	}
}

func TestReexecParentKilled(t *testing.T) {
	r, w := pipe(t)
	c := reexecCmd(t, "re-hang")
	c.Stdin = w // inherited by the program in its user namespace
	started(t, c)
	w.Close()
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	eof(t, r)
}

func TestReexecForbidden(t *testing.T) {
	out, err := reexecCmd(t, "re-forbid").Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"run as root", "sysctl -w user.max_user_namespaces="} {
		if !strings.Contains(string(out), want) {
			t.Errorf("error %q does not say %q", out, want)
		}
	}
}
