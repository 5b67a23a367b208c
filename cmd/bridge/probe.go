package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/caps"
	"github.com/netring/netring/internal/livegen"
	"github.com/netring/netring/internal/netdev"
	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/ring/xdp"
)

// Answers of a probe.
const (
	probeYes     = "yes"
	probeNo      = "no"
	probeUntried = "not tried"
)

// probeReport is what probe --json prints. The keys are stable.
type probeReport struct {
	Type      string         `json:"type"` // "probe"
	Kernel    string         `json:"kernel"`
	Missing   []string       `json:"missing_capabilities"`
	Features  []probeFeature `json:"features"`
	Interface *probeIf       `json:"interface,omitempty"`
}

// probeFeature is one thing that a driver of this project uses.
type probeFeature struct {
	Driver  string `json:"driver"` // "tpacket", "xdp" or "live-frames"
	Feature string `json:"feature"`
	Answer  string `json:"answer"` // "yes", "no" or "not tried"
	Why     string `json:"why,omitempty"`
}

// probeIf is what can be told of an interface by looking.
type probeIf struct {
	Name     string         `json:"name"`
	MTU      int            `json:"mtu"`
	RxQueues int            `json:"rx_queues"`
	Program  uint32         `json:"xdp_program_id"` // 0: none
	Features []probeFeature `json:"features"`
}

func newProbe(stdout io.Writer) *cobra.Command {
	var name string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "probe [-i eth1]",
		Short: "Tell what this kernel, driver and privilege allow",
		Long: `probe tries what each driver needs of the kernel, with sockets and programs that
belong to no interface, and names the capability or setting that is missing. Of
an interface it only tells what the kernel and driver say. Attaching is tried on
a veth pair in network namespaces of its own, where those are allowed. Nothing
is changed, and nothing stays.`,
		Args:          noArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(*cobra.Command, []string) error {
			r, err := probe(name)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(stdout).Encode(r)
			}
			return r.text(stdout)
		},
	}
	cmd.Flags().StringVarP(&name, "interface", "i", "", "interface to look at")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func probe(name string) (*probeReport, error) {
	if name != "" {
		if err := checkInterface(name); err != nil {
			return nil, err
		}
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	r := &probeReport{Type: "probe", Kernel: unix.ByteSliceToString(u.Release[:]), Missing: []string{}}
	for _, c := range caps.Missing(caps.NetRaw, caps.NetAdmin, caps.BPF) {
		r.Missing = append(r.Missing, c.String())
	}
	r.Features = append(r.Features, probeTPACKET()...)
	r.Features = append(r.Features,
		answer("xdp", "socket and shared memory", xdp.ProbeSocket()),
		answer("xdp", "program", xdp.ProbeProgram(false)),
		answer("xdp", "multi-buffer program", xdp.ProbeProgram(true)))
	r.Features = append(r.Features, probeVeth()...)
	r.Features = append(r.Features, answer("live-frames", "run", livegen.Probe()))
	if name != "" {
		var err error
		if r.Interface, err = probeInterface(name); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// answer is yes, or no and why.
func answer(driver, feature string, err error) probeFeature {
	f := probeFeature{Driver: driver, Feature: feature, Answer: probeYes}
	if err != nil {
		f.Answer, f.Why = probeNo, strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return f
}

// probeTPACKET tries the options of packet sockets that are bound to nothing,
// but for fan-out, which needs one on the loopback.
func probeTPACKET() (list []probeFeature) {
	set := func(opt, value int) func(int) error {
		return func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_PACKET, opt, value) }
	}
	const vnetHdrSize = 24 // PACKET_VNET_HDR_SZ
	for _, p := range []struct {
		feature, since string
		try            func(fd int) error
	}{
		{"packet socket", "", func(int) error { return nil }},
		{"frames, version 2", "2.6.27", set(unix.PACKET_VERSION, unix.TPACKET_V2)},
		{"blocks, version 3", "3.2", set(unix.PACKET_VERSION, unix.TPACKET_V3)},
		{"virtio-net header of 10 bytes", "2.6.34", set(unix.PACKET_VNET_HDR, 1)},
		{"virtio-net header of 12 bytes", "6.5", set(vnetHdrSize, 12)},
		{"fan-out", "3.1", fanout},
		{"ignore outgoing", "4.20", set(unix.PACKET_IGNORE_OUTGOING, 1)},
		{"qdisc bypass", "3.14", set(unix.PACKET_QDISC_BYPASS, 1)},
	} {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return append(list, answer("tpacket", p.feature, fmt.Errorf("open packet socket: %w: %s", err, caps.Remedy(caps.NetRaw))))
		}
		err = p.try(fd)
		if errors.Is(err, unix.ENOPROTOOPT) || errors.Is(err, unix.EINVAL) {
			err = fmt.Errorf("%w: needs Linux %s", err, p.since)
		}
		unix.Close(fd)
		list = append(list, answer("tpacket", p.feature, err))
	}
	return list
}

// fanout joins a group of its own, for frames that nobody sends.
func fanout(fd int) error {
	const unique, loopback, nobodys = 0x2000, 1, 0xb588 // ETH_P 88b5, local experimental
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: nobodys, Ifindex: loopback}); err != nil {
		return err
	}
	return unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT, (unix.PACKET_FANOUT_HASH|unique)<<16)
}

// probeVeth opens ports on a veth pair of its own.
func probeVeth() []probeFeature {
	modes := []struct {
		feature string
		o       xdp.Options
	}{
		{"native mode, tried on a veth", xdp.Options{Slots: 64, Attach: xdp.AttachNative}},
		{"generic mode, tried on a veth", xdp.Options{Slots: 64, Attach: xdp.AttachGeneric}},
		{"multi-buffer, tried on a veth", xdp.Options{Slots: 64, MultiBuffer: true}},
	}
	lab, err := netlab.New("a", "b")
	if err == nil {
		defer lab.Close()
		err = lab.Veth("a", "probe0", "b", "probe1", netlab.VethOpts{})
	}
	var list []probeFeature
	for _, m := range modes {
		if err != nil {
			list = append(list, probeFeature{"xdp", m.feature, probeUntried, err.Error()})
			continue
		}
		list = append(list, answer("xdp", m.feature, lab.NS("a").Do(func() error {
			p, err := xdp.Open("probe0", nil, m.o)
			if err != nil {
				return err
			}
			return p.Close()
		})))
	}
	return list
}

// probeInterface looks at an interface.
func probeInterface(name string) (*probeIf, error) {
	d, err := netdev.Look(name)
	if err != nil {
		return nil, fmt.Errorf("probe %s: %w", name, err)
	}
	defer d.Close()
	p := &probeIf{Name: name, MTU: d.MTU, RxQueues: d.RxQueues(), Program: netdev.XDPProgram(d.Index)}
	can, err := netdev.AskXDP(d.Index)
	for _, f := range []struct {
		bit     netdev.XDPFeatures
		feature string
		without string
	}{
		{netdev.XDPBasic | netdev.XDPRedirect, "native mode", "the driver has no XDP: generic mode remains, which is slow"},
		{netdev.XDPZeroCopy, "zero-copy", "the driver has none: frames are copied between it and the shared memory"},
		{netdev.XDPMultiBuffer, "multi-buffer", "the driver does not say so: the MTU is limited to a buffer's"},
		{netdev.XDPXmit, "live frames", "the driver takes no redirected frames, or not now: a veth does when its peer has an XDP program or GRO switched on"},
	} {
		a := probeFeature{Driver: "xdp", Feature: f.feature, Answer: probeYes, Why: "the driver says so"}
		switch {
		case err != nil:
			a.Answer, a.Why = probeUntried, err.Error()
		case can&f.bit != f.bit:
			a.Answer, a.Why = probeNo, f.without
		}
		p.Features = append(p.Features, a)
	}
	if p.Program != 0 {
		p.Features = append(p.Features, probeFeature{"xdp", "attach", probeNo,
			fmt.Sprintf("the interface already has XDP program id %d (bpftool prog show id %[1]d)", p.Program)})
	} else {
		p.Features = append(p.Features, probeFeature{"xdp", "attach", probeUntried, "no program is in the way; trying would change the interface"})
	}
	return p, nil
}

func (r *probeReport) text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Linux %s, missing capabilities: %s\n", r.Kernel, orNone(r.Missing))
	lines(&b, r.Features)
	if i := r.Interface; i != nil {
		fmt.Fprintf(&b, "%s: MTU %d, %d receive queues (a worker for each with AF_XDP)\n", i.Name, i.MTU, i.RxQueues)
		lines(&b, i.Features)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

func lines(b *strings.Builder, list []probeFeature) {
	for _, f := range list {
		fmt.Fprintf(b, "  %-12s %-30s %s", f.Driver, f.Feature, f.Answer)
		if f.Why != "" {
			fmt.Fprintf(b, ": %s", f.Why)
		}
		b.WriteByte('\n')
	}
}
