package mem

import (
	"fmt"

	"github.com/netring/netring/ring"
)

// Defaults of [Options].
const (
	DefaultSlots    = 1024
	DefaultBufSize  = 2048
	DefaultHeadroom = 64
)

// maxRings bounds the ring pairs of a port; each takes four descriptors.
const maxRings = 1024

// Options of [Pair]. The zero value is valid.
type Options struct {
	// Names of the two ends; "mem0" and "mem1" by default.
	Names [2]string
	// Rings is the number of receive and of transmit rings of each end; 0 for 1.
	Rings int
	// Slots of each ring, a power of two; 0 for [DefaultSlots].
	Slots int
	// VnetLen is 0, [ring.VnetLen] or [ring.VnetLenMrg]: frames may carry a
	// virtio-net header. For super-frames to cross in one slot, BufSize must
	// be [ring.MaxFrame] plus Headroom.
	VnetLen int
	// Headroom is where frames start in a buffer, in bytes, at least VnetLen;
	// 0 for [DefaultHeadroom], -1 for none.
	Headroom int

	// Pool has the buffers; a pair takes as many as it has slots. Nil for a
	// Pool that the pair makes for itself, which is closed with it, of
	// buffers of BufSize bytes (0 for [DefaultBufSize], headroom included)
	// and Extra more than the slots take, for [Pool.Take].
	Pool    *Pool
	BufSize int
	Extra   int
}

// Bufs returns the number of buffers that a pair with these options takes.
func (o Options) Bufs() int {
	o = o.withDefaults()
	return 2 * o.Rings * o.Slots
}

// Validate reports the first value that is out of range.
func (o Options) Validate() error {
	d := o.withDefaults()
	switch {
	case d.Rings < 1 || d.Rings > maxRings:
		return fmt.Errorf("%d rings: must be between 1 and %d", o.Rings, maxRings)
	case d.Slots < 1 || d.Slots > 1<<24 || d.Slots&(d.Slots-1) != 0:
		return fmt.Errorf("%d slots: must be a power of two up to 2^24", o.Slots)
	case d.VnetLen != 0 && d.VnetLen != ring.VnetLen && d.VnetLen != ring.VnetLenMrg:
		return fmt.Errorf("virtio-net header of %d bytes: must be 0, %d or %d", o.VnetLen, ring.VnetLen, ring.VnetLenMrg)
	case o.Headroom < -1 || d.Headroom < d.VnetLen:
		return fmt.Errorf("headroom of %d bytes: must be -1 or at least the %d bytes of the virtio-net header", o.Headroom, d.VnetLen)
	case o.Pool != nil && (o.BufSize != 0 || o.Extra != 0):
		return fmt.Errorf("buffer size %d and %d extra buffers: are the pool's when one is given", o.BufSize, o.Extra)
	case d.BufSize <= d.Headroom || d.BufSize > maxBuf:
		return fmt.Errorf("buffer size %d: must be between %d, more than the headroom, and %d", d.BufSize, d.Headroom+1, maxBuf)
	case d.Extra < 0 || d.Extra > maxBufs:
		return fmt.Errorf("%d extra buffers: must be between 0 and %d", o.Extra, maxBufs)
	}
	return nil
}

func (o Options) withDefaults() Options {
	for i, n := range []string{"mem0", "mem1"} {
		if o.Names[i] == "" {
			o.Names[i] = n
		}
	}
	for _, v := range []struct {
		p *int
		n int
	}{{&o.Rings, 1}, {&o.Slots, DefaultSlots}, {&o.Headroom, DefaultHeadroom}} {
		if *v.p == 0 {
			*v.p = v.n
		}
	}
	if o.Headroom == -1 {
		o.Headroom = 0
	}
	if o.Pool != nil {
		o.BufSize = o.Pool.region.BufSize()
	} else if o.BufSize == 0 {
		o.BufSize = DefaultBufSize
	}
	return o
}
