//go:build linux

package peer

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/netring/netring/bench/internal/bed"
)

// DUT is a device under test: something that forwards between d0 and d1, sends
// out of d1, or receives at d0.
type DUT struct {
	Name    string
	Command string // how it is started, for the record
	Skip    string // why it cannot run here, "" if it can
	// RPS has d0's receive softirq on the device's core, whatever the scenario
	// asks: only for forwarders in the kernel, which have no other way there.
	RPS bool
	// Netring is set for ours: its final report can be read.
	Netring bool
	// Count reads the number of packets that it says to have sent or received
	// out of what it printed; nil if it does not tell.
	Count func(stdout string) (float64, error)
	start func(ctx context.Context, b *bed.Bed, cpu int) (*Proc, error)
}

// Start starts it and waits until it is ready. The Proc is nil for one that is
// in the kernel.
func (d *DUT) Start(ctx context.Context, b *bed.Bed, cpu int) (*Proc, error) {
	p, err := d.start(ctx, b, cpu)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", d.Name, err)
	}
	return p, nil
}

// Bridge is netring's bridge between d0 and d1, with further arguments.
func (t *Tools) Bridge(name string, args ...string) DUT {
	return t.BridgeOf(name, []string{"d0", "d1"}, args...)
}

// BridgeOf is netring's bridge between these ports.
func (t *Tools) BridgeOf(name string, ports []string, args ...string) DUT {
	argv := []string{"--json"}
	for _, p := range ports {
		argv = append(argv, "-i", p)
	}
	argv = append(argv, args...)
	return DUT{
		Name: name, Netring: true, Skip: t.Lacks(args...),
		Command: "bridge --cpu DUT " + strings.Join(argv, " "),
		start: func(ctx context.Context, b *bed.Bed, cpu int) (*Proc, error) {
			return t.startBridge(ctx, b, cpu, append([]string{"--cpu", strconv.Itoa(cpu)}, argv...))
		},
	}
}

// Workers is the bridge between d0 and d1 with a worker on each of the cores,
// whichever of them is the DUT's.
func (t *Tools) Workers(name string, cores []int, args ...string) DUT {
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(cores), " ", ","), "[]")
	argv := append([]string{"--json", "-i", "d0", "-i", "d1", "--workers", strconv.Itoa(len(cores)), "--cpu", list}, args...)
	return DUT{
		Name: name, Netring: true, Skip: t.Lacks(append(args, "--workers")...), Command: "bridge " + strings.Join(argv, " "),
		start: func(ctx context.Context, b *bed.Bed, _ int) (*Proc, error) {
			return t.startBridge(ctx, b, Anywhere, argv)
		},
	}
}

// startBridge waits until it says that it forwards: AF_XDP sockets are in no
// table that tells.
func (t *Tools) startBridge(ctx context.Context, b *bed.Bed, cpu int, args []string) (*Proc, error) {
	p, err := Start(b.DUT, cpu, append([]string{t.Path(BridgeName), "-v"}, args...)...)
	if err != nil {
		return nil, err
	}
	return p, p.Logs(ctx, "forwarding")
}

// Loose is the bridge as a user starts it: no more of it is pinned than it pins
// itself. With pin its worker is on the DUT's core, and the threads of Go's
// runtime are where the kernel puts them; without, the worker is too.
func (t *Tools) Loose(name string, pin bool, args ...string) DUT {
	argv := append([]string{"--json", "-i", "d0", "-i", "d1"}, args...)
	d := DUT{Name: name, Netring: true, Skip: t.Lacks(args...), Command: "bridge " + strings.Join(argv, " ")}
	if pin {
		d.Command = "bridge --cpu DUT " + strings.Join(argv, " ")
	}
	d.start = func(ctx context.Context, b *bed.Bed, cpu int) (*Proc, error) {
		all := append([]string{t.Path(BridgeName)}, argv...)
		if pin {
			all = append(all, "--cpu", strconv.Itoa(cpu))
		}
		return startSockets(ctx, b, Anywhere, all...)
	}
	return d
}

// KernelBridge is the kernel's own, with a fixed address table so that it
// neither floods nor learns.
func KernelBridge(name string, rps bool) DUT {
	return DUT{
		Name: name, Command: "ip link add br0 type bridge", RPS: rps, Skip: Installed("bridge", "iproute2"),
		start: func(_ context.Context, b *bed.Bed, _ int) (*Proc, error) {
			for _, line := range []string{
				"ip link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
				"ip link set d0 master br0",
				"ip link set d1 master br0",
				"ip link set br0 up",
				"bridge fdb replace 02:00:00:00:00:01 dev d0 master static",
				"bridge fdb replace 02:00:00:00:00:04 dev d1 master static",
			} {
				f := strings.Fields(line)
				if _, err := b.DUT.Exec(f[0], f[1:]...); err != nil {
					return nil, err
				}
			}
			return nil, nil
		},
	}
}

// Gopacket is the loop that one writes first with gopacket/afpacket.
func (t *Tools) Gopacket(name string, both bool) DUT {
	argv := []string{t.Path(GopacketFwd)}
	if both {
		argv = append(argv, "--both")
	}
	argv = append(argv, "d0", "d1")
	d := DUT{
		Name: name, Command: "gopacketfwd " + strings.Join(argv[1:], " "),
		start: func(ctx context.Context, b *bed.Bed, cpu int) (*Proc, error) {
			return startSockets(ctx, b, cpu, argv...)
		},
	}
	if err := t.Missing[GopacketFwd]; err != nil {
		d.Skip = err.Error()
	}
	return d
}

// VnetFwd is the plain C bridge that passes virtio-net headers on.
func (t *Tools) VnetFwd(name string) DUT {
	d := DUT{
		Name: name, Command: "vnetfwd d0 d1",
		start: func(ctx context.Context, b *bed.Bed, cpu int) (*Proc, error) {
			return startSockets(ctx, b, cpu, t.Path(VnetFwd), "d0", "d1")
		},
	}
	if err := t.Missing[VnetFwd]; err != nil {
		d.Skip = err.Error()
	}
	return d
}

// Netsniff is netsniff-ng's redirection, one way. Its ring size must be given,
// or it asks for gigabytes after the veth's nominal speed; and with its default
// pull interval of 10 us its timer takes longer than the interval.
func Netsniff(name string) DUT {
	argv := strings.Fields("netsniff-ng --in d0 --out d1 -s -Q -A -N -S 8MiB -k 100")
	return DUT{
		Name: name, Command: strings.Join(argv, " "), Skip: Installed("netsniff-ng", "netsniff-ng"),
		start: func(ctx context.Context, b *bed.Bed, cpu int) (*Proc, error) {
			p, err := Start(b.DUT, cpu, argv...)
			if err != nil {
				return nil, err
			}
			// Its sender is bound to no protocol, and not listed as running.
			return p, p.Sockets(ctx, b.DUT, "d0")
		},
	}
}

func startSockets(ctx context.Context, b *bed.Bed, cpu int, argv ...string) (*Proc, error) {
	p, err := Start(b.DUT, cpu, argv...)
	if err != nil {
		return nil, err
	}
	return p, p.Sockets(ctx, b.DUT, "d0", "d1")
}

// None is no forwarder: the source ends at d0, where the stack drops what is
// not addressed to it. It shows what the source can do.
func None(name string) DUT {
	return DUT{Name: name, start: func(context.Context, *bed.Bed, int) (*Proc, error) { return nil, nil }}
}
