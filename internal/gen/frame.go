package gen

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/netring/netring/internal/packet"
)

// Proto is what the frames carry.
type Proto uint8

const (
	UDP Proto = iota
	TCP
	ICMP // echo requests, of IPv4 or IPv6
)

// Config describes the frames of a [Builder].
type Config struct {
	DstMAC, SrcMAC [6]byte
	Tags           []uint32 // VLAN tags, outermost first: TPID<<16 | TCI
	Src, Dst       Range
	RandomSrc      bool // addresses and ports at random within the ranges, not in turn
	RandomDst      bool
	Proto          Proto
	TTL            uint8 // 0 means 64
	Sizes          Sizes
	Pattern        []byte // of the payload, repeated; empty means zeros
	Probe          bool   // payload starts with a [Probe]
}

// Builder writes frames. It belongs to one goroutine.
type Builder struct {
	cfg     Config
	head    []byte // headers, complete but for what varies
	l3, l4  int
	payload int
	fill    []byte   // payload of the largest frame
	sums    []uint64 // of fill: sum of its first 2*i bytes, as 16-bit words
	ipSum   uint64   // of the IPv4 header without length, addresses and checksum
	l4Sum   uint64   // of pseudo and transport header without lengths, addresses, ports
	src     cursor
	dst     cursor
	v6      bool
	rnd     uint64
	frame   []byte // the only one there is, if nothing varies
}

// cursor is a position in a Range.
type cursor struct {
	hi, lo       uint64 // first address
	first        uint16 // port
	addrs, ports uint64
	addr, port   uint64
}

func (r *Range) cursor() cursor {
	hi, lo := halves(r.First)
	return cursor{hi: hi, lo: lo, first: r.FirstPort, addrs: r.addrs(), ports: r.ports()}
}

// put4 writes the IPv4 address to b and returns its sum as 16-bit words.
func (c *cursor) put4(b []byte) uint64 {
	a := uint32(c.lo + c.addr)
	binary.BigEndian.PutUint32(b, a)
	return uint64(a>>16 + a&0xffff)
}

// put6 is put4 for IPv6.
func (c *cursor) put6(b []byte) uint64 {
	lo, carry := bits.Add64(c.lo, c.addr, 0)
	hi := c.hi + carry
	binary.BigEndian.PutUint64(b, hi)
	binary.BigEndian.PutUint64(b[8:], lo)
	return words(hi) + words(lo)
}

// words is the sum of the four 16-bit words of x.
func words(x uint64) uint64 { return x>>48 + x>>32&0xffff + x>>16&0xffff + x&0xffff }

// number is the port.
func (c *cursor) number() uint16 { return c.first + uint16(c.port) }

// next moves the cursor: ports first, then addresses; true when it is round.
func (c *cursor) next() bool {
	if c.port++; c.port < c.ports {
		return false
	}
	c.port = 0
	if c.addr++; c.addr < c.addrs {
		return false
	}
	c.addr = 0
	return true
}

// MinSize is the least size of frames with cfg's headers.
func (c *Config) MinSize() int {
	n := 14 + 4*len(c.Tags) + c.ipLen() + c.l4Len()
	if c.Probe {
		n += ProbeLen
	}
	return n
}

func (c *Config) ipLen() int {
	if c.Src.First.Is4() {
		return 20
	}
	return 40
}

func (c *Config) l4Len() int {
	if c.Proto == TCP {
		return 20
	}
	return 8
}

// New makes a builder. Several builders of one config, each with its part and
// the number of parts, share the ranges: part i begins i-th of parts into them.
func New(cfg Config, part, parts int) (*Builder, error) {
	switch {
	case !cfg.Src.First.IsValid() || !cfg.Dst.First.IsValid():
		return nil, errors.New("source and destination addresses are needed")
	case cfg.Src.First.Is4() != cfg.Dst.First.Is4():
		return nil, errors.New("source and destination must be both IPv4 or both IPv6")
	case len(cfg.Tags) > 2:
		return nil, fmt.Errorf("%d VLAN tags: at most 2", len(cfg.Tags))
	case cfg.Sizes.lo < cfg.MinSize() && cfg.Sizes.list == nil || cfg.Sizes.list != nil && 60 < cfg.MinSize():
		return nil, fmt.Errorf("frames of %d bytes are too small: headers need %d", cfg.smallest(), cfg.MinSize())
	}
	b := &Builder{cfg: cfg, rnd: Mix(uint64(part) + 1)}
	b.cfg.Sizes.state = Mix(uint64(part) + 77)
	b.src, b.dst, b.v6 = cfg.Src.cursor(), cfg.Dst.cursor(), cfg.Src.First.Is6()
	start := b.src.addrs * b.src.ports / uint64(parts) * uint64(part)
	b.src.port, b.src.addr = start%b.src.ports, start/b.src.ports
	b.headers()
	b.payloads()
	if cfg.Sizes.Fixed() && !cfg.Probe && b.src.addrs*b.src.ports == 1 && b.dst.addrs*b.dst.ports == 1 {
		f := make([]byte, cfg.Sizes.Max())
		b.Next(f, nil)
		b.frame = f
	}
	return b, nil
}

func (c *Config) smallest() int {
	if c.Sizes.list != nil {
		return 60
	}
	return c.Sizes.lo
}

// Mix scrambles a small number into a seed that is not 0.
func Mix(x uint64) uint64 {
	x *= 0x9e3779b97f4a7c15
	x ^= x >> 32
	return x*0xd6e8feb86659fd93 | 1
}

// headers builds all that does not vary.
func (b *Builder) headers() {
	c := &b.cfg
	h := append(append([]byte(nil), c.DstMAC[:]...), c.SrcMAC[:]...)
	for _, t := range c.Tags {
		h = binary.BigEndian.AppendUint32(h, t)
	}
	b.l3 = len(h) + 2
	b.l4 = b.l3 + c.ipLen()
	b.payload = b.l4 + c.l4Len()
	ttl := c.TTL
	if ttl == 0 {
		ttl = 64
	}
	proto := [...]uint8{packet.ProtoUDP, packet.ProtoTCP, packet.ProtoICMP}[c.Proto]
	if c.Src.First.Is4() {
		h = append(h, 8, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, ttl, proto)
		h = append(h, make([]byte, 10)...)
		b.ipSum = packet.Sum(h[b.l3:b.l3+12], 0)
	} else {
		if c.Proto == ICMP {
			proto = packet.ProtoICMPv6
		}
		h = append(h, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, proto, ttl)
		h = append(h, make([]byte, 32)...)
	}
	h = append(h, make([]byte, c.l4Len())...)
	t := h[b.l4:]
	switch c.Proto {
	case TCP:
		t[12], t[13] = 0x50, 0x10 // 20 bytes, ACK
		binary.BigEndian.PutUint16(t[14:], 0xffff)
	case ICMP:
		t[0] = 8
		if c.Src.First.Is6() {
			t[0] = 128
		}
	}
	b.head = h
	b.l4Sum = packet.Sum(t, 0)
	if c.Proto != ICMP || c.Src.First.Is6() {
		b.l4Sum += uint64(proto) // pseudo header
	}
}

// payloads builds the payload and the sums of its beginnings.
func (b *Builder) payloads() {
	n := b.cfg.Sizes.Max() - b.payload
	b.fill = make([]byte, n)
	if p := b.cfg.Pattern; len(p) != 0 {
		for i := range b.fill {
			b.fill[i] = p[i%len(p)]
		}
	}
	if b.cfg.Probe {
		clear(b.fill[:ProbeLen])
		binary.BigEndian.PutUint32(b.fill, probeMagic)
	}
	b.sums = make([]uint64, n/2+1)
	for i := range n / 2 {
		b.sums[i+1] = b.sums[i] + uint64(binary.BigEndian.Uint16(b.fill[2*i:]))
	}
}

// Next writes the next frame to buf and returns its size; 0 if buf is too
// small. p is written into frames with probes, else ignored.
func (b *Builder) Next(buf []byte, p *Probe) int {
	if b.frame != nil && len(b.frame) <= len(buf) {
		return copy(buf, b.frame)
	}
	n := b.cfg.Sizes.Next()
	if n > len(buf) {
		return 0
	}
	buf = buf[:n]
	copy(buf, b.head)
	copy(buf[b.payload:], b.fill)
	b.vary(buf, p)
	return n
}

// Prime writes to buf what all frames have in common; false if the largest of
// them does not fit.
func (b *Builder) Prime(buf []byte) bool {
	if len(buf) < b.payload+len(b.fill) {
		return false
	}
	if b.frame != nil {
		copy(buf, b.frame)
		return true
	}
	copy(buf, b.head)
	copy(buf[b.payload:], b.fill)
	return true
}

// NextIn is Next for a buffer that was primed and that nobody but NextIn has
// written to since: it writes what differs from frame to frame only.
func (b *Builder) NextIn(buf []byte, p *Probe) int {
	if b.frame != nil {
		return len(b.frame)
	}
	n := b.cfg.Sizes.Next()
	b.vary(buf[:n], p)
	return n
}

// vary completes a frame that has all that does not vary, and moves on.
func (b *Builder) vary(f []byte, p *Probe) {
	body := f[b.payload:]
	sum := b.sums[len(body)/2]
	if len(body)%2 == 1 {
		sum += uint64(b.fill[len(body)-1]) << 8
	}
	if b.cfg.Probe {
		p.put(body)
		sum += packet.Sum(body[4:ProbeLen], 0)
	}
	b.transport(f, sum, b.network(f))
	b.advance()
}

// network writes lengths and addresses, and the checksum of IPv4; it returns the
// sum of the addresses.
func (b *Builder) network(f []byte) (addrs uint64) {
	h := f[b.l3:]
	if b.v6 {
		binary.BigEndian.PutUint16(h[4:], uint16(len(h)-40))
		return b.src.put6(h[8:]) + b.dst.put6(h[24:])
	}
	binary.BigEndian.PutUint16(h[2:], uint16(len(h)))
	addrs = b.src.put4(h[12:]) + b.dst.put4(h[16:])
	binary.BigEndian.PutUint16(h[10:], packet.Fold(b.ipSum+uint64(len(h))+addrs))
	return addrs
}

// transport writes ports, length and checksum; body and addrs are the sums of
// the payload and of the addresses.
func (b *Builder) transport(f []byte, body, addrs uint64) {
	t := f[b.l4:]
	sp, dp := b.src.number(), b.dst.number()
	sum := b.l4Sum + body
	if b.cfg.Proto != ICMP || b.v6 {
		sum += addrs + uint64(len(t))
	}
	switch b.cfg.Proto {
	case ICMP:
		binary.BigEndian.PutUint16(t[4:], sp) // identifier
		binary.BigEndian.PutUint16(t[6:], dp) // sequence number
		binary.BigEndian.PutUint16(t[2:], packet.Fold(sum+uint64(sp)+uint64(dp)))
	case TCP:
		binary.BigEndian.PutUint16(t, sp)
		binary.BigEndian.PutUint16(t[2:], dp)
		binary.BigEndian.PutUint16(t[16:], packet.Fold(sum+uint64(sp)+uint64(dp)))
	default:
		binary.BigEndian.PutUint16(t, sp)
		binary.BigEndian.PutUint16(t[2:], dp)
		binary.BigEndian.PutUint16(t[4:], uint16(len(t)))
		c := packet.Fold(sum + uint64(sp) + uint64(dp) + uint64(len(t)))
		binary.BigEndian.PutUint16(t[6:], packet.UDPChecksum(c))
	}
}

// advance moves on to the next flow: source port, source address, destination
// port, destination address, or at random.
func (b *Builder) advance() {
	round := true
	if b.cfg.RandomSrc {
		b.random(&b.src)
	} else {
		round = b.src.next()
	}
	switch {
	case b.cfg.RandomDst:
		b.random(&b.dst)
	case round:
		b.dst.next()
	}
}

func (b *Builder) random(c *cursor) {
	x := xorshift(&b.rnd)
	c.addr, c.port = x>>16%c.addrs, x%c.ports
}

// Flows is the number of different flows before they repeat; 0 for more than
// 2^63, and for random ones.
func (b *Builder) Flows() uint64 {
	n := b.src.addrs * b.src.ports
	m := b.dst.addrs * b.dst.ports
	if b.cfg.RandomSrc || b.cfg.RandomDst || n > 1<<31 || m > 1<<31 {
		return 0
	}
	return n * m
}

// PayloadOffset is where the payload starts in every frame.
func (b *Builder) PayloadOffset() int { return b.payload }
