package sched

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/netring/netring/ring"
)

// Full says what a [Queue] does with frames for which there is no room.
type Full uint8

const (
	// Drop drops by the rule of the two-level queue, counted. Frames with
	// priority may displace others.
	Drop Full = iota
	// Backpressure leaves frames in their receive ring, where the kernel's
	// queue fills and the sender's limit works. Nothing is displaced.
	Backpressure
)

func (f Full) String() string {
	switch f {
	case Drop:
		return "drop"
	case Backpressure:
		return "backpressure"
	}
	return fmt.Sprintf("policy %d", uint8(f))
}

// ParseFull is the inverse of [Full.String].
func ParseFull(s string) (Full, error) {
	for _, f := range []Full{Drop, Backpressure} {
		if s == f.String() {
			return f, nil
		}
	}
	return 0, fmt.Errorf("policy %q for full queues: must be drop or backpressure", s)
}

// Options of a [Queue]. The zero value has everything off: frames go into the
// transmit ring, which is told once per Flush; what does not fit is dropped.
type Options struct {
	// StagePackets and StageBytes bound what may wait for a doorbell within a
	// round. StagePackets 0: a round is one doorbell, 1: every frame is one.
	// StageBytes 0: no bound in bytes; without StagePackets it must be 0.
	StagePackets, StageBytes int

	// Limit switches the dynamic limit on; LimitMin and LimitMax are its
	// bounds in bytes (0: none), LimitHold how long slack must last before it
	// is lowered (whole milliseconds), LimitStall the time without completion
	// that counts as a stall (4 to 128 ms, 0: off).
	Limit              bool
	LimitMin, LimitMax uint32
	LimitHold          time.Duration
	LimitStall         time.Duration

	// QueuePackets and QueueBytes bound the two-level queue. QueuePackets 0:
	// no frame ever waits. QueueBytes 0: an Ethernet frame for each packet.
	QueuePackets, QueueBytes int
	Rule                     Rule
	Full                     Full
	// Classifier says which waiting frames have priority; nil: none.
	Classifier *Classifier

	// Watchdog is how long the ring may complete nothing while frames are
	// outstanding, before it is made anew; 0: for ever.
	Watchdog time.Duration

	// Clock is the worker's; needed with Limit or Watchdog.
	Clock *Clock
}

// Defaults are what a bridge or switch runs with, but for Clock and
// Classifier, which are the caller's to make.
func Defaults() Options {
	return Options{
		Limit: true, LimitHold: time.Second,
		QueuePackets: 512, QueueBytes: 1 << 20, Rule: Evict,
		Watchdog: 5 * time.Second,
	}
}

// bytesPerPacket is an Ethernet frame of the usual MTU, without checksum.
const bytesPerPacket = 1514

func (o *Options) queueBytes() int {
	if o.QueueBytes == 0 {
		return bytesPerPacket * o.QueuePackets
	}
	return o.QueueBytes
}

func (o *Options) limitOptions() LimitOptions {
	return LimitOptions{
		Min: o.LimitMin, Max: o.LimitMax,
		Hold: int64(o.LimitHold) / tick, Stall: int(int64(o.LimitStall) / tick),
	}
}

// Validate says what is wrong with the options.
func (o *Options) Validate() error {
	const maxPackets, maxBytes = 1 << 20, 1 << 30
	switch {
	case o.StagePackets < 0 || o.StagePackets > math.MaxInt32:
		return fmt.Errorf("sched: staging of %d packets: must not be negative", o.StagePackets)
	case o.StageBytes < 0 || o.StagePackets == 0 && o.StageBytes != 0:
		return fmt.Errorf("sched: staging of %d bytes: must not be negative, and needs a bound in packets", o.StageBytes)
	case o.LimitHold%time.Millisecond != 0 || o.LimitStall%time.Millisecond != 0:
		return fmt.Errorf("sched: limit hold %v, stall %v: must be whole milliseconds", o.LimitHold, o.LimitStall)
	case o.QueuePackets < 0 || o.QueuePackets > maxPackets:
		return fmt.Errorf("sched: queue of %d packets: must be between 0 and %d", o.QueuePackets, maxPackets)
	case o.QueueBytes < 0 || o.queueBytes() > maxBytes:
		return fmt.Errorf("sched: queue of %d bytes: must be between 0 and %d", o.queueBytes(), maxBytes)
	case o.QueuePackets == 0 && o.QueueBytes != 0:
		return errors.New("sched: a queue limit in bytes needs one in packets")
	case o.Rule > Evict:
		return fmt.Errorf("sched: %v: must be refuse or evict", o.Rule)
	case o.Full > Backpressure:
		return fmt.Errorf("sched: %v: must be drop or backpressure", o.Full)
	case o.Watchdog < 0:
		return fmt.Errorf("sched: watchdog of %v: must not be negative", o.Watchdog)
	case o.Clock == nil && (o.Limit || o.Watchdog != 0):
		return errors.New("sched: the dynamic limit and the watchdog need a clock")
	}
	if !o.Limit {
		return nil
	}
	if err := o.limitOptions().Validate(); err != nil {
		return fmt.Errorf("sched: %w", err)
	}
	return nil
}

// storeBytes is the most that frames waiting for tx can hold. Frames are
// accepted while the bytes are below their limit, so it may be passed by one
// frame. The refusing rule also lets a priority frame in for a smaller one, as
// long as such frames hold less than half of the limit.
func (o *Options) storeBytes(tx *ring.Ring) int64 {
	frame := int64(tx.MaxFrame())
	if tx.VnetLen() != 0 {
		frame = ring.MaxFrame
	}
	limit := int64(o.queueBytes())
	if o.Rule == Refuse {
		return limit + limit/2 + 2*frame
	}
	return limit + frame
}
