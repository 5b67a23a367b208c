//go:build linux

package peer

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/bench/internal/bed"
)

// Pktgen is netring's generator and receiver on a port of the DUT.
func (t *Tools) Pktgen(name, port, function string, args ...string) DUT {
	argv := append([]string{"--json", "-i", port, "-f", function}, args...)
	d := DUT{
		Name: name, Count: parsePktgen, Command: "pktgen --cpus DUT " + strings.Join(argv, " "),
		start: func(ctx context.Context, b *bed.Bed, cpu int) (*Proc, error) {
			p, err := Start(b.DUT, cpu, append([]string{t.Path(PktgenName), "-v", "--cpus", strconv.Itoa(cpu)}, argv...)...)
			if err != nil {
				return nil, err
			}
			return p, p.Logs(ctx, "started")
		},
	}
	if err := t.Missing[PktgenName]; err != nil {
		d.Skip = err.Error()
	}
	return d
}

// parsePktgen reads the packets of pktgen's final report.
func parsePktgen(out string) (float64, error) {
	for line := range strings.Lines(out) {
		var r struct {
			Type    string
			Packets float64
		}
		if json.Unmarshal([]byte(line), &r) == nil && r.Type == "final" {
			return r.Packets, nil
		}
	}
	return 0, errors.New("pktgen printed no final report")
}

// Sender is one of the C programs, sending out of d1.
func (t *Tools) Sender(name, program string, size int, args ...string) DUT {
	argv := append([]string{t.Path(program), "-i", "d1", "-l", strconv.Itoa(size)}, args...)
	d := DUT{Name: name, Command: program + " " + strings.Join(argv[1:], " "), start: startOnly(argv...)}
	if err := t.Missing[program]; err != nil {
		d.Skip = err.Error()
	}
	return d
}

// startOnly starts a program that cannot be seen to be ready: the caller waits
// for its packets.
func startOnly(argv ...string) func(context.Context, *bed.Bed, int) (*Proc, error) {
	return func(_ context.Context, b *bed.Bed, cpu int) (*Proc, error) { return Start(b.DUT, cpu, argv...) }
}

// Tcpreplay sends a capture of equal frames over and over, read once.
func (t *Tools) Tcpreplay(name string, size int) DUT {
	file := fmt.Sprintf("frames%d.pcap", size)
	argv := []string{"tcpreplay", "--topspeed", "--preload-pcap", "--loop=0", "--quiet", "--intf1=d1"}
	return DUT{
		Name: name, Skip: Installed("tcpreplay", "tcpreplay"), Command: strings.Join(append(argv, file), " "),
		start: func(ctx context.Context, b *bed.Bed, cpu int) (*Proc, error) {
			if err := os.WriteFile(t.Path(file), capture(frame(size), 1024), 0o644); err != nil {
				return nil, err
			}
			return startOnly(append(argv, t.Path(file))...)(ctx, b, cpu)
		},
	}
}

// Trafgen sends one frame over and over from a transmit ring.
func (t *Tools) Trafgen(name string, size int, args ...string) DUT {
	file := fmt.Sprintf("frames%d.trafgen", size)
	argv := append([]string{"trafgen", "--dev", "d1", "--cpus", "1", "--notouch-irq", "--no-cpu-stats"}, args...)
	return DUT{
		Name: name, Skip: Installed("trafgen", "netsniff-ng"), Command: strings.Join(append(argv, "--conf", file), " "),
		start: func(ctx context.Context, b *bed.Bed, cpu int) (*Proc, error) {
			if err := os.WriteFile(t.Path(file), trafgenConfig(frame(size)), 0o644); err != nil {
				return nil, err
			}
			p, err := Start(b.DUT, cpu, append(argv, "--conf", t.Path(file))...)
			if err != nil {
				return nil, err
			}
			// Its worker moves to core 0 by itself, before it sends.
			return p, errors.Join(p.Sends(ctx, b), p.pinChildren(cpu))
		},
	}
}

// Sends waits until something of the program's has arrived at the sink.
func (p *Proc) Sends(ctx context.Context, b *bed.Bed) error {
	return p.Until(ctx, "packet", func() (bool, error) {
		c, err := b.Counters()
		return err == nil && c["s0"].RxPackets > 0, err
	})
}

// pinChildren puts a program's children on a core.
func (p *Proc) pinChildren(cpu int) error {
	kids, err := p.descendants()
	if err != nil {
		return err
	}
	var set unix.CPUSet
	set.Set(cpu)
	for _, k := range kids {
		err = errors.Join(err, unix.SchedSetaffinity(k.Pid, &set), k.Release())
	}
	return err
}

// frame is the UDP frame that the C programs send (sender.h), for programs that
// take theirs from a file: 10.99.0.1:1024 to 10.99.0.2:9 without UDP checksum.
func frame(size int) []byte {
	f := make([]byte, size)
	copy(f, []byte{2, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 1, 8, 0})
	ip := f[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(ip[2:], uint16(size-14))
	copy(ip[12:], []byte{10, 99, 0, 1, 10, 99, 0, 2})
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
	binary.BigEndian.PutUint16(ip[20:], 1024)
	binary.BigEndian.PutUint16(ip[22:], 9)
	binary.BigEndian.PutUint16(ip[24:], uint16(size-34))
	return f
}

// capture is a pcap file with n times the frame, a microsecond apart.
func capture(f []byte, n int) []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, 0xa1b2c3d4)
	b = le.AppendUint16(le.AppendUint16(b, 2), 4)
	for _, v := range []uint32{0, 0, 65535, 1} {
		b = le.AppendUint32(b, v)
	}
	for i := range n {
		for _, v := range []uint32{0, uint32(i), uint32(len(f)), uint32(len(f))} {
			b = le.AppendUint32(b, v)
		}
		b = append(b, f...)
	}
	return b
}

// trafgenConfig is the frame in trafgen's language.
func trafgenConfig(f []byte) []byte {
	b := []byte("{ ")
	for i, v := range f {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = fmt.Appendf(b, "0x%02x", v)
	}
	return append(b, " }\n"...)
}
