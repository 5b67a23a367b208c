package xdp

import (
	"time"

	"github.com/netring/netring/internal/netdev"
)

const (
	// DefaultCoalesce is how long the kernel gathers packets where
	// [Options.Coalesce] is 0.
	DefaultCoalesce = 100 * time.Microsecond
	maxCoalesce     = 10 * time.Millisecond

	// A queue that receives more than coalesceOn packets a second gets its
	// packets together, until it receives less than coalesceOff.
	coalesceOn  = 200_000
	coalesceOff = 100_000
)

// coalescer has the kernel look at a receive queue by the clock while there is
// load. A device without an interrupt of its own (veth, tap) otherwise starts
// the kernel's receive work anew for every packet, and nobody else moderates
// that; devices with one have settings for it (ethtool -C), and are left alone.
//
// One goroutine, but for close, when that has left.
type coalescer struct {
	napis *netdev.NAPIs // nil: the kernel cannot, or it is not wanted

	ifindex, queue, queues int

	delay time.Duration
	was   netdev.NAPI // what the settings were, while on
	on    bool

	packets uint64 // at the last look
	at      time.Time
}

// newCoalescer makes one for a queue of a device in the network namespace of
// the calling thread. Without support by the kernel it does nothing.
func newCoalescer(d *netdev.Device, queue int, delay time.Duration) coalescer {
	if delay < 0 {
		return coalescer{}
	}
	if delay == 0 {
		delay = DefaultCoalesce
	}
	n, err := netdev.OpenNAPIs()
	if err != nil {
		return coalescer{}
	}
	return coalescer{napis: n, ifindex: d.Index, queue: queue, queues: d.RxQueues(), delay: delay, at: time.Now()}
}

// look switches on or off by the rate since the last look, given how many
// packets have come in all. What cannot be done is not needed.
func (c *coalescer) look(now time.Time, packets uint64) {
	if c.napis == nil {
		return
	}
	rate := float64(packets-c.packets) / max(now.Sub(c.at).Seconds(), 1e-6)
	c.packets, c.at = packets, now
	switch {
	case !c.on && rate > coalesceOn:
		c.start()
	case c.on && rate < coalesceOff:
		c.stop()
	}
}

func (c *coalescer) start() {
	all, err := c.napis.List(c.ifindex)
	if err != nil || len(all) != c.queues || c.queue >= len(all) {
		return // a kernel that cannot, or it is not told whose is whose
	}
	was := all[c.queue]
	if was.IRQ || was.DeferIRQs != 0 {
		return // it is seen to
	}
	// One empty look and the device is back to telling of each packet.
	c.on = c.napis.Set(netdev.NAPI{ID: was.ID, DeferIRQs: 1, FlushTimeout: c.delay}) == nil
	c.was = was
}

func (c *coalescer) stop() {
	c.on = false
	_ = c.napis.Set(c.was) // it fails if the context has gone, and its settings with it
}

// close puts the settings back.
func (c *coalescer) close() {
	if c.napis == nil {
		return
	}
	if c.on {
		c.stop()
	}
	c.napis.Close()
	c.napis = nil
}
