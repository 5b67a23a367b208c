package packet

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

var (
	macA = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	macB = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	ip4A = net.IP{10, 0, 0, 1}
	ip4B = net.IP{10, 0, 0, 2}
	ip6A = net.ParseIP("2001:db8::1")
	ip6B = net.ParseIP("2001:db8::2")
)

type layer = gopacket.SerializableLayer

// build serializes layers; lengths and checksums are filled in.
func build(t testing.TB, ls ...layer) []byte {
	t.Helper()
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ls...); err != nil {
		t.Fatal(err)
	}
	return append([]byte(nil), buf.Bytes()...)
}

func eth(t layers.EthernetType) layer {
	return &layers.Ethernet{SrcMAC: macA, DstMAC: macB, EthernetType: t}
}

func tag(id uint16, t layers.EthernetType) layer {
	return &layers.Dot1Q{VLANIdentifier: id, Type: t}
}

func v4(p layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 64, TOS: 0xb8, Protocol: p, SrcIP: ip4A, DstIP: ip4B}
}

func v6(p layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, TrafficClass: 0xb8, NextHeader: p, SrcIP: ip6A, DstIP: ip6B}
}

func tcp(network gopacket.NetworkLayer) layer {
	l := &layers.TCP{SrcPort: 1234, DstPort: 80, SYN: true, ACK: true, Options: []layers.TCPOption{{OptionType: 2, OptionLength: 4, OptionData: []byte{5, 180}}}}
	_ = l.SetNetworkLayerForChecksum(network)
	return l
}

func udp(network gopacket.NetworkLayer, dst uint16) *layers.UDP {
	l := &layers.UDP{SrcPort: 1234, DstPort: layers.UDPPort(dst)}
	_ = l.SetNetworkLayerForChecksum(network)
	return l
}

// ext makes an IPv6 extension header of 8*(n+1) bytes.
func ext(next, n byte) gopacket.Payload {
	b := make([]byte, 8*(int(n)+1))
	b[0], b[1] = next, n
	return b
}

func frag6(next byte, offset, more uint16) gopacket.Payload {
	b := []byte{next, 0, 0, 0, 0, 0, 0, 7}
	binary.BigEndian.PutUint16(b[2:], offset<<3|more)
	return b
}

var data = gopacket.Payload("0123456789")

func frames(t testing.TB) map[string][]byte {
	flip := func(b []byte, at int, x byte) []byte { b[at] ^= x; return b }
	four, six := v4(layers.IPProtocolTCP), v6(layers.IPProtocolTCP)
	first, later := v4(layers.IPProtocolUDP), v4(layers.IPProtocolUDP)
	first.Flags, later.FragOffset = layers.IPv4MoreFragments, 100
	in6 := v6(layers.IPProtocolUDP)
	udp4 := v4(layers.IPProtocolUDP)
	vx := gopacket.Payload{8, 0, 0, 0, 0, 0, 42, 0}
	return map[string][]byte{
		"tcp4":      build(t, eth(0x800), four, tcp(four), data),
		"tcp4 vlan": build(t, eth(0x8100), tag(7, 0x800), four, tcp(four), data),
		"tcp4 qinq": build(t, eth(0x88a8), tag(9, 0x8100), tag(7, 0x800), four, tcp(four), data),
		"tcp4 pad":  append(build(t, eth(0x800), four, tcp(four)), 0, 0, 0, 0),
		"tcp6":      build(t, eth(0x86dd), six, tcp(six), data),
		"udp4":      build(t, eth(0x800), udp4, udp(udp4, 53), data),
		"first4":    build(t, eth(0x800), first, udp(udp4, 53), data),
		"later4":    build(t, eth(0x800), later, data),
		"ext6": build(t, eth(0x86dd), v6(0), ext(60, 0), ext(43, 1), ext(51, 2),
			gopacket.Payload{17, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, udp(in6, 53), data),
		"mobile6":    build(t, eth(0x86dd), v6(135), ext(139, 0), ext(140, 1), ext(17, 0), udp(in6, 53), data),
		"first6":     build(t, eth(0x86dd), v6(44), frag6(17, 0, 1), udp(in6, 53), data),
		"later6":     build(t, eth(0x86dd), v6(44), frag6(17, 100, 1), data),
		"atomic6":    build(t, eth(0x86dd), v6(44), frag6(17, 0, 0), udp(in6, 53), data),
		"nonext6":    build(t, eth(0x86dd), v6(59), data),
		"esp6":       build(t, eth(0x86dd), v6(50), data),
		"icmp4":      build(t, eth(0x800), v4(1), &layers.ICMPv4{TypeCode: 0x0800}, data),
		"arp":        build(t, eth(0x806), &layers.ARP{AddrType: 1, Protocol: 0x800, HwAddressSize: 6, ProtAddressSize: 4, SourceHwAddress: macA, SourceProtAddress: ip4A, DstHwAddress: macB, DstProtAddress: ip4B}),
		"llc":        append(build(t, eth(0), data)[:12], 0, 10, 1, 2, 3),
		"version":    flip(build(t, eth(0x800), four, tcp(four), data), 14, 0x30),
		"ihl":        flip(build(t, eth(0x800), four, tcp(four), data), 14, 0x07),
		"tcp length": flip(build(t, eth(0x800), four, tcp(four), data), 46, 0xf0),
		"vxlan":      build(t, eth(0x800), udp4, udp(udp4, 4789), vx, eth(0x86dd), six, tcp(six), data),
		"gre":        build(t, eth(0x800), v4(47), gopacket.Payload{0xb0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2}, four, tcp(four), data),
		"gre teb":    build(t, eth(0x86dd), v6(47), gopacket.Payload{0, 0, 0x65, 0x58}, eth(0x800), four, tcp(four), data),
		"ipip":       build(t, eth(0x800), v4(4), four, tcp(four), data),
		"6in4":       build(t, eth(0x800), v4(41), six, tcp(six), data),
		"geneve":     build(t, eth(0x800), udp4, udp(udp4, 6081), gopacket.Payload{1, 0, 0x65, 0x58, 0, 0, 42, 0, 1, 2, 3, 4}, eth(0x800), four, tcp(four), data),
	}
}

func TestParse(t *testing.T) {
	for name, want := range map[string]Packet{
		"tcp4":      {EtherType: 0x800, Kind: IPv4, TOS: 0xb8, Proto: 6, Flags: SYN | ACK, HasPorts: true, SrcPort: 1234, DstPort: 80, L3: 14, L4: 34, Payload: 58, End: 68, IPLen: 54},
		"tcp4 qinq": {EtherType: 0x800, Tags: 2, TCI: [MaxTags]uint16{9, 7}, Kind: IPv4, TOS: 0xb8, Proto: 6, Flags: SYN | ACK, HasPorts: true, SrcPort: 1234, DstPort: 80, L3: 22, L4: 42, Payload: 66, End: 76, IPLen: 54},
		"tcp4 pad":  {EtherType: 0x800, Kind: IPv4, TOS: 0xb8, Proto: 6, Flags: SYN | ACK, HasPorts: true, SrcPort: 1234, DstPort: 80, L3: 14, L4: 34, Payload: 58, End: 58, IPLen: 44},
		"first4":    {EtherType: 0x800, Kind: IPv4, TOS: 0xb8, Proto: 17, Fragment: FirstFragment, HasPorts: true, SrcPort: 1234, DstPort: 53, L3: 14, L4: 34, Payload: 42, End: 52, IPLen: 38},
		"later4":    {EtherType: 0x800, Kind: IPv4, TOS: 0xb8, Proto: 17, Fragment: LaterFragment, L3: 14, Payload: 34, End: 44, IPLen: 30},
		"ext6":      {EtherType: 0x86dd, Kind: IPv6, TOS: 0xb8, Proto: 17, HasPorts: true, SrcPort: 1234, DstPort: 53, L3: 14, L4: 118, Payload: 126, End: 136, IPLen: 122},
		"mobile6":   {EtherType: 0x86dd, Kind: IPv6, TOS: 0xb8, Proto: 17, HasPorts: true, SrcPort: 1234, DstPort: 53, L3: 14, L4: 86, Payload: 94, End: 104, IPLen: 90},
		"later6":    {EtherType: 0x86dd, Kind: IPv6, TOS: 0xb8, Proto: 17, Fragment: LaterFragment, L3: 14, Payload: 62, End: 72, IPLen: 58},
		"atomic6":   {EtherType: 0x86dd, Kind: IPv6, TOS: 0xb8, Proto: 17, HasPorts: true, SrcPort: 1234, DstPort: 53, L3: 14, L4: 62, Payload: 70, End: 80, IPLen: 66},
		"arp":       {EtherType: 0x806, Kind: ARP, L3: 14, Payload: 42, End: 42},
		"llc":       {EtherType: 10, L3: 14, Payload: 14, End: 17},
		"version":   {EtherType: 0x800, Malformed: true, L3: 14, Payload: 14, End: 68},
	} {
		var p Packet
		f := frames(t)[name]
		if Parse(f, &p); p != want {
			t.Errorf("%s:\n have %+v\n want %+v\n % x", name, p, want, f)
		}
	}
}

// Every prefix of every frame, and every frame with every byte changed, is
// parsed as the second implementation does.
func TestParseModel(t *testing.T) {
	for name, f := range frames(t) {
		for n := range len(f) + 1 {
			compare(t, name, f[:n:n])
		}
		for i := range f {
			for _, x := range []byte{1, 0x10, 0x80, 0xff} {
				f[i] ^= x
				compare(t, name, f)
				f[i] ^= x
			}
		}
	}
}

func compare(t *testing.T, name string, f []byte) {
	t.Helper()
	var p Packet
	Parse(f, &p)
	if want := model(f); p != want {
		t.Fatalf("%s, %d bytes:\n have %+v\n want %+v\n % x", name, len(f), p, want, f)
	}
	for q := p; ; {
		if q.L3 > len(f) || q.L4 > q.Payload || q.Payload > q.End || q.End > len(f) || q.L4 != 0 && q.L4 < q.L3 {
			t.Fatalf("%s: offsets out of order: %+v", name, q)
		}
		if f = Inner(f, &q, &q); f == nil {
			return
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, b := range frames(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) { compare(t, "fuzz", b) })
}

// gopacket finds the same in frames that are whole.
func TestParseGopacket(t *testing.T) {
	for name, f := range frames(t) {
		var p Packet
		if Parse(f, &p); p.Malformed {
			continue
		}
		g := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default)
		var tags int
		for _, l := range g.Layers() {
			if q, ok := l.(*layers.Dot1Q); ok {
				if p.VLAN(tags) != q.VLANIdentifier {
					t.Errorf("%s: tag %d is %d, gopacket has %d", name, tags, p.VLAN(tags), q.VLANIdentifier)
				}
				tags++
			}
		}
		if tags != int(p.Tags) {
			t.Errorf("%s: %d tags, gopacket has %d", name, p.Tags, tags)
		}
		switch l := g.NetworkLayer().(type) {
		case *layers.IPv4:
			if p.Kind != IPv4 || p.TOS != l.TOS || p.IPLen != int(l.Length) || p.Proto != uint8(l.Protocol) {
				t.Errorf("%s: %+v, gopacket has %+v", name, p, l)
			}
		case *layers.IPv6:
			if p.Kind != IPv6 || p.TOS != l.TrafficClass || p.IPLen != 40+int(l.Length) {
				t.Errorf("%s: %+v, gopacket has %+v", name, p, l)
			}
		case nil:
			if p.Kind == IPv4 || p.Kind == IPv6 {
				t.Errorf("%s: %+v, gopacket has no network layer", name, p)
			}
		}
		// gopacket's transport layer is the first that there is, be it in a
		// tunnel, and it does not look into fragments.
		for in := f; !p.HasPorts && in != nil; {
			in = Inner(in, &p, &p)
		}
		switch l := g.TransportLayer().(type) {
		case *layers.TCP:
			if p.SrcPort != uint16(l.SrcPort) || p.DstPort != uint16(l.DstPort) || p.Payload-p.L4 != int(l.DataOffset)*4 {
				t.Errorf("%s: %+v, gopacket has %+v", name, p, l)
			}
		case *layers.UDP:
			if p.SrcPort != uint16(l.SrcPort) || p.DstPort != uint16(l.DstPort) {
				t.Errorf("%s: %+v, gopacket has %+v", name, p, l)
			}
		case nil:
			// 48: an IPv6 header with a fragment header. gopacket does not know
			// the headers of mobility.
			if p.HasPorts && p.Fragment == Whole && p.L4-p.L3 != 48 && name != "mobile6" {
				t.Errorf("%s: %+v, gopacket has no transport layer", name, p)
			}
		}
	}
}

func TestInner(t *testing.T) {
	for _, name := range []string{"vxlan", "gre", "gre teb", "ipip", "6in4", "geneve"} {
		f := frames(t)[name]
		var p Packet
		Parse(f, &p)
		in := Inner(f, &p, &p)
		if in == nil || p.Proto != ProtoTCP || p.SrcPort != 1234 || p.DstPort != 80 || string(in[p.Payload:p.End]) != string(data) {
			t.Errorf("%s: inner packet %+v of %d bytes", name, p, len(in))
		}
		if Inner(in, &p, &p) != nil {
			t.Errorf("%s: there is a third packet", name)
		}
	}
	for _, name := range []string{"tcp4", "udp4", "arp", "later4", "icmp4"} {
		f := frames(t)[name]
		var p Packet
		Parse(f, &p)
		if Inner(f, &p, &p) != nil {
			t.Errorf("%s: there is a packet inside", name)
		}
	}
}

func slowSum(b []byte, s uint64) uint64 {
	for i, x := range b {
		if i%2 == 0 {
			s += uint64(x) << 8
		} else {
			s += uint64(x)
		}
		s = s%0x10000 + s/0x10000
	}
	return s
}

func TestChecksum(t *testing.T) {
	// The example of RFC 1071, section 3.
	if s := Fold(Sum([]byte{0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6, 0xf7}, 0)); s != ^uint16(0xddf2) {
		t.Errorf("RFC 1071: %#x", s)
	}
	// The example of RFC 1624, section 4.
	if s := Update16(0xdd2f, 0x5555, 0x3285); s != 0 {
		t.Errorf("RFC 1624: %#x", s)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 300 {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32()) | byte(-(n & 1)) // many 0xff for carries
		}
		start := r.Uint64() >> (n % 64)
		folded := slowSum(nil, 0)
		for s := start; s != 0; s >>= 16 {
			folded += s & 0xffff
		}
		if have, want := Fold(Sum(b, start)), Fold(slowSum(b, folded)); have != want {
			t.Fatalf("%d bytes: %#x, want %#x", n, have, want)
		}
		if n < 8 {
			continue
		}
		c := Fold(Sum(b, 0))
		before := binary.BigEndian.Uint32(b[4:])
		after := r.Uint32()
		c32 := Update32(c, before, after)
		c16 := Update16(Update16(c, uint16(before>>16), uint16(after>>16)), uint16(before), uint16(after))
		binary.BigEndian.PutUint32(b[4:], after)
		if want := Fold(Sum(b, 0)); c32 != want || c16 != want {
			t.Fatalf("%d bytes: update %#x and %#x, want %#x", n, c32, c16, want)
		}
	}
}

// gopacket has computed the checksums of its frames.
func TestChecksumGopacket(t *testing.T) {
	for _, name := range []string{"tcp4", "tcp6", "udp4"} {
		f := frames(t)[name]
		var p Packet
		Parse(f, &p)
		src, dst := f[p.L3+12:p.L3+16], f[p.L3+16:p.L3+20]
		if p.Kind == IPv6 {
			src, dst = f[p.L3+8:p.L3+24], f[p.L3+24:p.L3+40]
		} else if have, want := IPv4Checksum(f[p.L3:p.L4]), binary.BigEndian.Uint16(f[p.L3+10:]); have != want {
			t.Errorf("%s: header checksum %#x, want %#x", name, have, want)
		}
		// A sum over data with its checksum folds to 0.
		if s := Fold(Sum(f[p.L4:p.End], PseudoSum(src, dst, p.Proto, p.End-p.L4))); s != 0 {
			t.Errorf("%s: %#x", name, s)
		}
	}
	if UDPChecksum(0) != 0xffff || UDPChecksum(7) != 7 {
		t.Error("UDPChecksum")
	}
}

func BenchmarkParse(b *testing.B) {
	for _, name := range []string{"tcp4", "tcp4 qinq", "tcp6", "ext6"} {
		f := frames(b)[name]
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var p Packet
			for b.Loop() {
				Parse(f, &p)
			}
		})
	}
}

func BenchmarkSum(b *testing.B) {
	f := make([]byte, 1460)
	b.SetBytes(int64(len(f)))
	for b.Loop() {
		Sum(f, 0)
	}
}

// FuzzSum compares with the textbook's way, 16 bits at a time.
func FuzzSum(f *testing.F) {
	f.Add([]byte{1, 2, 3}, uint64(0))
	f.Add(bytes.Repeat([]byte{0xff}, 70), ^uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, acc uint64) {
		var want uint64
		for i := 0; i < len(b); i += 2 {
			want += uint64(b[i]) << 8
			if i+1 < len(b) {
				want += uint64(b[i+1])
			}
		}
		got := Fold(Sum(b, acc))
		for ; acc != 0; acc >>= 16 {
			want += acc & 0xffff
		}
		for want > 0xffff {
			want = want>>16 + want&0xffff
		}
		// 0 and 0xffff are the same number.
		if w := ^uint16(want); got != w && !(got|w == 0xffff && got&w == 0) {
			t.Fatalf("checksum %04x, want %04x", got, w)
		}
	})
}
