package gen

import (
	"encoding/binary"

	"github.com/netring/netring/internal/packet"
)

// Probe lies at the start of the payload of numbered frames.
type Probe struct {
	Seq  uint64
	Time int64 // nanoseconds on the sender's clock
	Kind ProbeKind
}

// ProbeKind tells probes apart.
type ProbeKind uint16

const (
	ProbeSeq ProbeKind = iota // one of a numbered stream
	ProbePing
	ProbePong
)

// ProbeLen is the bytes of a probe: magic, kind, number, time.
const ProbeLen = 4 + 2 + 8 + 8

const probeMagic = 0x6e72_7067 // "nrpg"

func (p *Probe) put(body []byte) {
	_ = body[ProbeLen-1]
	binary.BigEndian.PutUint16(body[4:], uint16(p.Kind))
	binary.BigEndian.PutUint64(body[6:], p.Seq)
	binary.BigEndian.PutUint64(body[14:], uint64(p.Time))
}

// FindProbe looks for a probe in a received frame: behind UDP, TCP or ICMP, and
// nowhere else.
func FindProbe(frame []byte, p *Probe) bool {
	var h packet.Packet
	packet.Parse(frame, &h)
	at := h.Payload
	if h.L4 == 0 || h.Fragment != packet.Whole {
		return false
	}
	if h.Proto == packet.ProtoICMP || h.Proto == packet.ProtoICMPv6 {
		at = h.L4 + 8
	}
	if at > len(frame) || len(frame)-at < ProbeLen || binary.BigEndian.Uint32(frame[at:]) != probeMagic {
		return false
	}
	body := frame[at:]
	p.Kind = ProbeKind(binary.BigEndian.Uint16(body[4:]))
	p.Seq = binary.BigEndian.Uint64(body[6:])
	p.Time = int64(binary.BigEndian.Uint64(body[14:]))
	return true
}
