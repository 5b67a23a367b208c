// Package cli is what the commands have in common: exit codes, usage errors,
// the two signals, logs, and the version.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	ExitOK    = 0
	ExitFail  = 1
	ExitUsage = 2
)

// UsageError is a mistake on the command line: exit code 2.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef makes a UsageError.
func Usagef(format string, args ...any) error {
	return &UsageError{fmt.Errorf(format, args...)}
}

// ExitCode is the code of a child that has said everything else itself.
type ExitCode int

func (c ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// Run makes a command, executes it and returns the code to exit with; errors go
// to stderr. That a report cannot be written stops the command, and is one.
func Run(command func(stdout, stderr io.Writer) *cobra.Command, args []string, stdout, stderr io.Writer) int {
	defer catchPipe()()
	out := &output{w: stdout}
	root := command(out, stderr)
	name := root.Name()
	ctx, cancel := SignalContext(name, stderr)
	defer cancel()
	out.stop = cancel
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(stderr)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return Usagef("%w (see %s --help)", err, name)
	})
	err := root.ExecuteContext(ctx)
	if lost := out.failed(); lost != nil && !errors.Is(err, lost) {
		err = errors.Join(lost, err)
	}
	var usage *UsageError
	var code ExitCode
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintf(stderr, "%s: %v\n", name, err)
	if errors.As(err, &usage) {
		return ExitUsage
	}
	return ExitFail
}

// SignalContext ends with the first SIGINT or SIGTERM; the second ends the
// process at once. A terminal that goes away ends it too, unless nohup has
// SIGHUP ignored, and does so once, as the shell and the kernel may both tell.
func SignalContext(name string, stderr io.Writer) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	sig := make(chan os.Signal, 2)
	signal.Notify(sig, syscall.SIGINT, syscall.SIGTERM)
	hup := make(chan os.Signal, 1)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(hup, syscall.SIGHUP)
	}
	go func() {
		select {
		case <-hup:
		case <-sig:
		}
		cancel()
		<-sig
		fmt.Fprintln(stderr, name+": second signal: exiting at once")
		os.Exit(ExitFail)
	}()
	return ctx, func() { signal.Stop(sig); signal.Stop(hup); cancel() }
}

// NewLog returns a log to w; verbose shows debug messages too.
func NewLog(w io.Writer, verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// Version is the module's version, or the commit it was built from.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return "devel " + s.Value[:min(12, len(s.Value))]
		}
	}
	return "devel"
}
