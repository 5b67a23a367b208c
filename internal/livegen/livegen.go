// Package livegen generates packets inside of the kernel: BPF_PROG_RUN in live-
// frames mode runs an XDP program over and over on pages that already hold the
// frame and sends each through an interface, without an skb. The program is
// assembled here for the headers asked for; it writes what varies from a
// counter and finishes the checksums.
//
// It needs Linux 5.18, CAP_BPF and CAP_NET_ADMIN in the initial user namespace,
// and a driver with ndo_xdp_xmit. A veth drops such frames unless its peer has
// NAPI: an XDP program on it, or GRO switched on.
package livegen

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/caps"
	"github.com/netring/netring/ring"
)

// Field is a number in the frame that varies: First + i % Count, big endian, of
// 2 or 4 bytes, at an even offset. Fields are varied like the digits of a
// number, the first one fastest.
type Field struct {
	Off, Size int
	First     uint32
	Count     uint64 // at least 1
	IP        bool   // covered by the IPv4 header checksum
	L4        bool   // covered by the transport checksum
}

// Spec describes the frames.
type Spec struct {
	Frame []byte // the frame with all fields at their first value
	// Sums are the offsets of the checksums, 0 for none, that the program
	// writes; those in Frame are ignored.
	IPSum, L4Sum int
	Fields       []Field
	// Seq and Time are offsets of an 8-byte number and time in the payload, 0
	// for none; the transport checksum covers them.
	Seq, Time int
	Ifindex   int
}

// Generator is a loaded program.
type Generator struct {
	spec  Spec
	state *ebpf.Map
	prog  *ebpf.Program
}

// New loads a program for the frames.
func New(s Spec) (g *Generator, err error) {
	if len(s.Frame) < 14 || len(s.Frame) > 3000 {
		return nil, fmt.Errorf("live frames of %d bytes: must be 14 to 3000", len(s.Frame))
	}
	g = &Generator{spec: s}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
			g = nil
		}
	}()
	g.state, err = ebpf.NewMap(&ebpf.MapSpec{Name: "netring_seq", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return g, hint(fmt.Errorf("create map: %w", err))
	}
	ins, err := s.program(g.state.FD())
	if err != nil {
		return g, err
	}
	g.prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{Name: "netring_gen", Type: ebpf.XDP, License: "BSD", Instructions: ins})
	if err != nil {
		return g, hint(fmt.Errorf("load program: %w", err))
	}
	return g, nil
}

func hint(err error) error {
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w: %s", err, caps.Remedy(caps.BPF, caps.NetAdmin))
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.EINVAL):
		return &ring.UnsupportedError{Feature: "BPF_PROG_RUN with live frames", Since: "5.18", Err: err}
	}
	return err
}

// Probe runs a program that drops one frame, to tell whether this kernel and
// process can generate; no interface sends anything.
func Probe() error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "netring_probe", Type: ebpf.XDP, License: "BSD",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpDrop), asm.Return()}})
	if err != nil {
		return hint(fmt.Errorf("load program: %w", err))
	}
	_, err = prog.Run(&ebpf.RunOptions{Data: make([]byte, 64), Repeat: 1, Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES})
	if err != nil {
		err = hint(fmt.Errorf("run program: %w", err))
	}
	return errors.Join(err, prog.Close())
}

const xdpDrop = 1

// Run sends n frames, or fewer if ctx ends; Sent tells how many. It blocks for as
// long as that takes, in the network namespace of the calling thread. Each call
// sets up memory, and at its end waits until nobody can be using it any more,
// some tens of milliseconds, so few large ones are best.
func (g *Generator) Run(ctx context.Context, n uint32) error {
	start, err := g.Sent()
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer interrupt(ctx, unix.Gettid())()
	for left := n; left != 0 && ctx.Err() == nil; {
		e := testRun(g.prog.FD(), g.spec.Frame, left)
		if e != unix.EINTR {
			if e != 0 {
				return hint(fmt.Errorf("run program: %w", e))
			}
			return nil
		}
		sent, err := g.Sent()
		if err != nil {
			return err
		}
		left = n - uint32(min(sent-start, uint64(n)))
	}
	return nil
}

// interruptEvery is between signals: one that comes before the system call does
// not interrupt it.
const interruptEvery = time.Millisecond

// interrupt sends signals to thread tid from the end of ctx on, until the
// function that it returns has returned. The signal is one that Go's runtime
// sends to threads for purposes of its own, and takes for spurious.
func interrupt(ctx context.Context, tid int) (end func()) {
	over, gone := make(chan struct{}), make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		defer close(gone)
		t := time.NewTicker(interruptEvery)
		defer t.Stop()
		for {
			// The thread is there: it waits for us before it goes.
			_ = unix.Tgkill(unix.Getpid(), tid, unix.SIGURG)
			select {
			case <-over:
				return
			case <-t.C:
			}
		}
	})
	return func() {
		close(over)
		if !unhook() {
			<-gone
		}
	}
}

// batch is how many frames the kernel hands to the driver at once.
const batch = 64

// Sent is how many frames the program has passed to the driver.
func (g *Generator) Sent() (n uint64, err error) {
	return n, g.state.Lookup(uint32(0), &n)
}

// Close unloads the program.
func (g *Generator) Close() error {
	var errs []error
	if g.prog != nil {
		errs = append(errs, g.prog.Close())
	}
	if g.state != nil {
		errs = append(errs, g.state.Close())
	}
	return errors.Join(errs...)
}

// Registers of the program: data and the number of the frame live through it,
// and both sums; R1 to R3 are scratch.
const (
	data  = asm.R6
	seq   = asm.R7
	ipSum = asm.R8
	l4Sum = asm.R9
)

// Offsets in struct xdp_md.
const (
	mdData, mdDataEnd = 0, 4
	timeSlot          = -8 // on the stack
)

// program assembles the program over the state map.
func (s *Spec) program(state int) (asm.Instructions, error) {
	base, err := s.template()
	if err != nil {
		return nil, err
	}
	ins := asm.Instructions{
		asm.LoadMem(data, asm.R1, mdData, asm.Word),
		asm.LoadMem(asm.R2, asm.R1, mdDataEnd, asm.Word),
		asm.Mov.Reg(asm.R3, data),
		asm.Add.Imm(asm.R3, int32(len(s.Frame))),
		asm.JGT.Reg(asm.R3, asm.R2, "short"),
		asm.LoadMapValue(asm.R1, state, 0),
		asm.LoadMem(seq, asm.R1, 0, asm.DWord),
		asm.Mov.Reg(asm.R2, seq),
		asm.Add.Imm(asm.R2, 1),
		asm.StoreMem(asm.R1, 0, asm.R2, asm.DWord),
	}
	if s.Time != 0 {
		ins = append(ins, asm.FnKtimeGetNs.Call(), asm.StoreMem(asm.RFP, timeSlot, asm.R0, asm.DWord))
	}
	// Internet checksums do not depend on byte order, as long as all words are
	// taken the same way: here, as they lie in memory. What no field changes is
	// finished here and written with the headers.
	ip, l4 := s.sumsVary()
	frame := append([]byte(nil), s.Frame...)
	if ip {
		ins = append(ins, asm.LoadImm(ipSum, int64(base.ip), asm.DWord))
	} else if s.IPSum != 0 {
		base.ip.put(frame[s.IPSum:], 0)
	}
	if l4 {
		ins = append(ins, asm.LoadImm(l4Sum, int64(base.l4), asm.DWord))
	} else if s.L4Sum != 0 {
		base.l4.put(frame[s.L4Sum:], 0xffff)
	}
	ins = append(ins, s.headers(frame)...)
	ins = append(ins, asm.Mov.Reg(asm.R2, seq))
	for _, f := range s.Fields {
		if f.Count > 1 {
			ins = append(ins, f.write()...)
		}
	}
	if s.Seq != 0 {
		ins = append(ins, asm.Mov.Reg(asm.R1, seq))
		ins = append(ins, write64(s.Seq)...)
	}
	if s.Time != 0 {
		ins = append(ins, asm.LoadMem(asm.R1, asm.RFP, timeSlot, asm.DWord))
		ins = append(ins, write64(s.Time)...)
	}
	if ip && s.IPSum != 0 {
		ins = append(ins, fold(ipSum)...)
		ins = append(ins, asm.StoreMem(data, int16(s.IPSum), ipSum, asm.Half))
	}
	if l4 && s.L4Sum != 0 {
		ins = append(ins, fold(l4Sum)...)
		ins = append(ins, asm.JNE.Imm(l4Sum, 0, "summed"), asm.Mov.Imm(l4Sum, 0xffff),
			asm.StoreMem(data, int16(s.L4Sum), l4Sum, asm.Half).WithSymbol("summed"))
	}
	return append(ins,
		asm.Mov.Imm(asm.R1, int32(s.Ifindex)),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, 1).WithSymbol("short"), // XDP_DROP
		asm.Return()), nil
}

// headers writes all headers anew: the kernel reuses pages, and whoever received
// the frame may have changed them (taken out a VLAN tag, lowered the TTL).
func (s *Spec) headers(frame []byte) (ins asm.Instructions) {
	end := min(s.l3()+40+20, len(frame))
	for off := 0; off < end; {
		b, size, n := frame[off:], asm.Byte, 1
		var v uint64
		switch {
		case end-off >= 8:
			v, size, n = binary.NativeEndian.Uint64(b), asm.DWord, 8
		case end-off >= 4:
			v, size, n = uint64(binary.NativeEndian.Uint32(b)), asm.Word, 4
		case end-off >= 2:
			v, size, n = uint64(binary.NativeEndian.Uint16(b)), asm.Half, 2
		default:
			v = uint64(b[0])
		}
		ins = append(ins, asm.LoadImm(asm.R1, int64(v), asm.DWord), asm.StoreMem(data, int16(off), asm.R1, size))
		off += n
	}
	return ins
}

// sumsVary says which of the checksums change from frame to frame.
func (s *Spec) sumsVary() (ip, l4 bool) {
	for _, f := range s.Fields {
		ip, l4 = ip || f.IP && f.Count > 1, l4 || f.L4 && f.Count > 1
	}
	return ip, l4 || s.Seq != 0 || s.Time != 0
}

// write varies one field of more than one value: R2 has what is left of the
// frame's number.
func (f *Field) write() (ins asm.Instructions) {
	if f.Count < 1<<31 {
		ins = append(ins, asm.Mov.Reg(asm.R1, asm.R2), asm.Mod.Imm(asm.R1, int32(f.Count)), asm.Div.Imm(asm.R2, int32(f.Count)))
	} else {
		ins = append(ins, asm.LoadImm(asm.R3, int64(f.Count), asm.DWord),
			asm.Mov.Reg(asm.R1, asm.R2), asm.Mod.Reg(asm.R1, asm.R3), asm.Div.Reg(asm.R2, asm.R3))
	}
	ins = append(ins, asm.LoadImm(asm.R3, int64(f.First), asm.DWord), asm.Add.Reg(asm.R1, asm.R3))
	size := asm.Half
	if f.Size == 4 {
		size = asm.Word
	}
	ins = append(ins, asm.HostTo(asm.BE, asm.R1, size), asm.StoreMem(data, int16(f.Off), asm.R1, size))
	if f.IP {
		ins = append(ins, asm.Add.Reg(ipSum, asm.R1))
	}
	if f.L4 {
		ins = append(ins, asm.Add.Reg(l4Sum, asm.R1))
	}
	return ins
}

// write64 stores R1 at off, big endian, and adds it to the transport sum.
func write64(off int) asm.Instructions {
	return asm.Instructions{
		asm.HostTo(asm.BE, asm.R1, asm.DWord),
		asm.Mov.Reg(asm.R3, asm.R1),
		asm.RSh.Imm(asm.R3, 32),
		// Two halves: the offset may not be a multiple of 8.
		asm.StoreMem(data, int16(off), asm.R1, asm.Word),
		asm.StoreMem(data, int16(off+4), asm.R3, asm.Word),
		asm.LSh.Imm(asm.R1, 32),
		asm.RSh.Imm(asm.R1, 32),
		asm.Add.Reg(l4Sum, asm.R1),
		asm.Add.Reg(l4Sum, asm.R3),
	}
}

// fold folds a sum to 16 bits and takes its complement.
func fold(sum asm.Register) (ins asm.Instructions) {
	ins = append(ins, asm.Mov.Reg(asm.R1, sum), asm.RSh.Imm(asm.R1, 32), asm.LSh.Imm(sum, 32), asm.RSh.Imm(sum, 32), asm.Add.Reg(sum, asm.R1))
	for range 3 {
		ins = append(ins, asm.Mov.Reg(asm.R1, sum), asm.RSh.Imm(asm.R1, 16), asm.And.Imm(sum, 0xffff), asm.Add.Reg(sum, asm.R1))
	}
	return append(ins, asm.Xor.Imm(sum, 0xffff))
}

// sums of all that does not vary.
type sums struct{ ip, l4 sum }

// sum is one of 16-bit words, as they lie in memory, not folded.
type sum uint64

// put writes the checksum, with zero in place of 0, which in UDP means that there
// is none.
func (n sum) put(b []byte, zero uint16) {
	for n>>16 != 0 {
		n = n&0xffff + n>>16
	}
	c := ^uint16(n)
	if c == 0 {
		c = zero
	}
	binary.NativeEndian.PutUint16(b, c)
}

// template checks the spec and adds up what does not vary, in memory order.
func (s *Spec) template() (b sums, err error) {
	f := append([]byte(nil), s.Frame...)
	inside := func(off, n int) bool { return off >= 14 && off%2 == 0 && off+n <= len(f) }
	for _, v := range s.Fields {
		if !inside(v.Off, v.Size) || v.Size != 2 && v.Size != 4 || v.Count == 0 || v.Count > 1<<32 {
			return b, fmt.Errorf("field of %d bytes at %d, %d values: out of range", v.Size, v.Off, v.Count)
		}
		if v.Count > 1 {
			clear(f[v.Off : v.Off+v.Size])
		}
	}
	for _, at := range []struct{ off, n int }{{s.Seq, 8}, {s.Time, 8}, {s.IPSum, 2}, {s.L4Sum, 2}} {
		if at.off != 0 {
			if !inside(at.off, at.n) {
				return b, fmt.Errorf("%d bytes at %d: out of range", at.n, at.off)
			}
			clear(f[at.off : at.off+at.n])
		}
	}
	l3 := s.l3()
	add := func(p []byte) (n sum) {
		for len(p) >= 2 {
			n += sum(binary.NativeEndian.Uint16(p))
			p = p[2:]
		}
		if len(p) == 1 {
			n += sum(binary.NativeEndian.Uint16([]byte{p[0], 0}))
		}
		return n
	}
	l4 := l3 + 40
	proto := s.Frame[l3+6]
	addrs := f[l3+8 : l3+40]
	if s.Frame[l3]>>4 == 4 {
		l4, proto, addrs = l3+20, s.Frame[l3+9], f[l3+12:l3+20]
		b.ip = add(f[l3:l4])
	}
	b.l4 = add(f[l4:])
	if proto != 1 { // all but ICMP have a pseudo header
		n := len(f) - l4
		b.l4 += add(addrs) + add([]byte{0, proto, byte(n >> 8), byte(n)})
	}
	return b, nil
}

// l3 is where the network header starts: behind the VLAN tags.
func (s *Spec) l3() int {
	l3 := 14
	for {
		t := binary.BigEndian.Uint16(s.Frame[l3-2:])
		if t != 0x8100 && t != 0x88a8 && t != 0x9100 {
			return l3
		}
		l3 += 4
	}
}
