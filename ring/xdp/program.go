package xdp

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/caps"
	"github.com/netring/netring/internal/netdev"
	"github.com/netring/netring/ring"
)

// program is the redirect program of one interface and its map from queue to
// socket.
type program struct {
	socks  *ebpf.Map
	prog   *ebpf.Program
	link   link.Link
	native bool
}

const (
	mdRxQueue = 16 // offset of rx_queue_index in struct xdp_md
	xdpPass   = 2
)

// instructions: redirect to the socket of the packet's queue, or pass the
// packet on where there is none. The map helper takes the action for a missing
// entry in its flags (Linux 5.3).
func instructions(fd int) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, mdRxQueue, asm.Word),
		asm.LoadMapPtr(asm.R1, fd),
		asm.Mov.Imm(asm.R3, xdpPass),
		asm.FnRedirectMap.Call(),
		asm.Return(),
	}
}

// load loads the program and its map, attached to nothing.
func load(queues int, o *Options) (p *program, err error) {
	// Only kernels before 5.11 count maps against the limit; there the call
	// raises it, and if it may not, creating the map says so.
	_ = rlimit.RemoveMemlock()
	p = &program{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
			p = nil
		}
	}()
	p.socks, err = ebpf.NewMap(&ebpf.MapSpec{Name: "netring_xsks", Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: uint32(queues)})
	if err != nil {
		return p, capHint(fmt.Errorf("create socket map: %w", err))
	}
	spec := &ebpf.ProgramSpec{Name: "netring_xsk", Type: ebpf.XDP, License: "BSD", Instructions: instructions(p.socks.FD())}
	if o.MultiBuffer {
		spec.Flags = unix.BPF_F_XDP_HAS_FRAGS
	}
	if p.prog, err = ebpf.NewProgram(spec); err != nil {
		return p, capHint(fmt.Errorf("load program: %w", err))
	}
	return p, nil
}

// attach loads the program and attaches it to the interface.
func attach(ifindex, queues int, o *Options) (p *program, err error) {
	if p, err = load(queues, o); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
			p = nil
		}
	}()
	modes := []link.XDPAttachFlags{link.XDPDriverMode, link.XDPGenericMode}
	switch o.Attach {
	case AttachNative:
		modes = modes[:1]
	case AttachGeneric:
		modes = modes[1:]
	}
	for _, mode := range modes {
		p.link, err = link.AttachXDP(link.XDPOptions{Program: p.prog, Interface: ifindex, Flags: mode})
		p.native = mode == link.XDPDriverMode
		if err == nil || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
			break
		}
	}
	return p, attachHint(err, ifindex)
}

// attachHint says who holds the hook, or why the driver refused.
func attachHint(err error, ifindex int) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
		if id := netdev.XDPProgram(ifindex); id != 0 {
			return fmt.Errorf("attach program: %w: the interface already has XDP program id %d (bpftool prog show id %[2]d)", err, id)
		}
		return fmt.Errorf("attach program: %w: the interface already has an XDP program", err)
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ERANGE) {
		return fmt.Errorf("attach program: %w: the MTU may be too large for XDP on this driver (lower it, or use multi-buffer)", err)
	}
	return capHint(fmt.Errorf("attach program: %w", err))
}

func capHint(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w: %s", err, caps.Remedy(caps.BPF, caps.NetAdmin))
	}
	if errors.Is(err, ebpf.ErrNotSupported) {
		return &ring.UnsupportedError{Feature: "XDP", Since: "5.11", Err: err}
	}
	return err
}

// detach stops redirection: first the map entries, so that no packet is on its
// way to a socket that is going, then the program.
func (p *program) detach(queues []*queue) error {
	var errs []error
	for _, q := range queues {
		if err := p.socks.Delete(uint32(q.id)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, fmt.Errorf("unmap queue %d: %w", q.id, err))
		}
	}
	return errors.Join(append(errs, p.close())...)
}

func (p *program) close() error {
	var errs []error
	if p.link != nil {
		errs = append(errs, p.link.Close())
	}
	if p.prog != nil {
		errs = append(errs, p.prog.Close())
	}
	if p.socks != nil {
		errs = append(errs, p.socks.Close())
	}
	p.link, p.prog, p.socks = nil, nil, nil
	return errors.Join(errs...)
}
