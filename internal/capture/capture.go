// Package capture reads the Ethernet frames of capture files, pcap and pcapng,
// plain or compressed with gzip, one after the other, as often as one likes.
package capture

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// Packet is one packet of a capture.
type Packet struct {
	Frame    []byte // Ethernet header to payload; until the next call of Next
	Time     int64  // nanoseconds since the Unix epoch
	Length   int    // bytes on the wire; more than in Frame if the capture cut it off
	Ethernet bool   // false for a packet of an interface of another kind
}

// ErrLinkType: the capture is not one of Ethernet frames.
var ErrLinkType = errors.New("no Ethernet capture")

// Reader reads a capture. It belongs to one goroutine.
type Reader struct {
	src  io.ReadSeeker
	buf  *bufio.Reader
	from interface {
		ZeroCopyReadPacketData() ([]byte, gopacket.CaptureInfo, error)
	}
	zip   *zipped // nil for a plain file
	mixed bool    // packets tell their own link type
}

// magicNG starts a pcapng file, in either byte order.
const magicNG = 0x0a0d0d0a

// NewReader reads the header of a capture. src stays the caller's.
func NewReader(src io.ReadSeeker) (*Reader, error) {
	r := &Reader{src: src, buf: bufio.NewReaderSize(nil, 1<<18)}
	return r, r.Rewind()
}

// Rewind starts again with the first packet.
func (r *Reader) Rewind() error {
	if _, err := r.src.Seek(0, io.SeekStart); err != nil {
		return err
	}
	r.buf.Reset(r.src)
	in, err := r.plain(r.buf)
	if err != nil {
		return fmt.Errorf("capture header: %w", err)
	}
	magic, err := in.Peek(4)
	if err != nil {
		return fmt.Errorf("capture header: %w", noEOF(err))
	}
	if binary.BigEndian.Uint32(magic) == magicNG {
		ng, err := pcapgo.NewNgReader(in, pcapgo.NgReaderOptions{WantMixedLinkType: true, SkipUnknownVersion: true})
		if err != nil {
			return fmt.Errorf("pcapng header: %w", noEOF(err))
		}
		r.from, r.mixed = ng, true
		return nil
	}
	old, err := pcapgo.NewReader(in)
	if err != nil {
		return fmt.Errorf("pcap header: %w", noEOF(err))
	}
	if t := old.LinkType(); t != layers.LinkTypeEthernet {
		return fmt.Errorf("%w but %v", ErrLinkType, t)
	}
	r.from, r.mixed = old, false
	return nil
}

// Next reads the next packet into p. The error is io.EOF after the last one,
// and io.ErrUnexpectedEOF if the file ends inside of a packet. It allocates
// nothing once it has seen the largest packet.
func (r *Reader) Next(p *Packet) error {
	data, info, err := r.from.ZeroCopyReadPacketData()
	if err == io.EOF {
		return r.end()
	}
	if err != nil {
		return err
	}
	*p = Packet{Frame: data, Time: info.Timestamp.UnixNano(), Length: max(info.Length, len(data)), Ethernet: true}
	if r.mixed {
		t, ok := info.AncillaryData[0].(layers.LinkType)
		p.Ethernet = ok && t == layers.LinkTypeEthernet
	}
	return nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
