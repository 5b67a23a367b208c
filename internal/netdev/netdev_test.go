//go:build linux

package netdev_test

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/netring/netring/internal/netdev"
	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/ring"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// An interface stays the same under another name; one made later under its
// name is another.
func TestStateOfRenamed(t *testing.T) {
	netlab.NeedNet(t)
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	err := l.NS("a").Do(func() error {
		d, err := netdev.Open("a0", true)
		if err != nil {
			return err
		}
		defer d.Close()
		a0, err := netlink.LinkByName("a0")
		if err != nil {
			return err
		}
		step := func(what string, want error, do ...error) {
			t.Helper()
			if err := errors.Join(do...); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if got := d.State(); !errors.Is(got, want) {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		step("up", nil)
		step("down", ring.ErrLinkDown, netlink.LinkSetDown(a0))
		step("renamed", ring.ErrLinkDown, netlink.LinkSetName(a0, "z0"))
		step("renamed, up", nil, netlink.LinkSetUp(a0))
		other := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a0"}, PeerName: "y0"}
		step("another of its name", nil, netlink.LinkAdd(other))
		step("deleted", ring.ErrGone, netlink.LinkDel(a0))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
