//go:build linux

package bed

import (
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"

	"github.com/netring/netring/internal/netlab"
)

// drop is an XDP program that discards every frame. A veth counts in its own
// rx_packets what such a program takes, so it needs no map.
type drop struct {
	prog *ebpf.Program
	link link.Link
}

func attachDrop(ns *netlab.NS, name string) (*drop, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("allow locked memory for XDP: %w", err)
	}
	const xdpDrop = 1
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "bench_drop", Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpDrop), asm.Return()},
	})
	if err != nil {
		return nil, fmt.Errorf("load the XDP sink (it needs root): %w", err)
	}
	d := &drop{prog: prog}
	err = ns.Do(func() error {
		ifi, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		d.link, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: ifi.Index, Flags: link.XDPDriverMode})
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("attach the XDP sink to %s: %w", name, err), prog.Close())
	}
	return d, nil
}

func (d *drop) Close() error { return errors.Join(d.link.Close(), d.prog.Close()) }
