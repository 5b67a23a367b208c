package pcap

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/netring/netring/ring"
)

// source is a capture file of either kind.
type source interface {
	ZeroCopyReadPacketData() ([]byte, gopacket.CaptureInfo, error)
	LinkType() layers.LinkType
}

// ngMagic begins a pcapng file, in either byte order.
const ngMagic = "\x0a\x0d\x0d\x0a"

// bufferSize is what files are read and written in.
const bufferSize = 1 << 18

// openSource finds out what kind of file f is.
func openSource(f io.Reader) (src source, err error) {
	in := bufio.NewReaderSize(f, bufferSize)
	magic, err := in.Peek(len(ngMagic))
	switch {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%d bytes are no capture file: %w", len(magic), io.ErrUnexpectedEOF)
	case err != nil:
		return nil, err
	case string(magic) == ngMagic:
		src, err = pcapgo.NewNgReader(in, pcapgo.NgReaderOptions{ErrorOnMismatchingLinkType: true, SkipUnknownVersion: true})
	default:
		src, err = pcapgo.NewReader(in)
	}
	if err != nil {
		return nil, fmt.Errorf("header of the capture file: %w", err)
	}
	if lt := src.LinkType(); lt != layers.LinkTypeEthernet {
		return nil, fmt.Errorf("link type %d (%v): only Ethernet captures can be read", lt, lt)
	}
	return src, nil
}

// receiver copies frames from a file into the slots of a receive ring.
type receiver struct {
	src    source
	region *ring.Region
	meta   []ring.Meta
	end    error // of the file; io.EOF or what is wrong with it
}

func newReceiver(f io.Reader, slots int) (*receiver, error) {
	src, err := openSource(f)
	if err != nil {
		return nil, err
	}
	return &receiver{src: src, meta: make([]ring.Meta, slots)}, nil
}

// Sync fills all free slots, as far as the file reaches.
func (d *receiver) Sync(r *ring.Ring, _, to uint32) (accepted, tail uint32, err error) {
	tail = r.Tail()
	var packets, bytes, truncated uint64
	for ; tail-to < uint32(r.Len()) && d.end == nil; tail++ {
		data, ci, err := d.src.ZeroCopyReadPacketData()
		if err != nil {
			d.end = endOf(err)
			break
		}
		k := tail & uint32(r.Len()-1)
		n := copy(d.region.Buf(k), data)
		s := r.Slot(k)
		*s = ring.Slot{Buf: k, Len: uint32(n)}
		d.meta[k] = ring.Meta{Time: ci.Timestamp.UnixNano(), WireLen: uint32(max(ci.Length, n))}
		if n < ci.Length {
			s.Flags = ring.SlotTruncated
			truncated++
		}
		packets++
		bytes += uint64(n)
	}
	if packets != 0 {
		r.Stats.Packets.Add(packets)
		r.Stats.Bytes.Add(bytes)
	}
	if tail == to {
		err = d.end
	}
	return to, tail, err
}

// endOf tells the end of a file from one that is cut off or damaged.
func endOf(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the file is cut off within a packet: %w", err)
	case errors.Is(err, io.EOF):
		return io.EOF
	}
	return fmt.Errorf("read a packet: %w", err)
}

// Meta tells when the frame was captured and how long it was.
func (d *receiver) Meta(r *ring.Ring, k uint32, m *ring.Meta) bool {
	*m = d.meta[k&uint32(r.Len()-1)]
	return true
}

// sender writes the frames of a transmit ring to a file. A frame is done when
// it has been written.
type sender struct {
	region *ring.Region
	buf    *bufio.Writer
	w      *pcapgo.Writer
	now    func() time.Time
}

// snapLen is what the file's header promises: no frame is longer.
const snapLen = 1 << 18

func newSender(f io.Writer) (*sender, error) {
	d := &sender{buf: bufio.NewWriterSize(f, bufferSize), now: time.Now}
	d.w = pcapgo.NewWriterNanos(d.buf)
	if err := d.w.WriteFileHeader(snapLen, layers.LinkTypeEthernet); err != nil {
		return nil, err
	}
	return d, d.buf.Flush()
}

// Sync writes the slots [from, to).
func (d *sender) Sync(r *ring.Ring, from, to uint32) (accepted, tail uint32, err error) {
	if from == to {
		return from, from + uint32(r.Len()), nil
	}
	ci := gopacket.CaptureInfo{Timestamp: d.now()}
	var packets, bytes uint64
	k := from
	for ; k != to; k++ {
		s := r.Slot(k)
		own := k & uint32(r.Len()-1)
		if s.Buf != own || s.Len == 0 || !d.region.Holds(s, 0) || s.Flags&(ring.SlotMoreFrag|ring.SlotVnet) != 0 {
			err = fmt.Errorf("%w: slot %d: buffer %d, offset %d, length %d, flags %#x: must be one finished frame in buffer %d",
				ring.ErrSlot, k, s.Buf, s.Off, s.Len, s.Flags, own)
			s.Buf = own
			break
		}
		b := d.region.Frame(s)
		ci.CaptureLength, ci.Length = len(b), len(b)
		if werr := d.w.WritePacket(ci, b); werr != nil {
			err = fmt.Errorf("write a packet: %w", werr)
			break
		}
		packets++
		bytes += uint64(len(b))
	}
	if ferr := d.buf.Flush(); ferr != nil && err == nil {
		err = fmt.Errorf("write: %w", ferr)
	}
	r.Stats.Doorbells.Add(1)
	r.Stats.Packets.Add(packets)
	r.Stats.Bytes.Add(bytes)
	return k, k + uint32(r.Len()), err
}
