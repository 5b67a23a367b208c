package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
)

// waiting prints a line and works until it is told to stop.
func waiting(stdout, _ io.Writer) *cobra.Command {
	return &cobra.Command{Use: "waiting", RunE: func(cmd *cobra.Command, _ []string) error {
		fmt.Fprintln(stdout, "at work")
		<-cmd.Context().Done()
		fmt.Fprintln(stdout, "total")
		return nil
	}}
}

// A command whose report cannot be written is told to stop, and fails.
func TestLostReport(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	r, unread, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer unread.Close()
	r.Close()
	for name, w := range map[string]io.Writer{"full disk": full, "pipe without a reader": unread} {
		var errs bytes.Buffer
		if code := Run(waiting, nil, w, &errs); code != ExitFail {
			t.Errorf("%s: exit %d, want %d", name, code, ExitFail)
		}
		if n := strings.Count(errs.String(), "write report"); n != 1 {
			t.Errorf("%s: it is said %d times:\n%s", name, n, errs.String())
		}
	}
}

// A terminal that goes away ends a command in order, though it may be told
// twice.
func TestHangup(t *testing.T) {
	// Also caught here, so that nohup around the test changes nothing, and none
	// comes when nobody catches it.
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGHUP)
	defer signal.Stop(told)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	code := make(chan int)
	go func() {
		code <- Run(waiting, nil, w, io.Discard)
		w.Close()
	}()
	out := bufio.NewScanner(r)
	if !out.Scan() || out.Text() != "at work" {
		t.Fatalf("it says %q, not that it works", out.Text())
	}
	for range 2 {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		<-told
	}
	if got := <-code; got != ExitOK {
		t.Errorf("exit %d, want %d", got, ExitOK)
	}
	if !out.Scan() || out.Text() != "total" {
		t.Errorf("at the end it says %q, want the total", out.Text())
	}
}

func TestExitCodes(t *testing.T) {
	for _, tc := range []struct {
		err  error
		code int
		said string
	}{
		{nil, ExitOK, ""},
		{errors.New("broken"), ExitFail, "c: broken\n"},
		{Usagef("no %w", errors.New("port")), ExitUsage, "c: no port\n"},
		{fmt.Errorf("--cpu: %w", CheckCPUs([]int{0, 4000})), ExitUsage, "CPU 4000"},
		{ExitCode(7), 7, ""},
	} {
		command := func(_, _ io.Writer) *cobra.Command {
			return &cobra.Command{Use: "c", RunE: func(*cobra.Command, []string) error { return tc.err }}
		}
		var out, errs bytes.Buffer
		if code := Run(command, nil, &out, &errs); code != tc.code || !strings.Contains(errs.String(), tc.said) || tc.said == "" && errs.Len() != 0 {
			t.Errorf("%v: exit %d, want %d; says %q", tc.err, code, tc.code, errs.String())
		}
	}
}
