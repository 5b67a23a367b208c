package sched

import (
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
)

// frame puts bytes and hex strings (blanks ignored) together behind two MAC
// addresses.
func frame(parts ...any) []byte {
	b := make([]byte, 12)
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			h, err := hex.DecodeString(strings.ReplaceAll(p, " ", ""))
			if err != nil {
				panic(err) // a typing error in the test
			}
			b = append(b, h...)
		case []byte:
			b = append(b, p...)
		}
	}
	return b
}

// ip4 is an IPv4 header for payload bytes, with options words of options.
func ip4(proto, tos uint8, frag uint16, options, payload int) []byte {
	b := make([]byte, 20+4*options)
	b[0], b[1], b[8], b[9] = 0x40|uint8(5+options), tos, 64, proto
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)+payload))
	binary.BigEndian.PutUint16(b[6:], frag)
	return append([]byte{0x08, 0x00}, b...)
}

func ip6(next, class uint8, payload int) []byte {
	b := make([]byte, 40)
	binary.BigEndian.PutUint16(b, 0x6000|uint16(class)<<4)
	binary.BigEndian.PutUint16(b[4:], uint16(payload))
	b[6], b[7] = next, 64
	return append([]byte{0x86, 0xdd}, b...)
}

// tcp is a TCP header with words of options and payload bytes behind it.
func tcp(flags uint8, options, payload int) []byte {
	b := make([]byte, 20+4*options+payload)
	binary.BigEndian.PutUint16(b, 40000)
	binary.BigEndian.PutUint16(b[2:], 179)
	b[12], b[13] = uint8(5+options)<<4, flags
	return b
}

const (
	fin, syn, rst, psh, ack = 1, 2, 4, 8, 16
	opts                    = "2c00010400000000" // destination options before a fragment header
)

type classCase struct {
	name  string
	frame []byte
	want  bool
}

// synAckCases are frames and whether the rule for SYN and pure ACK prefers them.
func synAckCases() []classCase {
	seg := func(flags uint8, options, payload int) []byte {
		t := tcp(flags, options, payload)
		return frame(ip4(6, 0, 0, 0, len(t)), t)
	}
	t0 := tcp(ack, 0, 0)
	pad := make([]byte, 6)
	return []classCase{
		{"syn", seg(syn, 5, 0), true},
		{"syn ack", seg(syn|ack, 5, 0), true},
		{"pure ack", seg(ack, 0, 0), true},
		{"pure ack with time stamps", seg(ack, 3, 0), true},
		{"ack with push and no payload", seg(ack|psh, 0, 0), true},
		{"ack with 1 byte", seg(ack, 0, 1), false},
		{"syn with payload", seg(syn, 0, 10), false},
		{"fin ack", seg(fin|ack, 0, 0), false},
		{"rst", seg(rst, 0, 0), false},
		{"rst ack", seg(rst|ack, 0, 0), false},
		{"no flags", seg(0, 0, 0), false},
		{"padded to 60", frame(ip4(6, 0, 0, 0, 20), t0, pad), true},
		{"6 bytes of payload", frame(ip4(6, 0, 0, 0, 26), t0, pad), false},
		{"ip options", frame(ip4(6, 0, 0, 3, 20), make([]byte, 0), t0), true},
		{"first fragment", frame(ip4(6, 0, 0x2000, 0, 20), t0), true},
		{"later fragment", frame(ip4(6, 0, 0x2001, 0, 20), t0), false},
		{"last fragment", frame(ip4(6, 0, 0x0001, 0, 20), t0), false},
		{"do not fragment", frame(ip4(6, 0, 0x4000, 0, 20), t0), true},
		{"udp", frame(ip4(17, 0, 0, 0, 20), t0), false},
		{"vlan", frame("8100 0005", ip4(6, 0, 0, 0, 20), t0), true},
		{"qinq", frame("88a8 0005 8100 0006", ip4(6, 0, 0, 0, 20), t0), true},
		{"five tags", frame("81000001 81000001 81000001 81000001 81000001", ip4(6, 0, 0, 0, 20), t0), false},
		{"length of a super-frame", frame(ip4(6, 0, 0, 0, -20), t0), false},
		{"header offset below 20", frame(ip4(6, 0, 0, 0, 16), "9c4000b3 00000000 00000000 40100000 00000000"), false},
		{"ipv6", frame(ip6(6, 0, 20), t0), true},
		{"ipv6 payload", frame(ip6(6, 0, 21), t0, "00"), false},
		{"ipv6 behind qinq", frame("88a8 0005 8100 0006", ip6(6, 0, 20), t0), true},
		{"ipv6 options", frame(ip6(0, 0, 28), "0600010400000000", t0), true},
		{"ipv6 routing", frame(ip6(43, 0, 44), "0602000100000000 00000000000000000000000000000000", t0), true},
		{"ipv6 first fragment", frame(ip6(44, 0, 28), "0600000100000000", t0), true},
		{"ipv6 later fragment", frame(ip6(44, 0, 28), "0600000900000000", t0), false},
		{"ipv6 options, fragment", frame(ip6(60, 0, 36), opts, "0600000100000000", t0), true},
		{"ipv6 authentication", frame(ip6(51, 0, 44), "0604000000000000 0000000000000000 0000000000000000", t0), true},
		{"ipv6 jumbo", frame(ip6(6, 0, 0), t0), false},
		{"ipv6 eight extensions", frame(ip6(60, 0, 84), ext(8), t0), true},
		{"ipv6 nine extensions", frame(ip6(60, 0, 92), ext(9), t0), false},
		{"authentication", frame(ip4(51, 0, 0, 0, 44), "0604000000000000 0000000000000000 0000000000000000", t0), true},
		{"ip header length below 20", frame("0800 44000028 00000000 40060000 00000000 00000000", t0), false},
		{"ipv6 mobility", frame(ip6(135, 0, 28), "0600000000000000", t0), true},
		{"ipv6 esp", frame(ip6(50, 0, 20), t0), false},
	}
}

// ext is n destination options headers before TCP.
func ext(n int) (b []byte) {
	for i := range n {
		h := []byte{60, 0, 1, 4, 0, 0, 0, 0}
		if i == n-1 {
			h[0] = 6
		}
		b = append(b, h...)
	}
	return b
}

func newClassifier(t testing.TB, o ClassifierOptions) *Classifier {
	t.Helper()
	c, err := NewClassifier(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestClassifySynAck(t *testing.T) {
	on, off := newClassifier(t, ClassifierOptions{SynAck: true}), newClassifier(t, ClassifierOptions{})
	for _, c := range synAckCases() {
		if got := on.Priority(c.frame); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
		if off.Priority(c.frame) {
			t.Errorf("%s: has priority without a rule", c.name)
		}
		// Cut off anywhere, a frame that has no priority does not get any.
		for n := range c.frame {
			if got := on.Priority(c.frame[:n]); got && !c.want {
				t.Errorf("%s: has priority when cut to %d bytes", c.name, n)
			}
		}
	}
}

func TestClassifyRules(t *testing.T) {
	udp := "d903 0035 0008 0000"
	for _, c := range []struct {
		name  string
		o     ClassifierOptions
		frame []byte
		want  bool
	}{
		{"lacp", ClassifierOptions{EtherTypes: []uint16{0x8809}}, frame("8809 01"), true},
		{"arp behind vlan", ClassifierOptions{EtherTypes: []uint16{0x8809, 0x0806}}, frame("8100 0001 0806 0001"), true},
		{"another ethertype", ClassifierOptions{EtherTypes: []uint16{0x8809}}, frame("0806 01"), false},
		{"length", ClassifierOptions{EtherTypes: []uint16{0x8809}}, frame("0026 424203"), false},
		{"dscp 46", ClassifierOptions{DSCP: []uint8{46}}, frame(ip4(17, 46<<2|1, 0, 0, 8), udp), true},
		{"dscp 0", ClassifierOptions{DSCP: []uint8{0}}, frame(ip4(17, 0, 0, 0, 8), udp), true},
		{"dscp of a later fragment", ClassifierOptions{DSCP: []uint8{46}}, frame(ip4(17, 46<<2, 5, 0, 8), udp), true},
		{"dscp 46 of ipv6", ClassifierOptions{DSCP: []uint8{46}}, frame(ip6(17, 46<<2|2, 8), udp), true},
		{"another dscp", ClassifierOptions{DSCP: []uint8{46, 48}}, frame(ip6(17, 47<<2, 8), udp), false},
		{"udp to 53", ClassifierOptions{UDPPorts: []uint16{53}}, frame(ip4(17, 0, 0, 0, 8), udp), true},
		{"udp from 55555", ClassifierOptions{UDPPorts: []uint16{55555}}, frame(ip6(17, 0, 8), udp), true},
		{"udp to 53, tcp wanted", ClassifierOptions{TCPPorts: []uint16{53}}, frame(ip4(17, 0, 0, 0, 8), udp), false},
		{"ports of a later fragment", ClassifierOptions{UDPPorts: []uint16{53}}, frame(ip4(17, 0, 1, 0, 8), udp), false},
		{"tcp to 179 with payload", ClassifierOptions{TCPPorts: []uint16{179}}, frame(ip4(6, 0, 0, 0, 30), tcp(ack, 0, 10)), true},
		{"tcp to 179 cut off", ClassifierOptions{TCPPorts: []uint16{179}}, frame(ip4(6, 0, 0, 0, 30), "9c4000"), false},
	} {
		if got := newClassifier(t, c.o).Priority(c.frame); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	for _, o := range []ClassifierOptions{
		{DSCP: []uint8{64}}, {EtherTypes: []uint16{0x05ff}}, {EtherTypes: []uint16{0x8100}},
		{EtherTypes: []uint16{0x8809, 0}}, {TCPPorts: []uint16{0}}, {UDPPorts: []uint16{1, 0}},
	} {
		if _, err := NewClassifier(o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

// slowClassify is the same decision by way of a list of headers, each a name
// and its bytes to the end of the packet. It walks the headers itself.
func slowClassify(o ClassifierOptions, b []byte) bool {
	type header struct {
		name string
		b    []byte
		rest int // bytes from here to the end of the packet, as the IP header says
	}
	const unknown = -1 << 30
	at := func(b []byte, i int) int { return int(b[i])<<8 | int(b[i+1]) }
	if len(b) < 14 {
		return false
	}
	tags, exts := 0, 0
	link := map[int]string{0x8100: "tag", 0x88a8: "tag", 0x9100: "tag", 0x800: "ip4", 0x86dd: "ip6"}
	ip4 := map[int]string{51: "auth", 6: "tcp", 17: "udp"}
	ip6 := map[int]string{
		0: "ext", 43: "ext", 60: "ext", 135: "ext", 139: "ext", 140: "ext", 44: "frag", 51: "auth", 6: "tcp", 17: "udp",
	}
	proto := ip4
	for h := (header{"tag", b[10:], 0}); ; {
		switch p := h.b; h.name {
		case "tag":
			if tags++; tags > 5 || len(p) < 4 {
				return false
			}
			ether := at(p, 2)
			h = header{link[ether], p[4:], 0}
			if h.name != "tag" && slices.Contains(o.EtherTypes, uint16(ether)) {
				return true
			}
		case "ip4":
			if len(p) < 20 || p[0]/16 != 4 || p[0]%16 < 5 {
				return false
			}
			if slices.Contains(o.DSCP, p[1]/4) {
				return true
			}
			n, total := int(p[0]%16)*4, at(p, 2)
			if total == 0 {
				total = unknown
			} else if total < len(p) {
				p = p[:total]
			}
			if n > len(p) || at(h.b, 6)%8192 != 0 {
				return false
			}
			h = header{ip4[int(h.b[9])], p[n:], total - n}
		case "ip6":
			proto = ip6
			if len(p) < 40 || p[0]/16 != 6 {
				return false
			}
			if slices.Contains(o.DSCP, uint8(at(p, 0)/16%256/4)) {
				return true
			}
			n := at(p, 4)
			if n == 0 && p[6] == 0 {
				n = unknown
			} else if 40+n < len(p) {
				p = p[:40+n]
			}
			h = header{ip6[int(p[6])], p[40:], n}
		case "ext", "frag", "auth":
			if exts++; exts > 8 || len(p) < 8 {
				return false
			}
			n := map[string]int{"ext": 8 + 8*int(p[1]), "frag": 8, "auth": 8 + 4*int(p[1])}[h.name]
			if h.name == "frag" && at(p, 2)/8 != 0 || n > len(p) {
				return false
			}
			h = header{proto[int(p[0])], p[n:], h.rest - n}
		case "tcp", "udp":
			ports := map[string][]uint16{"tcp": o.TCPPorts, "udp": o.UDPPorts}[h.name]
			for i := 0; len(p) >= 4 && i < 4; i += 2 {
				if slices.Contains(ports, uint16(at(p, i))) {
					return true
				}
			}
			if !o.SynAck || h.name == "udp" || len(p) < 20 {
				return false
			}
			n := int(p[12]/16) * 4
			hasSyn, hasAck, hasFin, hasRst := p[13]&2 != 0, p[13]&16 != 0, p[13]&1 != 0, p[13]&4 != 0
			return n >= 20 && n <= len(p) && h.rest == n && (hasSyn || hasAck) && !hasFin && !hasRst
		default:
			return false
		}
	}
}

func FuzzClassifier(f *testing.F) {
	all := ClassifierOptions{
		SynAck: true, DSCP: []uint8{46, 0x30}, EtherTypes: []uint16{0x8809, 0x0806}, TCPPorts: []uint16{179, 22}, UDPPorts: []uint16{53},
	}
	for _, c := range synAckCases() {
		f.Add(c.frame, uint8(1))
		f.Add(c.frame, uint8(31))
	}
	f.Add(frame("8100 0001 0806 0001"), uint8(4))
	f.Add(frame(ip4(17, 46<<2, 0, 0, 8), "d903 0035 0008 0000"), uint8(18))
	var cs [32]*Classifier
	var os [32]ClassifierOptions
	for i := range cs {
		o := all
		o.SynAck = i&1 != 0
		if i&2 == 0 {
			o.DSCP = nil
		}
		if i&4 == 0 {
			o.EtherTypes = nil
		}
		if i&8 == 0 {
			o.TCPPorts = nil
		}
		if i&16 == 0 {
			o.UDPPorts = nil
		}
		os[i], cs[i] = o, newClassifier(f, o)
	}
	f.Fuzz(func(t *testing.T, b []byte, rules uint8) {
		i := rules % 32
		if got, want := cs[i].Priority(b), slowClassify(os[i], b); got != want {
			t.Fatalf("rules %+v, frame %x: %v, want %v", os[i], b, got, want)
		}
	})
}

func BenchmarkClassifier(b *testing.B) {
	c := newClassifier(b, ClassifierOptions{SynAck: true, DSCP: []uint8{46}, EtherTypes: []uint16{0x8809, 0x0806}, UDPPorts: []uint16{53}})
	t := tcp(ack, 3, 1448)
	for _, bc := range []struct {
		name string
		f    []byte
	}{{"data", frame(ip4(6, 0, 0, 0, len(t)), t)}, {"qinq-ipv6-syn", frame("88a8 0005 8100 0006", ip6(6, 0, 40), tcp(syn, 5, 0))}} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if c.Priority(bc.f) {
					n++
				}
			}
		})
	}
}
