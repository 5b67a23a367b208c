package xdp

import (
	"fmt"
	"time"
)

// Attach chooses where the program runs.
type Attach uint8

const (
	AttachAuto    Attach = iota // native where the driver can, else generic
	AttachNative                // in the driver, or fail
	AttachGeneric               // in the stack: any device, slower
)

func (a Attach) String() string { return [...]string{"auto", "native", "generic"}[a] }

// ZeroCopy chooses whether the device works on the shared memory itself.
type ZeroCopy uint8

const (
	ZeroCopyAuto  ZeroCopy = iota // where the driver can
	ZeroCopyForce                 // or fail
	ZeroCopyNever                 // always copy
)

// DefaultSlots is the size of a ring where [Options.Slots] is 0 and the process
// may lock so much memory, see [FitSlots].
const DefaultSlots = 2048

// SendSlots is that of a port that only sends. It does not have to bridge a
// pause of the program's, and what it sends stays in the cache.
const SendSlots = 512

// CopySlots is that of a transmit ring whose frames the kernel copies while it
// is called (measured on a veth, with frames of 1514 bytes: the fewer frames go
// round, the more of them are still in the cache). A device that works on the
// memory itself needs as many as it receives with.
const CopySlots = 128

// minMultiSlots is the smallest ring that holds the longest frame of several
// buffers, which has 17 parts and a head (MAX_SKB_FRAGS).
const minMultiSlots = 32

// Options for [Open]. The zero value is valid: all queues, up to 2048 slots a ring,
// the best mode there is, promiscuous.
type Options struct {
	Queues      []int // hardware queues to open; nil means all
	Slots       int   // of each receive ring, a power of two; 0 means DefaultSlots, with TXOnly SendSlots, or fewer
	TxSlots     int   // of each transmit ring, up to Slots; 0 means Slots, or CopySlots if frames are copied and the port receives too
	Attach      Attach
	ZeroCopy    ZeroCopy
	MultiBuffer bool // frames larger than a buffer take several slots
	NoPromisc   bool // do not ask for frames to other addresses
	TXOnly      bool // attach no program; receive rings are absent
	// SendBuffer is the socket's bound on bytes in flight in copy mode; the
	// kernel's default throttles it to about 280 frames. 0 means enough for
	// a full ring.
	SendBuffer int
	// Coalesce is how long, while much arrives, the kernel may gather packets
	// of a device that has no interrupt of its own, to hand them over together
	// (Linux 6.13). 0 means DefaultCoalesce; below 0, never.
	Coalesce time.Duration
}

// Validate reports the first field that Open would refuse.
func (o *Options) Validate() error {
	switch {
	case o.Slots < 0 || o.Slots > 1<<20 || o.Slots&(o.Slots-1) != 0:
		return fmt.Errorf("slots %d: must be a power of two up to 2^20", o.Slots)
	case o.TxSlots < 0 || o.TxSlots > 1<<20 || o.TxSlots&(o.TxSlots-1) != 0:
		return fmt.Errorf("transmit slots %d: must be a power of two up to 2^20", o.TxSlots)
	case o.Slots != 0 && o.TxSlots > o.Slots:
		return fmt.Errorf("transmit slots %d: must not be more than the %d of a receive ring", o.TxSlots, o.Slots)
	case o.MultiBuffer && (tooFew(o.Slots) || tooFew(o.TxSlots)):
		return fmt.Errorf("slots %d, transmit slots %d: a ring for multi-buffer frames needs at least %d", o.Slots, o.TxSlots, minMultiSlots)
	case o.Attach > AttachGeneric:
		return fmt.Errorf("attach mode %d: unknown", o.Attach)
	case o.ZeroCopy > ZeroCopyNever:
		return fmt.Errorf("zero-copy mode %d: unknown", o.ZeroCopy)
	case o.Attach == AttachGeneric && o.ZeroCopy == ZeroCopyForce:
		return fmt.Errorf("zero-copy needs the native program: generic mode always copies")
	case o.SendBuffer < 0:
		return fmt.Errorf("send buffer %d: must not be negative", o.SendBuffer)
	case o.Coalesce > maxCoalesce || o.Coalesce > 0 && o.Coalesce < time.Microsecond:
		return fmt.Errorf("coalesce for %v: must be 1us to %v, or below 0 for never", o.Coalesce, maxCoalesce)
	}
	seen := map[int]bool{}
	for _, q := range o.Queues {
		if q < 0 || q > 1<<16 || seen[q] {
			return fmt.Errorf("queue %d: must be listed once and not be negative", q)
		}
		seen[q] = true
	}
	return nil
}

// tooFew says that rings of n slots do not hold every multi-buffer frame.
func tooFew(n int) bool { return n != 0 && n < minMultiSlots }

// sendSlots is the size of the transmit ring of a socket that works like m.
func (o *Options) sendSlots(m Mode) int {
	switch {
	case o.TxSlots != 0:
		return o.TxSlots
	case o.TXOnly || m.ZeroCopy:
		return o.Slots
	}
	return min(o.Slots, CopySlots)
}

// Mode is how a port really works, for the user to read.
type Mode struct {
	Native      bool // the program runs in the driver
	ZeroCopy    bool
	MultiBuffer bool
	NeedWakeup  bool
	SendBuffer  int // bytes, as granted (the kernel counts double)
	// WantSendBuffer is the least that does not throttle; SendBuffer may be
	// less without CAP_NET_ADMIN.
	WantSendBuffer int
}

func (m Mode) String() string {
	s := "generic"
	if m.Native {
		s = "native"
	}
	if m.ZeroCopy {
		return s + ", zero-copy"
	}
	return s + ", copy"
}
