//go:build linux

// Command bench measures netring against its peers.
//
//	cd bench
//	go run ./cmd/bench install              # as root: the peers, by apt-get
//	go run ./cmd/bench list
//	go run ./cmd/bench run --scenario '^forward60$'   # as root
//	go run ./cmd/bench report               # the tables of BENCHMARKS.md
//
// README.md tells what a run does and how far to trust it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/netring/netring/bench/internal/host"
	"github.com/netring/netring/bench/internal/scenario"
)

const usage = `usage: bench COMMAND [flags]

  install   install the peers with apt-get (as root)
  list      list the scenarios and how long each takes
  run       measure and write results/*.json (as root); bench run --help
  report    make the tables of BENCHMARKS.md from results/*.json
`

// errUsage has been explained to the user.
var errUsage = errors.New("usage")

var errInterrupted = errors.New("interrupted")

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-stop
		signal.Stop(stop) // a second one ends us at once, and the network with us
		cancel(errInterrupted)
	}()
	err := command(ctx, os.Args[1:])
	switch {
	case err == nil:
	case errors.Is(err, errUsage):
		os.Exit(2)
	case errors.Is(err, errInterrupted):
		fmt.Fprintln(os.Stderr, "bench: interrupted; what was running is gone")
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return errUsage
	}
	switch args[0] {
	case "install":
		return install(ctx)
	case "list":
		list(os.Stdout, scenario.All())
		return nil
	case "run":
		return run(ctx, args[1:])
	case "report":
		return reportCommand(args[1:])
	case "help", "-h", "--help":
		fmt.Print(usage)
		return nil
	}
	fmt.Fprintf(os.Stderr, "bench: no command %q\n%s", args[0], usage)
	return errUsage
}

func install(ctx context.Context) error {
	for _, args := range [][]string{
		{"apt-get", "update"},
		append([]string{"apt-get", "install", "-y", "--no-install-recommends"}, host.Packages()...),
	} {
		fmt.Println(strings.Join(args, " "))
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w (it needs root, and Debian or one like it)", strings.Join(args[:2], " "), err)
		}
	}
	return nil
}

// benchDir finds the folder of this module from the working directory upwards.
func benchDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		for _, c := range []string{at, filepath.Join(at, "bench")} {
			if b, err := os.ReadFile(filepath.Join(c, "go.mod")); err == nil && strings.HasPrefix(string(b), "module github.com/netring/netring/bench\n") {
				return c, nil
			}
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is not inside a checkout of netring: run this from its bench folder", dir)
		}
	}
}
