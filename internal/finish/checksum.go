package finish

import (
	"encoding/binary"
	"errors"

	"github.com/netring/netring/internal/packet"
	"github.com/netring/netring/ring"
)

// Why a frame cannot be finished in software.
var (
	// ErrMalformed: headers, lengths and virtio-net header contradict each
	// other.
	ErrMalformed = errors.New("inconsistent headers of an unfinished frame")
	// ErrUFO: the frame is to be cut into IP fragments. No stack has made
	// such frames since Linux 4.14.
	ErrUFO = errors.New("super-frame wants UDP fragmentation, which is not done in software")
	// ErrProtocol: the super-frame is not TCP or UDP over IP over Ethernet.
	ErrProtocol = errors.New("super-frame of a protocol that is not segmented in software")
)

// Cause is what a drop for such an error counts as.
func Cause(err error) ring.Cause {
	if errors.Is(err, ErrMalformed) {
		return ring.DropMalformed
	}
	return ring.DropOffload
}

// Checksum completes the checksum of an ordinary frame in place; frame starts
// with the Ethernet header and v is its virtio-net header. Nothing is to be
// done if v does not ask for it. A super-frame is ErrProtocol here.
//
// As the kernel does, the sum goes from CsumStart to the end of the frame, the
// field holding the pseudo header's beforehand, and a result of zero is
// written as 0xffff, which is the same number and not "no checksum" to UDP.
func Checksum(frame []byte, v *ring.Vnet) error {
	if v.GSOType&^ring.VnetGSOECN != ring.VnetGSONone {
		return ErrProtocol
	}
	if v.Flags&ring.VnetNeedCsum == 0 {
		return nil
	}
	start, field := int(v.CsumStart), int(v.CsumStart)+int(v.CsumOffset)
	if field+2 > len(frame) {
		return ErrMalformed
	}
	s := packet.UDPChecksum(packet.Fold(packet.Sum(frame[start:], 0)))
	binary.BigEndian.PutUint16(frame[field:], s)
	return nil
}
