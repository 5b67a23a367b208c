package livegen

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// onesSum is the Internet checksum of the parts, before the complement; 0xffff
// if they contain a right checksum.
func onesSum(parts ...[]byte) uint16 {
	n := uint32(0)
	for _, p := range parts {
		for i, b := range p {
			if i%2 == 0 {
				n += uint32(b) << 8
			} else {
				n += uint32(b)
			}
		}
	}
	for n>>16 != 0 {
		n = n&0xffff + n>>16
	}
	return uint16(n)
}

// packet is a frame of IPv4 or IPv6, tagged or not, of proto, and where its
// network and transport headers are.
func packet(v6, tag bool, proto byte, size int) (f []byte, l3, l4 int) {
	f = []byte("\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01")
	if tag {
		f = append(f, 0x81, 0, 0, 5)
	}
	f = append(f, 8, 0)
	l3 = len(f)
	if v6 {
		f[l3-2], f[l3-1] = 0x86, 0xdd
		l4 = l3 + 40
		f = append(f, make([]byte, size-l3)...)
		f[l3], f[l3+6], f[l3+7] = 0x60, proto, 64
		binary.BigEndian.PutUint16(f[l3+4:], uint16(size-l4))
	} else {
		l4 = l3 + 20
		f = append(f, make([]byte, size-l3)...)
		f[l3], f[l3+8], f[l3+9] = 0x45, 64, proto
		binary.BigEndian.PutUint16(f[l3+2:], uint16(size-l3))
	}
	if proto == 17 {
		binary.BigEndian.PutUint16(f[l4+4:], uint16(size-l4))
	}
	for i := l4 + 20; i < size; i++ {
		f[i] = byte(i)
	}
	return f, l3, l4
}

// Each run of the program writes the frame of its number, whatever is in the
// page: fields at their values, headers as asked for, both checksums right.
func TestProgram(t *testing.T) {
	netlab.NeedRoot(t)
	sumAt := map[byte]int{6: 16, 17: 6, 1: 2}
	for _, v6 := range []bool{false, true} {
		for _, tag := range []bool{false, true} {
			for _, proto := range []byte{17, 6, 1} {
				for _, vary := range []string{"nothing", "port", "address", "all", "number"} {
					if v6 && proto == 1 {
						continue // the sum of ICMP has no pseudo header, ICMPv6's has
					}
					t.Run(fmt.Sprintf("v6=%v,tag=%v,proto=%d,%s", v6, tag, proto, vary), func(t *testing.T) {
						f, l3, l4 := packet(v6, tag, proto, 101)
						s := Spec{Frame: f, L4Sum: l4 + sumAt[proto], Ifindex: 1}
						addr := l3 + 20
						if !v6 {
							s.IPSum, addr = l3+10, l3+12
						}
						ports, addrs := uint64(1), uint64(1)
						switch vary {
						case "port":
							ports = 3
						case "address":
							addrs = 5
						case "all":
							ports, addrs = 3, 1<<32
						case "number":
							s.Seq, s.Time = l4+22, l4+30
						}
						port := l4
						if proto == 1 {
							port = l4 + 4
						}
						binary.BigEndian.PutUint16(f[port:], 0xfffe)
						binary.BigEndian.PutUint32(f[addr:], 0x0a000001)
						s.Fields = []Field{
							{Off: port, Size: 2, First: 0xfffe, Count: ports, L4: true},
							{Off: addr, Size: 4, First: 0x0a000001, Count: addrs, IP: !v6, L4: proto != 1},
						}
						checkRuns(t, &s, l3, l4, v6, proto)
					})
				}
			}
		}
	}
}

func checkRuns(t *testing.T, s *Spec, l3, l4 int, v6 bool, proto byte) {
	g, err := New(*s)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	page := make([]byte, len(s.Frame))
	copy(page[l3+60:], s.Frame[l3+60:])
	for i := range uint64(8) {
		out := make([]byte, len(page)+64)
		run := ebpf.RunOptions{Data: page, DataOut: out}
		const redirect = 4
		if ret, err := g.prog.Run(&run); err != nil || ret != redirect {
			t.Fatalf("run %d: returned %d, %v", i, ret, err)
		}
		out = run.DataOut
		want := append([]byte(nil), s.Frame...)
		left := i
		for _, f := range s.Fields {
			v := uint64(f.First) + left%f.Count
			left /= f.Count
			if f.Size == 2 {
				binary.BigEndian.PutUint16(want[f.Off:], uint16(v))
			} else {
				binary.BigEndian.PutUint32(want[f.Off:], uint32(v))
			}
		}
		if s.Seq != 0 {
			binary.BigEndian.PutUint64(want[s.Seq:], i)
			if now := binary.BigEndian.Uint64(out[s.Time:]); now == 0 {
				t.Errorf("run %d: time 0", i)
			}
			copy(want[s.Time:s.Time+8], out[s.Time:])
		}
		if s.IPSum != 0 {
			if got := onesSum(out[l3:l4]); got != 0xffff {
				t.Errorf("run %d: IPv4 header sums up to %#04x", i, got)
			}
			copy(want[s.IPSum:s.IPSum+2], out[s.IPSum:])
		}
		n := len(out) - l4
		pseudo := append([]byte{0, proto, byte(n >> 8), byte(n)}, out[l3+8:l4]...)
		if !v6 {
			pseudo = append(pseudo[:4], out[l3+12:l4]...)
		}
		if proto == 1 {
			pseudo = nil
		}
		if got := onesSum(pseudo, out[l4:]); got != 0xffff {
			t.Errorf("run %d: transport sums up to %#04x", i, got)
		}
		if proto == 17 && binary.BigEndian.Uint16(out[s.L4Sum:]) == 0 {
			t.Errorf("run %d: UDP without a checksum", i)
		}
		copy(want[s.L4Sum:s.L4Sum+2], out[s.L4Sum:])
		if string(out) != string(want) {
			t.Fatalf("run %d:\n%x, want\n%x", i, out, want)
		}
	}
}

// A UDP checksum that would be 0 is written as 0xffff, be it fixed or not.
func TestZeroSum(t *testing.T) {
	netlab.NeedRoot(t)
	for _, count := range []uint64{1, 2} {
		f, l3, l4 := packet(true, false, 17, 101)
		s := Spec{Frame: f, L4Sum: l4 + 6, Ifindex: 1, Fields: []Field{{Off: l4, Size: 2, Count: count, L4: true}}}
		n := len(f) - l4
		first := ^onesSum([]byte{0, 17, byte(n >> 8), byte(n)}, f[l3+8:])
		s.Fields[0].First = uint32(first)
		binary.BigEndian.PutUint16(f[l4:], first)
		g, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		run := ebpf.RunOptions{Data: f, DataOut: make([]byte, 256)}
		if _, err := g.prog.Run(&run); err != nil {
			t.Fatal(err)
		}
		if got := binary.BigEndian.Uint16(run.DataOut[s.L4Sum:]); got != 0xffff {
			t.Errorf("%d values: checksum %#04x, want 0xffff", count, got)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}

// What cannot be a frame is refused.
func TestSpecRefused(t *testing.T) {
	f, _, l4 := packet(false, false, 17, 60)
	for name, s := range map[string]Spec{
		"field outside":   {Frame: f, Fields: []Field{{Off: 58, Size: 4, Count: 1}}},
		"field at odd":    {Frame: f, Fields: []Field{{Off: 15, Size: 2, Count: 1}}},
		"field of 3":      {Frame: f, Fields: []Field{{Off: l4, Size: 3, Count: 1}}},
		"field, no value": {Frame: f, Fields: []Field{{Off: l4, Size: 2}}},
		"sum outside":     {Frame: f, L4Sum: 60},
		"number outside":  {Frame: f, Seq: 54},
	} {
		if _, err := s.template(); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	for _, n := range []int{13, 3001} {
		if _, err := New(Spec{Frame: make([]byte, n)}); err == nil || !strings.Contains(err.Error(), "must be 14 to 3000") {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// Signals that mean nothing neither end a run nor make it longer; the end of the
// context ends it.
func TestRunInterrupted(t *testing.T) {
	netlab.NeedRoot(t)
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{Offloads: map[string]bool{"rx-gro": true}})
	f, _, _ := packet(false, false, 17, 60)
	err := l.NS("a").Do(func() error {
		ifi, err := net.InterfaceByName("a0")
		if err != nil {
			return err
		}
		g, err := New(Spec{Frame: f, Ifindex: ifi.Index})
		if err != nil {
			return err
		}
		defer g.Close()
		const n = 200_000
		tid, over := unix.Gettid(), make(chan struct{})
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			for range 5 {
				select {
				case <-over:
					return
				case <-time.After(time.Millisecond):
					_ = unix.Tgkill(unix.Getpid(), tid, unix.SIGURG)
				}
			}
		}()
		err = g.Run(t.Context(), n)
		close(over)
		<-gone
		if err != nil {
			return err
		}
		if sent, err := g.Sent(); err != nil || sent != n {
			t.Errorf("sent %d, %v; want %d", sent, err, n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := g.Run(ctx, 1<<31); err != nil {
			return err
		}
		if sent, err := g.Sent(); err != nil || sent <= n || sent >= 1<<31 {
			t.Errorf("sent %d, %v; want some, and not all", sent-n, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
