package offload

import (
	"errors"
	"strings"
	"testing"

	"github.com/netring/netring/internal/netlab"
	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { netlab.Main(m) }

func features(t *testing.T, ns *netlab.NS, name string) map[string]bool {
	t.Helper()
	var f map[string]bool
	if err := ns.Do(func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		f, err = e.Features(name)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFix(t *testing.T) {
	for _, c := range []struct {
		mode   Mode
		turned []string
		left   int // problems at the other end
	}{
		{ModeVnet, nil, 0},
		{ModePlain, []string{"rx-gro"}, 1},
		{ModeXDP, nil, 1}, // a veth takes no tag out itself
	} {
		lab := netlab.Setup(t, "a", "b")
		lab.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{Offloads: map[string]bool{"rx-gro": true}})
		before := features(t, lab.NS("a"), "a0")
		var change *Change
		var r Report
		if err := lab.NS("a").Do(func() (err error) { change, r, err = Fix("a0", c.mode); return err }); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(change.Turned(), " "); got != strings.Join(c.turned, " ") {
			t.Errorf("%v: turned off %q, want %q", c.mode, got, c.turned)
		}
		during := features(t, lab.NS("a"), "a0")
		for _, name := range c.turned {
			if during[name] {
				t.Errorf("%v: %s is still on", c.mode, name)
			}
		}
		if len(r.Problems) != c.left || r.Command() != "" || r.Driver != "veth" {
			t.Errorf("%v: afterwards %v", c.mode, &r)
		}
		for range 2 {
			if err := change.Restore(); err != nil {
				t.Errorf("%v: %v", c.mode, err)
			}
		}
		for name, was := range before {
			if now := features(t, lab.NS("a"), "a0")[name]; now != was {
				t.Errorf("%v: %s is %v afterwards, was %v", c.mode, name, now, was)
			}
		}
	}
}

func TestFixGone(t *testing.T) {
	lab := netlab.Setup(t, "a", "b")
	lab.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{Offloads: map[string]bool{"rx-gro": true}})
	var change *Change
	if err := lab.NS("a").Do(func() (err error) { change, _, err = Fix("a0", ModePlain); return err }); err != nil {
		t.Fatal(err)
	}
	if err := lab.NS("b").Delete("b0"); err != nil {
		t.Fatal(err)
	}
	if err := change.Restore(); err != nil {
		t.Errorf("of an interface that is gone: %v", err)
	}
	if err := lab.NS("a").Do(func() error { _, _, err := Fix("a0", ModePlain); return err }); !errors.Is(err, unix.ENODEV) {
		t.Errorf("Fix of an interface that is gone: %v", err)
	}
}

func TestJudge(t *testing.T) {
	all := map[string]bool{
		"rx-lro": true, "rx-gro": true, "rx-gro-hw": true, "rx-checksum": true, "rx-vlan-hw-parse": true,
		"rx-vlan-stag-hw-parse": true, "tx-tcp-segmentation": true, "tx-checksum-ip-generic": true, "rx-hashing": true,
	}
	for _, c := range []struct {
		driver  string
		mode    Mode
		on      map[string]bool
		command string
		other   bool
	}{
		{"ixgbe", ModeVnet, all, "ethtool -K p lro off", false},
		{"ixgbe", ModePlain, all, "ethtool -K p lro off gro off rx-gro-hw off", false},
		{"ixgbe", ModeXDP, all, "ethtool -K p lro off rx-gro-hw off rxvlan off rx-vlan-stag-hw-parse off", false},
		{"virtio_net", ModePlain, all, "ethtool -K p lro off gro off rx-gro-hw off rx off", false},
		{"virtio_net", ModeVnet, all, "ethtool -K p lro off", false},
		{"ixgbe", ModePlain, map[string]bool{"tx-tcp-segmentation": true, "rx-gro": false}, "", false},
		{"veth", ModeVnet, map[string]bool{"rx-gro": true}, "", false},
		{"veth", ModePlain, nil, "", true},
		{"veth", ModeXDP, nil, "", true},
		{"tun", ModePlain, nil, "", true},
	} {
		r := judge("p", c.driver, c.mode, c.on)
		if r.Command() != c.command {
			t.Errorf("%s, %v: command %q, want %q", c.driver, c.mode, r.Command(), c.command)
		}
		if r.OK() != (c.command == "" && !c.other) {
			t.Errorf("%s, %v: OK is %v", c.driver, c.mode, r.OK())
		}
		s := r.String()
		if c.command != "" && !strings.Contains(s, "do: "+c.command) || c.other && !strings.Contains(s, "the other end") || !strings.Contains(s, c.driver) {
			t.Errorf("%s, %v: report %q", c.driver, c.mode, s)
		}
	}
}
