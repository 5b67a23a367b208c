//go:build linux

package netlab

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestRemedy(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"},
		{"kernel/unprivileged_userns_clone", "1", "CAP_SYS_ADMIN"},
		{"user/max_user_namespaces", "0", "user.max_user_namespaces="},
		{"user/max_net_namespaces", "0", "user.max_net_namespaces="},
		{"kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"},
		{"", "", "--privileged"},
	} {
		got := remedy(func(name string) string {
			if name == c.name {
				return c.value
			}
			return ""
		})
		if !strings.Contains(got, c.want) || !strings.Contains(got, "run as root") {
			t.Errorf("with %s = %s: %q, want %q in it", c.name, c.value, got, c.want)
		}
	}
}

// fakeTB records what a helper did to the test.
type fakeTB struct{ skipped, failed string }

func (f *fakeTB) Helper()                   {}
func (f *fakeTB) Cleanup(func())            {}
func (f *fakeTB) Errorf(string, ...any)     {}
func (f *fakeTB) Skipf(s string, a ...any)  { f.skipped = fmt.Sprintf(s, a...) }
func (f *fakeTB) Fatalf(s string, a ...any) { f.failed = fmt.Sprintf(s, a...) }

func TestSkip(t *testing.T) {
	reason := forbidden("make a network namespace", errors.New("no"))
	t.Setenv("CI", "")
	var f fakeTB
	if Skip(&f, "needs %v", reason); f.failed != "" || !strings.Contains(f.skipped, "run as root") {
		t.Errorf("without CI: %+v", f)
	}
	t.Setenv("CI", "true")
	f = fakeTB{}
	Skip(&f, "needs %v", reason)
	if !strings.Contains(f.failed, "run as root") {
		t.Errorf("with CI=true: %+v", f)
	}
}
