package gate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// XDP is a gate at the earliest point there is, before the kernel has made
// anything of the packet. Its program is attached to one interface or to none.
// The attachment is a BPF link: it ends with the process, however that ends.
// Any goroutine may call any method.
type XDP struct {
	prog                     *ebpf.Program
	limits, window, counters *ebpf.Map

	mu     sync.Mutex
	link   link.Link
	native bool
}

// LoadXDP loads the program, attached to nothing and with an unlimited budget.
// The error Is unix.EPERM, and an [*PrivilegeError], where the process may
// not.
func LoadXDP() (g *XDP, err error) {
	// Only kernels before 5.11 count maps against the limit; there the call
	// raises it, and if it may not, creating the map says so.
	_ = rlimit.RemoveMemlock()
	g = &XDP{}
	defer func() {
		if err != nil {
			err = errors.Join(privilege(fmt.Errorf("gate: %w", err)), g.Close())
			g = nil
		}
	}()
	for _, m := range []struct {
		to   **ebpf.Map
		spec ebpf.MapSpec
	}{
		{&g.limits, ebpf.MapSpec{Name: "gate_limits", Type: ebpf.Array, ValueSize: limSize}},
		{&g.window, ebpf.MapSpec{Name: "gate_window", Type: ebpf.Array, ValueSize: winSize}},
		{&g.counters, ebpf.MapSpec{Name: "gate_counters", Type: ebpf.PerCPUArray, ValueSize: cntSize}},
	} {
		m.spec.KeySize, m.spec.MaxEntries = 4, 1
		if *m.to, err = ebpf.NewMap(&m.spec); err != nil {
			return g, fmt.Errorf("create map %s: %w", m.spec.Name, err)
		}
	}
	g.prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "netring_gate", Type: ebpf.XDP, License: "Dual MIT/GPL",
		Instructions: instructions(g.limits.FD(), g.window.FD(), g.counters.FD()),
		// Frames of several buffers (a large MTU) pass too: the program looks
		// at the first bytes only.
		Flags: unix.BPF_F_XDP_HAS_FRAGS,
	})
	if err != nil {
		return g, fmt.Errorf("load program: %w", err)
	}
	return g, g.SetBudget(1<<30, time.Millisecond)
}

// Attach puts the gate before an interface, in the driver if that can, else in
// the kernel's generic hook. It leaves an interface alone that has a program
// already: the error is a [*BusyError] that names it.
func (g *XDP) Attach(ifindex int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.link != nil {
		return errors.New("gate: attached already")
	}
	if err := busy(ifindex); err != nil {
		return err
	}
	var err error
	for _, mode := range []link.XDPAttachFlags{link.XDPDriverMode, link.XDPGenericMode} {
		g.link, err = link.AttachXDP(link.XDPOptions{Program: g.prog, Interface: ifindex, Flags: mode})
		g.native = mode == link.XDPDriverMode
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST):
			// Somebody was faster than our look.
			return errors.Join(busy(ifindex), &BusyError{Interface: ifindex})
		case errors.Is(err, unix.EPERM):
			return privilege(fmt.Errorf("gate: attach to interface %d: %w", ifindex, err))
		}
		g.link = nil
	}
	return fmt.Errorf("gate: attach to interface %d: %w", ifindex, err)
}

// busy says whether an interface has an XDP program.
func busy(ifindex int) error {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return fmt.Errorf("gate: look up interface %d: %w", ifindex, err)
	}
	if x := l.Attrs().Xdp; x != nil && x.Attached {
		return &BusyError{Interface: ifindex, Name: l.Attrs().Name, Program: x.ProgId}
	}
	return nil
}

// Detach takes the gate off the interface, if it is on one.
func (g *XDP) Detach() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.detach()
}

func (g *XDP) detach() error {
	if g.link == nil {
		return nil
	}
	err := g.link.Close()
	g.link = nil
	if err != nil {
		return fmt.Errorf("gate: detach: %w", err)
	}
	return nil
}

// Mode is "native" or "generic" while the gate is attached, else "off".
func (g *XDP) Mode() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.link == nil:
		return "off"
	case g.native:
		return "native"
	}
	return "generic"
}

// SetBudget lets through the given number of packets in each window of time,
// and a few control frames (see [Control]).
func (g *XDP) SetBudget(packets int, window time.Duration) error {
	if err := checkBudget(packets, window); err != nil {
		return err
	}
	var v [limSize]byte
	binary.NativeEndian.PutUint64(v[limWindow:], uint64(window))
	binary.NativeEndian.PutUint64(v[limBudget:], uint64(packets))
	binary.NativeEndian.PutUint64(v[limControl:], Control)
	if err := g.limits.Put(uint32(0), v[:]); err != nil {
		return fmt.Errorf("gate: set budget: %w", err)
	}
	return nil
}

// Counts returns the sums since the program was loaded.
func (g *XDP) Counts() (Counts, error) {
	var perCPU [][]byte
	if err := g.counters.Lookup(uint32(0), &perCPU); err != nil {
		return Counts{}, fmt.Errorf("gate: read counters: %w", err)
	}
	var c Counts
	for _, v := range perCPU {
		control := binary.NativeEndian.Uint64(v[cntControl:])
		c.Passed += binary.NativeEndian.Uint64(v[cntPassed:]) + control
		c.Dropped += binary.NativeEndian.Uint64(v[cntDropped:])
		c.Control += control
	}
	return c, nil
}

// Close detaches the gate and frees it. Idempotent.
func (g *XDP) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := g.detach()
	if g.prog != nil {
		err = errors.Join(err, g.prog.Close())
	}
	for _, m := range []*ebpf.Map{g.limits, g.window, g.counters} {
		if m != nil {
			err = errors.Join(err, m.Close())
		}
	}
	return err
}
