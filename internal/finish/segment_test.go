package finish

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/netring/netring/internal/packet"
	"github.com/netring/netring/ring"
)

// flow describes a super-frame, from which both it and the segments that must
// come of it are built, by another library than what is tested.
type flow struct {
	tags    []uint16 // TPIDs, outermost first
	v6, udp bool
	ip4opt  int // bytes of IPv4 options
	ip6opt  bool
	tcpopt  bool
	size    int // of each segment's payload
	payload []byte
	id      uint16
	seq     uint32
	flags   layers.TCP // FIN, PSH, CWR, ECE, URG
}

func (f *flow) String() string {
	return fmt.Sprintf("tags %x v6 %v udp %v options %d/%v/%v, %d bytes by %d, id %d seq %d",
		f.tags, f.v6, f.udp, f.ip4opt, f.ip6opt, f.tcpopt, len(f.payload), f.size, f.id, f.seq)
}

var (
	srcMAC, dstMAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	src4, dst4     = net.IP{10, 1, 2, 3}, net.IP{192, 168, 255, 254}
	src6, dst6     = net.ParseIP("fd00::1:2:3"), net.ParseIP("fd00::ffff:fffe")
)

// build makes one frame of the flow: with the given part of the payload.
func (f *flow) build(t testing.TB, payload []byte, id uint16, seq uint32, fin, psh, cwr bool) []byte {
	t.Helper()
	etherType := layers.EthernetTypeIPv4
	if f.v6 {
		etherType = layers.EthernetTypeIPv6
	}
	types := make([]layers.EthernetType, 0, len(f.tags)+1)
	for _, tpid := range f.tags {
		types = append(types, layers.EthernetType(tpid))
	}
	types = append(types, etherType)
	ls := []gopacket.SerializableLayer{&layers.Ethernet{SrcMAC: srcMAC, DstMAC: dstMAC, EthernetType: types[0]}}
	for i := range f.tags {
		ls = append(ls, &layers.Dot1Q{VLANIdentifier: uint16(100 + i), Priority: 3, Type: types[i+1]})
	}
	proto := layers.IPProtocolTCP
	if f.udp {
		proto = layers.IPProtocolUDP
	}
	var ip gopacket.NetworkLayer
	if f.v6 {
		h := &layers.IPv6{Version: 6, SrcIP: src6, DstIP: dst6, NextHeader: proto, HopLimit: 64, TrafficClass: 1, FlowLabel: 0x12345}
		ls = append(ls, h)
		if f.ip6opt {
			h.NextHeader = layers.IPProtocolIPv6Destination
			d := &layers.IPv6Destination{Options: []*layers.IPv6DestinationOption{{OptionType: 1, OptionData: make([]byte, 12)}}}
			d.NextHeader = proto
			ls = append(ls, d)
		}
		ip = h
	} else {
		h := &layers.IPv4{Version: 4, IHL: 5, SrcIP: src4, DstIP: dst4, Protocol: proto, TTL: 64, Id: id, TOS: 1, Flags: layers.IPv4DontFragment}
		for range f.ip4opt {
			h.Options = append(h.Options, layers.IPv4Option{OptionType: 1}) // no operation
		}
		ls, ip = append(ls, h), h
	}
	if f.udp {
		h := &layers.UDP{SrcPort: 5000, DstPort: 6000}
		_ = h.SetNetworkLayerForChecksum(ip)
		ls = append(ls, h)
	} else {
		h := &layers.TCP{SrcPort: 5000, DstPort: 6000, Seq: seq, Ack: 77, ACK: true, Window: 500, FIN: fin, PSH: psh, CWR: cwr, ECE: f.flags.ECE}
		if f.tcpopt {
			h.Options = []layers.TCPOption{{OptionType: 1}, {OptionType: 1}, {OptionType: 8, OptionLength: 10, OptionData: make([]byte, 8)}}
		}
		_ = h.SetNetworkLayerForChecksum(ip)
		ls = append(ls, h)
	}
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, append(ls, gopacket.Payload(payload))...); err != nil {
		t.Fatal(err)
	}
	b := bytes.Clone(buf.Bytes())
	l3 := ethLen + tagLen*len(f.tags)
	n := int(binary.BigEndian.Uint16(b[l3+2:]))
	if f.v6 {
		n = ip6Len + int(binary.BigEndian.Uint16(b[l3+4:]))
	}
	return b[:l3+n] // the library pads short frames
}

// super makes the super-frame as a local stack would, checksum unfinished, and
// its header.
func (f *flow) super(t testing.TB) ([]byte, ring.Vnet) {
	t.Helper()
	b := f.build(t, f.payload, f.id, f.seq, f.flags.FIN, f.flags.PSH, f.flags.CWR)
	l3 := ethLen + tagLen*len(f.tags)
	l4, off, hdr := l3+20+f.ip4opt, 16, 20
	if f.v6 {
		l4 = l3 + ip6Len
		if f.ip6opt {
			l4 += 16
		}
	}
	v := ring.Vnet{Flags: ring.VnetNeedCsum, GSOSize: uint16(f.size), GSOType: ring.VnetGSOTCPv4}
	switch {
	case f.udp:
		v.GSOType, off, hdr = ring.VnetGSOUDPL4, 6, udpLen
	case f.v6:
		v.GSOType = ring.VnetGSOTCPv6
	}
	if f.tcpopt && !f.udp {
		hdr += 12
	}
	if f.flags.CWR {
		v.GSOType |= ring.VnetGSOECN
	}
	v.CsumStart, v.CsumOffset, v.HdrLen = uint16(l4), uint16(off), uint16(l4+hdr)
	// The field holds the sum of the pseudo header, not inverted.
	addrs, proto := b[l3+12:l3+20], uint16(protoTCP)
	if f.v6 {
		addrs = b[l3+8 : l3+40]
	}
	if f.udp {
		proto = protoUDP
	}
	binary.BigEndian.PutUint16(b[l4+off:], ^packet.Fold(packet.PseudoSum(addrs, nil, uint8(proto), len(b)-l4)))
	return b, v
}

// segments builds what must come of the super-frame.
func (f *flow) segments(t testing.TB) [][]byte {
	t.Helper()
	var out [][]byte
	for at := 0; at == 0 || at < len(f.payload); at += f.size {
		end := min(at+f.size, len(f.payload))
		first, last := at == 0, end == len(f.payload)
		out = append(out, f.build(t, f.payload[at:end], f.id+uint16(len(out)), f.seq+uint32(at),
			last && f.flags.FIN, last && f.flags.PSH, first && f.flags.CWR))
	}
	return out
}

// randomFlow makes a flow whose super-frame fits into 64 KiB.
func randomFlow(r *rand.Rand) *flow {
	f := &flow{
		v6: r.IntN(2) == 0, udp: r.IntN(2) == 0, tcpopt: r.IntN(2) == 0, ip6opt: r.IntN(3) == 0,
		id: uint16(r.Uint32()), seq: r.Uint32(), size: 1 + r.IntN(1448), ip4opt: 4 * r.IntN(4),
	}
	for range r.IntN(3) {
		f.tags = append(f.tags, []uint16{etherVLAN, etherQinQ, etherQinQ1}[r.IntN(3)])
	}
	f.flags.FIN, f.flags.PSH, f.flags.CWR, f.flags.ECE = r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(2) == 0
	if f.udp {
		f.flags = layers.TCP{}
	}
	f.payload = make([]byte, 1+r.IntN(min(60000, 100*f.size)))
	for i := range f.payload {
		f.payload[i] = byte(r.Uint32())
	}
	return f
}

// cut runs Segments over a frame.
func cut(t testing.TB, frame []byte, v *ring.Vnet) [][]byte {
	t.Helper()
	var s Segments
	if err := s.Init(frame, v); err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for range s.Len() {
		buf := make([]byte, s.MaxLen())
		out = append(out, buf[:s.Next(buf)])
	}
	if n := s.Next(nil); n != 0 {
		t.Errorf("after %d segments there is one more of %d bytes", s.Len(), n)
	}
	return out
}

func compare(t testing.TB, f *flow, got, want [][]byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%v: %d segments, want %d", f, len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("%v: segment %d of %d:\n got %x\nwant %x", f, i, len(got), got[i], want[i])
		}
	}
}

func TestSegmentsReference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		f := randomFlow(r)
		frame, v := f.super(t)
		before := bytes.Clone(frame)
		compare(t, f, cut(t, append(frame, make([]byte, r.IntN(4))...), &v), f.segments(t)) // with padding
		if !bytes.Equal(frame, before) {
			t.Fatal("the super-frame was written to")
		}
		// As received through GRO: checksum complete or not looked at.
		v.Flags = ring.VnetCsumOK
		frame[v.CsumStart+v.CsumOffset] ^= 0x55
		compare(t, f, cut(t, frame, &v), f.segments(t))
	}
}

func TestChecksumReference(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		f := randomFlow(r)
		f.payload = f.payload[:min(len(f.payload), 1400)]
		frame, v := f.super(t)
		v.GSOType, v.GSOSize = ring.VnetGSONone, 0
		want := f.build(t, f.payload, f.id, f.seq, f.flags.FIN, f.flags.PSH, f.flags.CWR)
		if err := Checksum(frame, &v); err != nil {
			t.Fatal(err)
		}
		field := int(v.CsumStart + v.CsumOffset)
		if binary.BigEndian.Uint16(want[field:]) == 0 {
			copy(want[field:], []byte{0xff, 0xff})
		}
		if !bytes.Equal(frame, want) {
			t.Fatalf("%v:\n got %x\nwant %x", f, frame, want)
		}
	}
}

func TestChecksumRefusals(t *testing.T) {
	frame := make([]byte, 60)
	for _, c := range []struct {
		v    ring.Vnet
		want error
	}{
		{ring.Vnet{}, nil},
		{ring.Vnet{Flags: ring.VnetCsumOK, CsumStart: 1000}, nil}, // not asked for
		{ring.Vnet{Flags: ring.VnetNeedCsum, CsumStart: 34, CsumOffset: 24}, nil},
		{ring.Vnet{Flags: ring.VnetNeedCsum, CsumStart: 34, CsumOffset: 25}, ErrMalformed},
		{ring.Vnet{Flags: ring.VnetNeedCsum, CsumStart: 61}, ErrMalformed},
		{ring.Vnet{Flags: ring.VnetNeedCsum, CsumStart: 65535, CsumOffset: 65535}, ErrMalformed},
		{ring.Vnet{Flags: ring.VnetNeedCsum, GSOType: ring.VnetGSOTCPv4}, ErrProtocol},
	} {
		if err := Checksum(frame, &c.v); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v, want %v", c.v, err, c.want)
		}
	}
}

// TestChecksumZero: a sum of zero must not become "no checksum".
func TestChecksumZero(t *testing.T) {
	frame := []byte{0xff, 0xff, 0, 0}
	v := ring.Vnet{Flags: ring.VnetNeedCsum, CsumStart: 0, CsumOffset: 2}
	if err := Checksum(frame, &v); err != nil || frame[2] != 0xff || frame[3] != 0xff {
		t.Errorf("checksum %x, %v, want ffff", frame[2:], err)
	}
}

func TestSegmentsRefusals(t *testing.T) {
	base := func() *flow { return &flow{size: 100, payload: make([]byte, 1000)} }
	v6 := func() *flow { f := base(); f.v6, f.ip6opt = true, true; return f }
	udp := func() *flow { f := base(); f.udp = true; return f }
	for _, c := range []struct {
		name string
		flow *flow
		edit func(b []byte, v *ring.Vnet) []byte
		want error
	}{
		{"UDP fragmentation", udp(), func(b []byte, v *ring.Vnet) []byte { v.GSOType = ring.VnetGSOUDP; return b }, ErrUFO},
		{"unknown type", base(), func(b []byte, v *ring.Vnet) []byte { v.GSOType = 9; return b }, ErrProtocol},
		{"no type", base(), func(b []byte, v *ring.Vnet) []byte { v.GSOType = 0; return b }, ErrProtocol},
		{"size zero", base(), func(b []byte, v *ring.Vnet) []byte { v.GSOSize = 0; return b }, ErrMalformed},
		{"type of the other IP version", base(), func(b []byte, v *ring.Vnet) []byte { v.GSOType = ring.VnetGSOTCPv6; return b }, ErrMalformed},
		{"UDP type for TCP", base(), func(b []byte, v *ring.Vnet) []byte { v.GSOType = ring.VnetGSOUDPL4; return b }, ErrMalformed},
		{"ARP", base(), func(b []byte, v *ring.Vnet) []byte { b[13] = 6; return b }, ErrProtocol},
		{"GRE", base(), func(b []byte, v *ring.Vnet) []byte { b[14+9] = 47; return b }, ErrProtocol},
		{"fragment", base(), func(b []byte, v *ring.Vnet) []byte { b[14+6] = 0x20; return b }, ErrProtocol},
		{"IPv6 fragment", v6(), func(b []byte, v *ring.Vnet) []byte { b[14+40] = 44; return b }, ErrProtocol},
		{"routing header", v6(), func(b []byte, v *ring.Vnet) []byte { b[14+6], b[14+43] = 43, 1; return b }, ErrProtocol},
		{"options past the end", v6(), func(b []byte, v *ring.Vnet) []byte { b[14+41] = 255; return b }, ErrMalformed},
		{"cut short", base(), func(b []byte, v *ring.Vnet) []byte { return b[:len(b)-1] }, ErrMalformed},
		{"cut in the IP header", base(), func(b []byte, v *ring.Vnet) []byte { return b[:20] }, ErrMalformed},
		{"cut in the link header", base(), func(b []byte, v *ring.Vnet) []byte { return b[:10] }, ErrMalformed},
		{"all tags", base(), func(b []byte, v *ring.Vnet) []byte {
			for i := 12; i+1 < len(b); i += 2 {
				b[i], b[i+1] = 0x81, 0
			}
			return b
		}, ErrMalformed},
		{"IP length zero", base(), func(b []byte, v *ring.Vnet) []byte { b[16], b[17] = 0, 0; return b }, ErrMalformed},
		{"IP header of 16", base(), func(b []byte, v *ring.Vnet) []byte { b[14] = 0x44; return b }, ErrMalformed},
		{"IP version", base(), func(b []byte, v *ring.Vnet) []byte { b[14] = 0x65; return b }, ErrMalformed},
		{"TCP header of 16", base(), func(b []byte, v *ring.Vnet) []byte { b[14+20+12] = 0x40; return b }, ErrMalformed},
		{"UDP length", udp(), func(b []byte, v *ring.Vnet) []byte { b[14+20+5]++; return b }, ErrMalformed},
		{"checksum elsewhere", base(), func(b []byte, v *ring.Vnet) []byte { v.CsumStart++; return b }, ErrMalformed},
		{"checksum field elsewhere", base(), func(b []byte, v *ring.Vnet) []byte { v.CsumOffset = 6; return b }, ErrMalformed},
	} {
		b, v := c.flow.super(t)
		b = c.edit(b, &v)
		var s Segments
		if err := s.Init(b, &v); err != c.want {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		} else if s.Len() != 0 || s.Next(make([]byte, 2000)) != 0 {
			t.Errorf("%s: segments after a failure", c.name)
		}
	}
	if Cause(ErrMalformed) != ring.DropMalformed || Cause(ErrUFO) != ring.DropOffload || Cause(ErrProtocol) != ring.DropOffload {
		t.Error("causes of drops")
	}
}
