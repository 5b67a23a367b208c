package lagg

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/netring/netring/internal/packet"
)

// Fields are the layers that a flow's hash covers.
type Fields uint8

const (
	L2 Fields = 1 << iota // MAC addresses and VLAN identifiers
	L3                    // IP addresses
	L4                    // ports (and the protocol), never of fragments
)

// Hasher turns a frame into a flow hash: xxHash64 over the seed and the
// fields, so that a sender who does not know the seed cannot choose its member
// and groups one behind the other decide independently. The zero value is
// useless; it needs Fields.
//
// What has none of the layers asked for is told apart by the next lower one:
// without ports (ICMP, any fragment) by IP addresses, without IP (ARP, LLC) by
// MAC addresses.
//
// Two multiplications per 16 bytes instead of xxHash64 measured 1 ns less for
// IPv4 and 5 ns for IPv6, of about 45 for a decision: not worth a hash of our
// own.
type Hasher struct {
	Fields    Fields
	Seed      uint64
	Symmetric bool // both directions of a flow get the same hash
	Inner     bool // of VXLAN, Geneve, GRE and IP in IP, the packet inside
}

// keyLen is the longest key: seed, addresses and tags, addresses, ports and
// protocol.
const keyLen = 8 + 12 + 2*packet.MaxTags + 32 + 5

// Hash returns the flow hash of a frame. It reads no further than the headers
// and never fails: what is not there is left out.
func (h *Hasher) Hash(frame []byte) uint64 {
	var key [keyLen]byte
	var p packet.Packet
	packet.Parse(frame, &p)
	binary.LittleEndian.PutUint64(key[:], h.Seed)
	k := key[:8]
	ip := p.Kind == packet.IPv4 || p.Kind == packet.IPv6
	if (h.Fields&L2 != 0 || !ip) && len(frame) >= 12 {
		k = h.pair(k, frame[6:12], frame[:6])
	}
	if h.Fields&L2 != 0 {
		for i := range p.Tags {
			k = binary.BigEndian.AppendUint16(k, p.VLAN(int(i)))
		}
	}
	if h.Inner {
		for range 2 {
			in := packet.Inner(frame, &p, &p)
			if in == nil {
				break
			}
			frame = in
		}
	}
	ports := h.Fields&L4 != 0 && p.HasPorts && p.Fragment == packet.Whole
	if h.Fields&(L3|L4) != 0 {
		k = h.network(k, frame, &p, ports)
	}
	return xxhash.Sum64(k)
}

// network adds addresses, if they are asked for or there are no ports, and ports. Symmetry is a matter of the pairs as a
// whole: the order of the addresses, or of the ports where those are equal,
// decides for both.
func (h *Hasher) network(k, frame []byte, p *packet.Packet, ports bool) []byte {
	var src, dst []byte
	switch p.Kind {
	case packet.IPv4:
		src, dst = frame[p.L3+12:p.L3+16], frame[p.L3+16:p.L3+20]
	case packet.IPv6:
		src, dst = frame[p.L3+8:p.L3+24], frame[p.L3+24:p.L3+40]
	default:
		return k
	}
	sp, dp := p.SrcPort, p.DstPort
	if h.Symmetric {
		if c := compare(src, dst); c > 0 || c == 0 && sp > dp {
			src, dst, sp, dp = dst, src, dp, sp
		}
	}
	if h.Fields&L3 != 0 || !ports {
		k = append(append(k, src...), dst...)
	}
	if ports {
		if h.Symmetric && h.Fields&L3 == 0 && sp > dp {
			sp, dp = dp, sp // the addresses are not in the hash: nor is their order
		}
		k = binary.BigEndian.AppendUint16(k, sp)
		k = binary.BigEndian.AppendUint16(k, dp)
		k = append(k, p.Proto)
	}
	return k
}

func (h *Hasher) pair(k, src, dst []byte) []byte {
	if h.Symmetric && compare(src, dst) > 0 {
		src, dst = dst, src
	}
	return append(append(k, src...), dst...)
}

// compare is bytes.Compare for the 4 to 16 bytes of an address.
func compare(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return int(a[i]) - int(b[i])
		}
	}
	return 0
}
