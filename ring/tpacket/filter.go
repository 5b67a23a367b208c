package tpacket

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// ParseFilter reads a classic BPF program as "tcpdump -ddd EXPRESSION" prints
// it: the number of instructions, then four numbers for each (opcode, jump if
// true, jump if false, operand). Everything that tcpdump can express can thus
// be a filter, without libpcap here.
//
// The kernel has taken VLAN tags out of the frames before the filter runs; an
// expression with "vlan" must be compiled for a Linux interface, where tcpdump
// reads the tag from beside the frame.
func ParseFilter(text string) ([]bpf.RawInstruction, error) {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == ',' })
	if len(lines) == 0 {
		return nil, fmt.Errorf("filter: empty: give the output of tcpdump -ddd")
	}
	n, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || n < 1 || n > 4096 || n != len(lines)-1 {
		return nil, fmt.Errorf("filter: first line %q: must be the number of the %d instructions that follow", lines[0], len(lines)-1)
	}
	prog := make([]bpf.RawInstruction, n)
	for i, line := range lines[1:] {
		var in bpf.RawInstruction
		f := strings.Fields(line)
		if len(f) != 4 {
			return nil, fmt.Errorf("filter: instruction %d %q: must be four numbers", i+1, line)
		}
		if _, err := fmt.Sscan(line, &in.Op, &in.Jt, &in.Jf, &in.K); err != nil {
			return nil, fmt.Errorf("filter: instruction %d %q: %w", i+1, line, err)
		}
		prog[i] = in
	}
	return prog, nil
}

// attach sets the socket's filter.
func attach(fd int, prog []bpf.RawInstruction) error {
	code := make([]unix.SockFilter, len(prog))
	for i, in := range prog {
		code[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	f := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &f); err != nil {
		return fmt.Errorf("attach filter of %d instructions: %w", len(prog), err)
	}
	return nil
}

// dropAll is the filter that holds until everything is set up.
func dropAll() []bpf.RawInstruction { return []bpf.RawInstruction{{Op: unix.BPF_RET | unix.BPF_K}} }

// admit replaces the drop-all filter by prog, or by none.
func admit(fd int, prog []bpf.RawInstruction) error {
	if len(prog) != 0 {
		return attach(fd, prog)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0); err != nil {
		return fmt.Errorf("detach filter: %w", err)
	}
	return nil
}
