//go:build linux

package netlab

import (
	"fmt"
	"io"
	"os"
)

// TB is what this package needs of a testing.TB; naming it so keeps the
// testing package out of programs that import this one.
type TB interface {
	Helper()
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Cleanup(func())
}

// Main is for TestMain: it runs the tests where they may make namespaces, in
// this process or once more in a user namespace, and exits. Where that is
// forbidden the tests run all the same, and [NeedNet] skips those that need a
// network.
//
//	func TestMain(m *testing.M) { netlab.Main(m) }
func Main(m interface{ Run() int }) {
	code, again, err := Reexec(false)
	if again {
		if err != nil {
			fmt.Fprintln(os.Stderr, "netlab:", err)
		}
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// NeedNet skips a test where network namespaces are forbidden and says why.
// With CI=true in the environment it fails instead: there, all must run.
func NeedNet(t TB) {
	t.Helper()
	if err := Available(); err != nil {
		Skip(t, "needs network namespaces: %v", err)
	}
}

// NeedRoot skips a test that needs root of the machine: a user namespace is
// not enough for it. This does not fail with CI=true, where the tests run as
// root and as an ordinary user.
func NeedRoot(t TB) {
	t.Helper()
	if !Root() {
		t.Skipf("needs root of the machine; this is uid %d, or root of a user namespace", os.Getuid())
	}
}

// Skip skips a test for want of something in the environment, or fails it with
// CI=true.
func Skip(t TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("CI=true forbids to skip: "+format, args...)
	}
	t.Skipf(format, args...)
}

// Setup is New for a test: it does what NeedNet does, ends the test if the lab
// cannot be made, and closes the lab when the test ends.
func Setup(t TB, names ...string) *Lab {
	t.Helper()
	NeedNet(t)
	lab, err := New(names...)
	if err != nil {
		t.Fatalf("make test network: %v", err)
	}
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Errorf("close test network: %v", err)
		}
	})
	return lab
}

// Open opens a port, or whatever open returns, inside of namespace ns, closes it
// when the test ends, and ends the test if it cannot be opened.
func Open[P io.Closer](t TB, ns *NS, open func() (P, error)) P {
	t.Helper()
	var p P
	if err := ns.Do(func() (err error) {
		p, err = open()
		return err
	}); err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("%v", err)
		}
	})
	return p
}

// Pair makes a veth pair and ends the test if that fails.
func (l *Lab) Pair(t TB, nsA, a, nsB, b string, o VethOpts) {
	t.Helper()
	if err := l.Veth(nsA, a, nsB, b, o); err != nil {
		t.Fatalf("%v", err)
	}
}
