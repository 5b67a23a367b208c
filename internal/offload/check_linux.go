package offload

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"
)

// Mode is how a port's frames are carried.
type Mode uint8

const (
	// ModeVnet: AF_PACKET with the virtio-net header, in and out of the
	// bridge. Unfinished checksums and super-frames cross as they are.
	ModeVnet Mode = iota
	// ModePlain: AF_PACKET without the header. Frames must be complete.
	ModePlain
	// ModeXDP: AF_XDP. Frames must be complete and carry their VLAN tags.
	ModeXDP
)

func (m Mode) String() string {
	switch m {
	case ModeVnet:
		return "AF_PACKET with virtio-net header"
	case ModePlain:
		return "AF_PACKET without virtio-net header"
	}
	return "AF_XDP"
}

// Problem is one thing about a port that breaks traffic in its mode.
type Problem struct {
	// Feature that is on and must be off, by the kernel's name; empty for
	// what cannot be changed at this end.
	Feature string
	// Short is its name to ethtool -K.
	Short string
	Why   string
	// Remedy is for what must be changed elsewhere; empty otherwise.
	Remedy string
}

// Report is what [Check] found.
type Report struct {
	Port     string
	Driver   string
	Mode     Mode
	Problems []Problem
}

// OK reports whether nothing is in the way.
func (r *Report) OK() bool { return len(r.Problems) == 0 }

// Command is the line that switches off what is in the way at this end; empty
// if there is nothing.
func (r *Report) Command() string {
	var b strings.Builder
	for _, p := range r.Problems {
		if p.Feature != "" {
			fmt.Fprintf(&b, " %s off", p.Short)
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "ethtool -K " + r.Port + b.String()
}

// String tells all problems, a line each, and what to do.
func (r *Report) String() string {
	if r.OK() {
		return fmt.Sprintf("%s: no offload is in the way (%s, driver %s)", r.Port, r.Mode, r.Driver)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: offloads break traffic in this mode (%s, driver %s):", r.Port, r.Mode, r.Driver)
	for _, p := range r.Problems {
		what := p.Feature
		if what == "" {
			what = "the other end"
		}
		fmt.Fprintf(&b, "\n  %s: %s", what, p.Why)
		if p.Remedy != "" {
			fmt.Fprintf(&b, "; %s", p.Remedy)
		}
	}
	if c := r.Command(); c != "" {
		fmt.Fprintf(&b, "\n  do: %s", c)
	}
	return b.String()
}

// rule: a feature that must be off in some modes.
type rule struct {
	feature, short string
	why            string
	modes          []Mode
	drivers        []string // empty: all
}

const (
	whyGlue = "received packets are glued together into super-frames larger than the MTU"
	whyLRO  = "received packets are glued together in a way that cannot be undone"
	whyTag  = "VLAN tags are taken out of received frames and lost"
	whySum  = "frames from other guests or the host come with unfinished checksums"
)

// rules of what must be off. In ModeVnet only LRO: unlike GRO it does not keep
// what is needed to cut the packets apart again, and the kernel's own bridge
// switches it off too. What a device does on transmission is harmless in all
// modes, as complete frames are all it gets, or the header tells it.
//
// AF_XDP takes frames before GRO in software sees them.
func rules() []rule {
	return []rule{
		{"rx-lro", "lro", whyLRO, []Mode{ModeVnet, ModePlain, ModeXDP}, nil},
		{"rx-gro", "gro", whyGlue, []Mode{ModePlain}, nil},
		{"rx-gro-hw", "rx-gro-hw", whyGlue, []Mode{ModePlain, ModeXDP}, nil},
		{"rx-checksum", "rx", whySum, []Mode{ModePlain, ModeXDP}, []string{"virtio_net"}},
		{"rx-vlan-hw-parse", "rxvlan", whyTag, []Mode{ModeXDP}, nil},
		{"rx-vlan-stag-hw-parse", "rx-vlan-stag-hw-parse", whyTag, []Mode{ModeXDP}, nil},
	}
}

// judge tells what is in the way of a port with these features on. For a veth
// and a tap the kernel hands over what the other end sent, as it sent it: what
// this end's features are does not matter to that.
func judge(port, driver string, mode Mode, on map[string]bool) Report {
	r := Report{Port: port, Driver: driver, Mode: mode}
	for _, u := range rules() {
		if strings.HasPrefix(u.feature, "rx-vlan") && driver == "veth" {
			continue // the tag is where the other end left it
		}
		if on[u.feature] && slices.Contains(u.modes, mode) && (u.drivers == nil || slices.Contains(u.drivers, driver)) {
			r.Problems = append(r.Problems, Problem{Feature: u.feature, Short: u.short, Why: u.why})
		}
	}
	if mode == ModeVnet {
		return r
	}
	switch driver {
	case "veth":
		off := "tx off"
		if mode == ModeXDP {
			off += " txvlan off"
		}
		r.Problems = append(r.Problems, Problem{
			Why:    "a veth hands over what its peer sent with the checksum unfinished, and super-frames as they are",
			Remedy: "in the peer's namespace do: ethtool -K PEER " + off,
		})
	case "tun":
		r.Problems = append(r.Problems, Problem{
			Why:    "a tap hands over what its user sent, which may be with unfinished checksums and super-frames",
			Remedy: "switch offloads off in the virtual machine or program that has the tap open",
		})
	}
	return r
}

// Check tells which offloads of a port, in the calling thread's network
// namespace, break traffic in the given mode. Features that are fixed off
// count as off.
func Check(port string, mode Mode) (Report, error) {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return Report{}, fmt.Errorf("look at offloads of %s: %w", port, err)
	}
	defer e.Close()
	return check(e, port, mode)
}

func check(e *ethtool.Ethtool, port string, mode Mode) (Report, error) {
	on, err := e.Features(port)
	if err != nil {
		return Report{}, fmt.Errorf("look at offloads of %s: %w", port, err)
	}
	driver, err := e.DriverName(port)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return Report{}, fmt.Errorf("ask for the driver of %s: %w", port, err)
	}
	return judge(port, driver, mode, on), nil
}
