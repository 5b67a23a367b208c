package tpacket

import (
	"strings"
	"testing"

	"golang.org/x/net/bpf"
)

// icmp is what "tcpdump -ddd icmp" prints.
const icmp = `6
40 0 0 12
21 0 3 2048
48 0 0 23
21 0 1 1
6 0 0 262144
6 0 0 0
`

func TestParseFilter(t *testing.T) {
	for _, text := range []string{icmp, strings.ReplaceAll(icmp, "\n", ","), strings.ReplaceAll(icmp, "\n", "\r\n")} {
		prog, err := ParseFilter(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		ins, ok := bpf.Disassemble(prog)
		if !ok {
			t.Fatal("instructions that nobody knows")
		}
		vm, err := bpf.NewVM(ins)
		if err != nil {
			t.Fatal(err)
		}
		ping := make([]byte, 60)
		ping[12], ping[14], ping[23] = 8, 0x45, 1
		udp := append([]byte(nil), ping...)
		udp[23] = 17
		if n, err := vm.Run(ping); err != nil || n == 0 {
			t.Errorf("icmp: %d, %v", n, err)
		}
		if n, err := vm.Run(udp); err != nil || n != 0 {
			t.Errorf("udp: %d, %v", n, err)
		}
	}
}

func TestParseFilterRefuses(t *testing.T) {
	for _, text := range []string{
		"", "\n\n", "x\n6 0 0 0", "0", "-1\n6 0 0 0", "2\n6 0 0 0", "1\n6 0 0 0\n6 0 0 0", "5000\n6 0 0 0",
		"1\n6 0 0", "1\n6 0 0 0 0", "1\n6 0 0 4294967296", "1\n65536 0 0 0", "1\n6 256 0 0", "1\n6 a 0 0", "1\n6 -1 0 0", "1x\n6 0 0 0",
	} {
		if prog, err := ParseFilter(text); err == nil {
			t.Errorf("%q gives %v", text, prog)
		}
	}
}

func FuzzParseFilter(f *testing.F) {
	f.Add(icmp)
	f.Add("1\n6 0 0 0")
	f.Fuzz(func(t *testing.T, text string) {
		prog, err := ParseFilter(text)
		if err == nil && (len(prog) == 0 || len(prog) > 4096) {
			t.Fatalf("%d instructions", len(prog))
		}
	})
}
