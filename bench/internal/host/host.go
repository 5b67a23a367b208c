//go:build linux

// Package host describes the machine and keeps two runs on it apart.
package host

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/bench/internal/result"
)

// Describe looks the machine over. What it cannot find out is left empty.
func Describe() result.Host {
	h := result.Host{CPUs: runtime.NumCPU(), Mitigations: map[string]string{}}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		h.Kernel = unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Version[:])
	}
	cpuinfo := read("/proc/cpuinfo")
	h.CPU = value(cpuinfo, "model name", ":")
	for _, k := range []string{"cpu family", "model", "stepping"} {
		if v := value(cpuinfo, k, ":"); v != "" {
			h.CPU += ", " + k + " " + v
		}
	}
	if strings.Contains(value(cpuinfo, "flags", ":")+" ", " hypervisor ") {
		h.Hypervisor = "yes"
	}
	if f := strings.Fields(value(read("/proc/meminfo"), "MemTotal", ":")); len(f) > 0 {
		kib, _ := strconv.ParseUint(f[0], 10, 64)
		h.MemoryMiB = kib / 1024
	}
	h.System = strings.Trim(value(read("/etc/os-release"), "PRETTY_NAME", "="), `"`)
	for _, name := range []string{"spectre_v2", "retbleed", "srso"} {
		if v := strings.TrimSpace(read("/sys/devices/system/cpu/vulnerabilities/" + name)); v != "" && v != "Not affected" {
			h.Mitigations[name] = v
		}
	}
	h.Config = kernelConfig(u, "CONFIG_HZ", "CONFIG_PREEMPT_NONE", "CONFIG_PREEMPT", "CONFIG_PREEMPT_DYNAMIC", "CONFIG_IRQ_TIME_ACCOUNTING")
	return h
}

func read(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return string(b)
}

// value finds the first line "key sep value" of a text.
func value(text, key, sep string) string {
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, sep); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func kernelConfig(u unix.Utsname, keys ...string) map[string]string {
	text := read("/boot/config-" + unix.ByteSliceToString(u.Release[:]))
	if text == "" {
		z, err := os.ReadFile("/proc/config.gz")
		if err != nil {
			return nil
		}
		r, err := gzip.NewReader(bytes.NewReader(z))
		if err != nil {
			return nil
		}
		b, err := io.ReadAll(r)
		if err != nil {
			return nil
		}
		text = string(b)
	}
	out := map[string]string{}
	for _, k := range keys {
		if v := value(text, k, "="); v != "" {
			out[k] = v
		}
	}
	return out
}

// Packages are the Debian packages that hold the other contenders and what the
// harness needs.
var packages = []string{
	"dpdk", "dpdk-dev", "netsniff-ng", "tcpreplay", "iperf3", "hping3", "ethtool", "iproute2", "iputils-ping",
	"gcc", "libc6-dev", "linux-libc-dev", "util-linux", "coreutils",
}

// Packages returns the names of the packages that benchmarks use.
func Packages() []string { return append([]string(nil), packages...) }

// Versions finds the versions of netring, Go, and the installed packages.
func Versions(ctx context.Context, repo string) map[string]string {
	out := map[string]string{"go": runtime.Version()}
	git := exec.CommandContext(ctx, "git", "-C", repo, "describe", "--always", "--tags", "--dirty")
	if b, err := git.Output(); err == nil {
		out["netring"] = strings.TrimSpace(string(b))
	}
	args := append([]string{"-W", "-f", "${Package} ${Version}\n"}, packages...)
	b, _ := exec.CommandContext(ctx, "dpkg-query", args...).Output() // fails if one is missing, and lists the others
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 {
			out[f[0]] = f[1]
		}
	}
	mod := read(filepath.Join(repo, "bench", "go.mod"))
	out["gopacket"] = moduleVersion(mod, "github.com/google/gopacket")
	return out
}

func moduleVersion(mod, path string) string {
	for line := range strings.Lines(mod) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == path {
			return f[1]
		}
	}
	return ""
}

// Lock keeps other runs out until unlock is called or the process ends. It
// waits for its turn; waiting is called once if it has to.
func Lock(ctx context.Context, name string, waiting func()) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		waiting()
		err = waitLock(ctx, f)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

func waitLock(ctx context.Context, f *os.File) error {
	got := make(chan error, 1)
	go func() {
		for {
			err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
			if !errors.Is(err, unix.EINTR) {
				got <- err
				return
			}
		}
	}()
	select {
	case err := <-got:
		return err
	case <-ctx.Done():
		return context.Cause(ctx) // the process ends, and the lock with it
	}
}
