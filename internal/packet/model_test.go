package packet

import "slices"

// A second implementation of Parse, slow and written in another manner: a
// reader that gives bytes one after the other and panics at the end of them.

type cutOff struct{}

type reader struct {
	b   []byte
	pos int
}

func (r *reader) u8() int {
	if r.pos >= len(r.b) {
		panic(cutOff{})
	}
	r.pos++
	return int(r.b[r.pos-1])
}

func (r *reader) u16() int { return r.u8()<<8 + r.u8() }

func (r *reader) skip(n int) {
	for range n {
		r.u8()
	}
}

// try runs f and reports whether the bytes were enough.
func try(f func()) (ok bool) {
	defer func() {
		if x := recover(); x != nil {
			if _, is := x.(cutOff); !is {
				panic(x)
			}
			ok = false
		}
	}()
	f()
	return true
}

func model(frame []byte) Packet {
	p := Packet{End: len(frame)}
	r := &reader{b: frame}
	t := 0
	if !try(func() { r.skip(12); t = r.u16() }) {
		p.Malformed = true
		return p
	}
	for (t == 0x8100 || t == 0x88a8 || t == 0x9100) && p.Tags < MaxTags {
		tci, at := 0, r.pos
		next := 0
		if !try(func() { tci, next = r.u16(), r.u16() }) {
			r.pos = at
			p.Malformed = true
			break
		}
		p.TCI[p.Tags], t = uint16(tci), next
		p.Tags++
	}
	p.EtherType, p.L3, p.Payload = uint16(t), r.pos, r.pos
	switch t {
	case 0x800:
		modelIPv4(r, &p)
	case 0x86dd:
		modelIPv6(r, &p)
	case 0x806:
		var w [4]int
		all := try(func() {
			for i := range w {
				w[i] = r.u16()
			}
			r.skip(20)
		})
		if !all {
			p.Malformed = true
		} else if w[0] == 1 && w[1] == 0x800 && w[2] == 0x604 {
			p.Kind, p.Payload, p.End = ARP, r.pos, r.pos
		}
	}
	return p
}

func modelIPv4(r *reader, p *Packet) {
	var ihl, tos, total, frag, proto int
	ok := try(func() {
		first := r.u8()
		if first/16 != 4 || first%16 < 5 {
			panic(cutOff{})
		}
		ihl, tos, total = first%16*4, r.u8(), r.u16()
		r.skip(2)
		frag = r.u16()
		r.skip(1)
		proto = r.u8()
		r.skip(10)
	})
	if !ok {
		p.Malformed = true
		return
	}
	p.Kind, p.TOS, p.Proto, p.IPLen = IPv4, uint8(tos), uint8(proto), total
	if !modelEnd(r, p, total) {
		return
	}
	if !try(func() { r.skip(ihl - 20) }) || p.End < p.L3+20 {
		p.Malformed = true
		return
	}
	p.Payload = r.pos
	if frag%0x2000 != 0 {
		p.Fragment = LaterFragment
		return
	}
	if frag/0x2000%2 == 1 {
		p.Fragment = FirstFragment
	}
	for i := 0; proto == 51; i++ {
		at, next := r.pos, 0
		if i == MaxExtensions && try(func() { r.skip(8) }) {
			return
		}
		r.pos = at
		if !try(func() { next = r.u8(); words := r.u8(); r.skip(2); r.skip(4); r.skip(words * 4) }) {
			p.Malformed = true
			return
		}
		proto = next
		p.Proto, p.Payload = uint8(proto), r.pos
	}
	modelTransport(r, p, proto)
}

// modelEnd cuts the reader off at the end of the packet.
func modelEnd(r *reader, p *Packet, total int) bool {
	if total != 0 {
		if p.L3+total > len(r.b) {
			p.Truncated = true
		} else {
			p.End = p.L3 + total
			r.b = r.b[:p.End]
		}
	}
	if r.pos > p.End {
		p.Malformed = true
		return false
	}
	return true
}

func modelIPv6(r *reader, p *Packet) {
	var first, length, next int
	ok := try(func() {
		first = r.u16()
		if first>>12 != 6 {
			panic(cutOff{})
		}
		r.skip(2)
		length, next = r.u16(), r.u8()
		r.skip(33)
	})
	if !ok {
		p.Malformed = true
		return
	}
	p.Kind, p.TOS, p.Proto = IPv6, uint8(first>>4), uint8(next)
	if length != 0 || next != 0 {
		p.IPLen = 40 + length
	}
	modelEnd(r, p, p.IPLen)
	p.Payload = r.pos
	for i := 0; ; i++ {
		p.Proto = uint8(next)
		if !slices.Contains([]int{0, 43, 44, 51, 60, 135, 139, 140}, next) {
			break
		}
		at, this, offset, more := r.pos, next, 0, 0
		if !try(func() { r.skip(8) }) {
			p.Malformed = true
			return
		}
		if i == MaxExtensions {
			return
		}
		r.pos = at
		ok := try(func() {
			next = r.u8()
			n := r.u8()
			w := r.u16()
			offset, more = w/8, w%2
			r.skip(4)
			switch this {
			case 44:
			case 51:
				r.skip(4 * n)
			default:
				r.skip(8 * n)
			}
		})
		if !ok {
			p.Malformed = true
			return
		}
		p.Payload = r.pos
		if this == 44 && offset != 0 {
			p.Fragment, p.Proto = LaterFragment, uint8(next)
			return
		}
		if this == 44 && more == 1 {
			p.Fragment = FirstFragment
		}
	}
	modelTransport(r, p, next)
}

func modelTransport(r *reader, p *Packet, proto int) {
	p.L4 = r.pos
	size, known := map[int]int{6: 20, 17: 8, 33: 12, 132: 12, 136: 8}[proto]
	if !known {
		return
	}
	var src, dst int
	if try(func() { src, dst = r.u16(), r.u16() }) {
		p.HasPorts, p.SrcPort, p.DstPort = true, uint16(src), uint16(dst)
	}
	r.pos = p.L4
	ok := try(func() {
		switch proto {
		case 6:
			at := r.pos
			r.skip(12)
			n := r.u8() / 16 * 4
			f := r.u8()
			r.skip(6)
			p.Flags = uint8(f)
			r.pos = at
			size = n
			if n < 20 {
				panic(cutOff{})
			}
		case 33:
			at := r.pos
			r.skip(4)
			size = r.u8() * 4
			r.pos = at
			if size < 12 {
				panic(cutOff{})
			}
		}
		r.skip(size)
	})
	if !ok {
		p.Malformed = true
		return
	}
	p.Payload = r.pos
}
