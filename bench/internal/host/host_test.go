//go:build linux

package host

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"
)

func TestValue(t *testing.T) {
	text := "model\t\t: 207\nmodel name\t: A B\nflags : fpu hypervisor sse\n"
	if got := value(text, "model", ":"); got != "207" {
		t.Errorf("model %q", got)
	}
	if got := value(text, "model name", ":"); got != "A B" {
		t.Errorf("model name %q", got)
	}
	if got := value(text, "x", ":"); got != "" {
		t.Errorf("x %q", got)
	}
}

func TestModuleVersion(t *testing.T) {
	if got := moduleVersion("require (\n\ta/b v1.2.3 // indirect\n)\n", "a/b"); got != "v1.2.3" {
		t.Errorf("got %q", got)
	}
}

func TestDescribe(t *testing.T) {
	h := Describe()
	if h.Kernel == "" || h.CPUs < 1 || h.MemoryMiB == 0 {
		t.Errorf("%+v", h)
	}
}

func TestLockExcludes(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(t.Context(), name, func() { t.Error("waits for a free lock") })
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	waited := false
	if _, err := Lock(ctx, name, func() { waited = true; cancel(gone) }); !errors.Is(err, gone) || !waited {
		t.Fatalf("second lock: waited %v, %v", waited, err)
	}
	got := make(chan error)
	go func() {
		un, err := Lock(t.Context(), name, unlock)
		if err == nil {
			un()
		}
		got <- err
	}()
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the lock was not handed on")
	}
}
