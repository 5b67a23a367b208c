//go:build linux

package bed

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/netring/netring/bench/internal/procfs"
	"github.com/netring/netring/internal/netlab"
)

// drop is a program that discards every frame that an interface receives. A
// veth counts in its own rx_packets what such a program takes, so it needs no
// map.
type drop struct {
	prog *ebpf.Program
	link link.Link
}

// dropXDP discards frames before anything is known of them. A veth with an XDP
// program has a NAPI of its own with room for 256 frames, and its peer no
// segmentation offload.
func dropXDP(ns *netlab.NS, name string) (*drop, error) {
	const xdpDrop = 1
	return attach(ns, name, ebpf.XDP, xdpDrop, func(p *ebpf.Program, ifindex int) (link.Link, error) {
		return link.AttachXDP(link.XDPOptions{Program: p, Interface: ifindex, Flags: link.XDPDriverMode})
	})
}

// dropTC discards them at the entry to the stack: for frames with an skb the
// cheapest place on a veth, where XDP has to copy most of them first.
func dropTC(ns *netlab.NS, name string) (*drop, error) {
	const tcxDrop = 2
	return attach(ns, name, ebpf.SchedCLS, tcxDrop, func(p *ebpf.Program, ifindex int) (link.Link, error) {
		return link.AttachTCX(link.TCXOptions{Program: p, Interface: ifindex, Attach: ebpf.AttachTCXIngress})
	})
}

func attach(ns *netlab.NS, name string, kind ebpf.ProgramType, verdict int32, to func(*ebpf.Program, int) (link.Link, error)) (*drop, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("allow locked memory for BPF: %w", err)
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "bench_drop", Type: kind, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, verdict), asm.Return()},
	})
	if err != nil {
		return nil, fmt.Errorf("load the sink (it needs root): %w", err)
	}
	d := &drop{prog: prog}
	err = ns.Do(func() error {
		ifi, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		d.link, err = to(prog, ifi.Index)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("attach the %v sink to %s: %w", kind, name, err), prog.Close())
	}
	return d, nil
}

// ThreadSink has a sink that drops by XDP receive in a kernel thread, on a core
// of its own, as the far end of a wire does: not in the sender's time.
func (b *Bed) ThreadSink(name string, cpu int) error {
	if _, err := b.Sink.Exec("unshare", "--mount", "sh", "-c", "mount -t sysfs sysfs /sys && echo 1 > /sys/class/net/"+name+"/threaded"); err != nil {
		return fmt.Errorf("threaded NAPI: %w", err)
	}
	all, err := procfs.Tasks()
	if err != nil {
		return err
	}
	var set unix.CPUSet
	set.Set(cpu)
	found := false
	for pid, t := range all {
		if t.Kernel() && strings.HasPrefix(t.Name, "napi/"+name+"-") {
			if err := unix.SchedSetaffinity(pid, &set); err != nil {
				return fmt.Errorf("pin %s: %w", t.Name, err)
			}
			found = true
		}
	}
	if !found {
		return fmt.Errorf("threaded NAPI: no thread for %s", name)
	}
	return nil
}

func (d *drop) Close() error { return errors.Join(d.link.Close(), d.prog.Close()) }
