// Command bridge joins network interfaces in userspace: two as a wire, three or
// more as a learning switch. See docs/bridge.md.
package main

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
	exitOK    = 0
	exitFail  = 1
	exitUsage = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main with its surroundings as arguments.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, cancel := signalContext(stderr)
	defer cancel()
	root := newRoot(stdout, stderr)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var usage *usageError
	var code exitCode
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "bridge: %v\n", err)
		return exitUsage
	}
	fmt.Fprintf(stderr, "bridge: %v\n", err)
	return exitFail
}

// signalContext ends with the first SIGINT or SIGTERM; the second ends the
// process at once.
func signalContext(stderr io.Writer) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	sig := make(chan os.Signal, 2)
	signal.Notify(sig, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-sig
		cancel()
		<-sig
		fmt.Fprintln(stderr, "bridge: second signal: exiting at once")
		os.Exit(exitFail)
	}()
	return ctx, func() { signal.Stop(sig); cancel() }
}

// usageError is a mistake on the command line: exit code 2.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	var c config
	root := &cobra.Command{
		Use:   "bridge -i eth1 -i eth2 [-i eth3 ...]",
		Short: "Forward between network interfaces in userspace",
		Long: `bridge joins network interfaces through memory-mapped packet rings: two as a
wire, three or more as a learning switch. The interfaces become promiscuous
while it runs; the host's own stack keeps seeing their traffic, so give them no
addresses. It needs CAP_NET_RAW (and CAP_NET_ADMIN to change offloads).

A line per direction and interval goes to stdout, diagnostics to stderr.
The first SIGINT or SIGTERM stops receiving, forwards what has arrived, prints
the totals and exits with 0; the second exits at once.`,
		Example: `  bridge -i eth1 -i eth2              # a wire
  bridge -i eth1 -i eth2 -i eth3      # a switch
  bridge -i eth1 -i eth2 --json       # one JSON object a second
  bridge demo                         # see it work, without root`,
		Version:       version(),
		Args:          noArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := newLog(stderr, c.verbose)
			if err := c.validate(); err != nil {
				return err
			}
			return bridge(cmd.Context(), &c, stdout, log)
		},
	}
	root.SetVersionTemplate("bridge {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return usagef("%w (see bridge --help)", err)
	})
	root.CompletionOptions.HiddenDefaultCmd = true
	c.flags(root.Flags())
	root.AddCommand(newDemo(stdout, stderr))
	return root
}

// noArgs refuses words that are not flags; an interface without -i is the
// usual mistake.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) != 0 {
		return usagef("unexpected argument %q: name interfaces with -i, such as -i %s", args[0], args[0])
	}
	return nil
}

func newLog(w io.Writer, verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// version is the module's version, or the commit it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return "devel " + s.Value[:min(12, len(s.Value))]
		}
	}
	return "devel"
}
