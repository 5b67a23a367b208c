//go:build linux

package peer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Tools are the programs that the harness builds itself.
type Tools struct {
	Dir   string // where they are
	Bench string // the folder of this module
	// BridgeHelp is what the bridge prints for --help: it tells which flags
	// this build has.
	BridgeHelp string
	// Missing tells why a program could not be built.
	Missing map[string]error
}

// Names of what is built.
const (
	Blast       = "blast"
	TxRing      = "txring"
	Live        = "live"
	LiveMax     = "livemax"
	VnetFwd     = "vnetfwd"
	GopacketFwd = "gopacketfwd"
	Conns       = "conns"
	BridgeName  = "bridge"
	PktgenName  = "pktgen"
	MemBench    = "mem.test"
	ValeBench   = "vale.test"
)

// Build builds all programs from source, those of netring from the checkout
// around the module.
func Build(ctx context.Context, bench string) (*Tools, error) {
	t := &Tools{Dir: filepath.Join(bench, ".work"), Bench: bench, Missing: map[string]error{}}
	if err := os.MkdirAll(t.Dir, 0o755); err != nil {
		return nil, err
	}
	for _, name := range []string{Blast, TxRing, Live, LiveMax, VnetFwd} {
		src := filepath.Join(bench, "peers", "c", name+".c")
		t.build(ctx, bench, name, "gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", t.Path(name), src)
	}
	t.build(ctx, bench, GopacketFwd, "go", "build", "-o", t.Path(GopacketFwd), "./peers/gopacketfwd")
	t.build(ctx, bench, Conns, "go", "build", "-o", t.Path(Conns), "./peers/conns")
	for _, name := range []string{BridgeName, PktgenName} {
		t.build(ctx, filepath.Dir(bench), name, "go", "build", "-o", t.Path(name), "./cmd/"+name)
	}
	for name, pkg := range map[string]string{MemBench: "./ring/mem", ValeBench: "./nm/vale"} {
		t.build(ctx, filepath.Dir(bench), name, "go", "test", "-c", "-o", t.Path(name), pkg)
	}
	if err := t.Missing[Blast]; err != nil {
		return nil, fmt.Errorf("the source of all benchmarks is missing: %w", err)
	}
	if t.Missing[BridgeName] == nil {
		// --help exits with 0 or 2 according to taste; the text counts.
		help, _ := exec.CommandContext(ctx, t.Path(BridgeName), "--help").CombinedOutput()
		t.BridgeHelp = string(help)
	}
	return t, ctx.Err()
}

// Path of a program.
func (t *Tools) Path(name string) string { return filepath.Join(t.Dir, name) }

func (t *Tools) build(ctx context.Context, dir, name string, args ...string) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	// An old program must not stand in for one that no longer builds.
	err := os.Remove(t.Path(name))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	var out []byte
	if err == nil {
		out, err = cmd.CombinedOutput()
	}
	if err != nil {
		t.Missing[name] = fmt.Errorf("build %s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
}

// Lacks tells why the bridge cannot run with these arguments: it does not
// build, or has no such flag. "" if it can.
func (t *Tools) Lacks(args ...string) string {
	if err := t.Missing[BridgeName]; err != nil {
		return err.Error()
	}
	for _, a := range args {
		name, _, _ := strings.Cut(a, "=")
		if strings.HasPrefix(name, "--") && !hasFlag(t.BridgeHelp, name) {
			return "this build of the bridge has no " + name
		}
	}
	return ""
}

func hasFlag(help, name string) bool {
	for line := range strings.Lines(help) {
		for f := range strings.FieldsFuncSeq(line, func(r rune) bool { return strings.ContainsRune(" ,=[\t\n", r) }) {
			if f == name {
				return true
			}
		}
	}
	return false
}

// Installed tells why a program of a package is not there, "" if it is.
func Installed(program, pkg string) string {
	if _, err := exec.LookPath(program); err != nil {
		return fmt.Sprintf("%s is not installed: bench install, or apt-get install %s", program, pkg)
	}
	return ""
}
