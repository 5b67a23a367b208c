package ring

import "sync/atomic"

// Cause says why a frame was dropped.
type Cause uint8

// The causes of drops. A driver or scheduler counts each frame that it does
// not pass on under exactly one of them.
const (
	DropFull      Cause = iota // no slot or buffer was free
	DropOversize               // larger than the port sends or a buffer holds
	DropOffload                // unfinished checksum or super-frame, and the port cannot finish it
	DropMalformed              // too short or inconsistent
	DropLink                   // the link was down
	DropRefused                // the kernel or device refused the frame
	DropTruncated              // arrived cut off; the rest is lost
	DropFilter                 // rules say that it is not forwarded
	DropClosed                 // still unsent when the port closed
	NumCauses
)

var causeNames = [NumCauses]string{
	"full", "oversize", "offload", "malformed", "link", "refused", "truncated", "filter", "closed",
}

func (c Cause) String() string {
	if c < NumCauses {
		return causeNames[c]
	}
	return "unknown"
}

// Counters of one ring. The ring's owner adds to them once per batch; anybody
// may read them at any time. A receive ring counts what it gave to the
// program, a transmit ring what the device has finished (not what was handed
// over: that is Packets + DropRefused + those in flight).
type Counters struct {
	Packets   atomic.Uint64
	Bytes     atomic.Uint64
	Drops     [NumCauses]atomic.Uint64
	Syncs     atomic.Uint64
	Doorbells atomic.Uint64 // system calls, or their like, that told the device of new slots
	Retries   atomic.Uint64 // doorbells that the kernel answered with "later"

	// From the kernel, brought up to date by Refresh. The kernel clears its
	// own on reading: these are sums since open.
	KernelPackets atomic.Uint64 // seen by the socket, drops included
	KernelDrops   atomic.Uint64 // dropped as the ring was full
	KernelFreezes atomic.Uint64 // times that the ring was full (TPACKET_V3)
}

// Drop counts n frames under cause c.
func (c *Counters) Drop(cause Cause, n uint64) {
	if n != 0 {
		c.Drops[cause].Add(n)
	}
}

// Dropped returns the sum over all causes, the kernel's drops not among them.
func (c *Counters) Dropped() uint64 {
	var n uint64
	for i := range c.Drops {
		n += c.Drops[i].Load()
	}
	return n
}
