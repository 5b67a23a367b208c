package tpacket

import (
	"fmt"
	"time"

	"golang.org/x/net/bpf"

	"github.com/netring/netring/ring"
)

// Version of the receive ring.
type Version uint8

const (
	V2 Version = 2
	V3 Version = 3
)

// Fanout is how several receive rings share the traffic (PACKET_FANOUT).
type Fanout uint8

const (
	FanoutHash     Fanout = iota // by flow; both directions of a flow go to the same ring
	FanoutLB                     // round robin
	FanoutCPU                    // by the CPU that received
	FanoutQM                     // by the device's receive queue
	FanoutRollover               // fill one ring, then the next
)

// Profile sets the sizes that are left at zero.
type Profile uint8

const (
	Throughput Profile = iota // deep rings: about 16 MiB receive and 9 MiB transmit a queue
	Latency                   // shallow rings
	LowMemory                 // about 1 MiB receive and 4 MiB transmit a queue
)

// Timestamp is the source of [ring.Meta].Time.
type Timestamp uint8

const (
	TimeSoftware Timestamp = iota // when the kernel received the frame
	TimeHardware                  // the device's own, where it gives one
)

// Options for [Open]. The zero value is valid: one queue each way, V2, virtio-
// net header, promiscuous, own transmissions ignored.
type Options struct {
	Profile Profile
	Version Version // of receive rings; 0 means V2

	RxQueues int // receive rings; 0 means 1, -1 none
	TxQueues int // transmit rings; 0 means as many as RxQueues (1 if that is -1), -1 none
	RxSlots  int // of each receive ring, a power of two; 0 by profile
	TxSlots  int // of each transmit ring, a power of two; 0 by profile

	Fanout   Fanout
	Defrag   bool // reassemble IP fragments before the hash, so that a datagram stays together
	Rollover bool // with any mode: to another ring when the chosen one is full

	// VnetLen is the virtio-net header on both sides: 0 means 10 bytes, else
	// 10 or 12. NoVnet does without: then frames of local senders arrive with
	// unfinished checksums and must not be forwarded unless the senders'
	// offloads are off.
	VnetLen int
	NoVnet  bool

	BlockSize    int           // bytes of a V3 block; 0 means 256 KiB
	BlockTimeout time.Duration // of V3, whole milliseconds; 0 means 1 ms

	Filter      []bpf.RawInstruction // classic BPF; its return value bounds the bytes kept. See [ParseFilter]
	Outgoing    bool                 // also receive what the host sends
	NoPromisc   bool                 // do not ask for frames to other addresses
	QdiscBypass bool                 // transmit past the queueing discipline
	Timestamp   Timestamp
	FlowHash    bool // have the kernel compute [ring.Meta].Hash (V3 only)

	// DrainTimeout bounds how long Close waits for frames that are handed
	// over and not sent; 0 means 200 ms.
	DrainTimeout time.Duration
}

// Validate reports the first field that Open would refuse.
func (o *Options) Validate() error {
	pow2 := func(n int) bool { return n >= 0 && n <= 1<<20 && n&(n-1) == 0 }
	switch {
	case o.Profile > LowMemory:
		return fmt.Errorf("profile %d: unknown", o.Profile)
	case o.Version != 0 && o.Version != V2 && o.Version != V3:
		return fmt.Errorf("version %d: must be 2 or 3", o.Version)
	case o.RxQueues < -1 || o.RxQueues > 256:
		return fmt.Errorf("receive queues %d: must be 1 to 256, or -1 for none", o.RxQueues)
	case o.TxQueues < -1 || o.TxQueues > 256:
		return fmt.Errorf("transmit queues %d: must be 1 to 256, or -1 for none", o.TxQueues)
	case o.RxQueues == -1 && o.TxQueues == -1:
		return fmt.Errorf("no receive and no transmit queues: at least one direction is needed")
	case !pow2(o.RxSlots):
		return fmt.Errorf("receive slots %d: must be a power of two up to 2^20", o.RxSlots)
	case !pow2(o.TxSlots):
		return fmt.Errorf("transmit slots %d: must be a power of two up to 2^20", o.TxSlots)
	case o.Fanout > FanoutRollover:
		return fmt.Errorf("fanout mode %d: unknown", o.Fanout)
	case o.Fanout == FanoutRollover && o.Rollover:
		return fmt.Errorf("rollover of rollover: set the mode or the flag")
	case o.VnetLen != 0 && o.VnetLen != ring.VnetLen && o.VnetLen != ring.VnetLenMrg:
		return fmt.Errorf("virtio-net header of %d bytes: must be %d or %d", o.VnetLen, ring.VnetLen, ring.VnetLenMrg)
	case o.BlockSize < 0 || o.BlockSize > 1<<26:
		return fmt.Errorf("block size %d: must be up to 64 MiB", o.BlockSize)
	case o.BlockTimeout != 0 && (o.BlockTimeout < time.Millisecond || o.BlockTimeout%time.Millisecond != 0 || o.BlockTimeout > time.Minute):
		return fmt.Errorf("block timeout %v: must be whole milliseconds from 1ms to 1m", o.BlockTimeout)
	case o.Timestamp > TimeHardware:
		return fmt.Errorf("timestamp source %d: unknown", o.Timestamp)
	case o.FlowHash && o.Version != V3:
		return fmt.Errorf("flow hash: only TPACKET_V3 has it")
	case o.DrainTimeout < 0 || o.DrainTimeout > time.Minute:
		return fmt.Errorf("drain timeout %v: must be up to 1m", o.DrainTimeout)
	case len(o.Filter) > 4096:
		return fmt.Errorf("filter of %d instructions: at most 4096", len(o.Filter))
	}
	return nil
}

// rxBytes is the memory of a receive ring whose slots are not given.
func (o *Options) rxBytes() int { return [...]int{16 << 20, 2 << 20, 1 << 20}[o.Profile] }

// withDefaults fills in what is left at zero, but for RxSlots, which depend on
// the size of a frame.
func (o Options) withDefaults() Options {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&o.RxQueues, 1)
	def(&o.TxQueues, max(o.RxQueues, 1))
	o.RxQueues, o.TxQueues = max(o.RxQueues, 0), max(o.TxQueues, 0)
	if o.Version == 0 {
		o.Version = V2
	}
	def(&o.TxSlots, [...]int{128, 128, 64}[o.Profile])
	switch {
	case o.NoVnet:
		o.VnetLen = 0
	case o.VnetLen == 0:
		o.VnetLen = ring.VnetLen
	}
	def(&o.BlockSize, 1<<18)
	if o.BlockTimeout == 0 {
		o.BlockTimeout = time.Millisecond
	}
	if o.DrainTimeout == 0 {
		o.DrainTimeout = 200 * time.Millisecond
	}
	return o
}
