package tpacket

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/abi"
)

// refused works out how many of the frames [from, to) the kernel passed over,
// missing bytes in all. A frame that this driver has checked and headed itself
// is only among them if no other explains it (the MTU has shrunk, say).
func (d *tx) refused(from, to uint32, missing uint64) {
	d.done.bytes += missing
	left := missing
	for _, bit := range []uint32{risky, 0} {
		for k := from; k != to && left != 0; k++ {
			if l := d.lens[k&d.mask]; l&(risky|sent) == bit && uint64(l&lenMask) == left {
				d.done.refused++
				return
			}
		}
		for k := from; k != to && left != 0; k++ {
			if l := d.lens[k&d.mask]; l&(risky|sent) == bit {
				d.done.refused++
				left -= min(left, uint64(l&lenMask))
			}
		}
	}
}

// stuck is the frame at the kernel's head of the ring that it has tried to send
// and put back.
type stuck struct {
	slot  uint32
	tries int
	since time.Time
}

const (
	// stuckTries is how often a frame is tried whose offloads the kernel
	// cannot carry out (it says ENOMEM, and would for ever).
	stuckTries = 3
	// stuckTime is how long one frame is tried that the queueing discipline
	// drops again and again, with nothing else getting through.
	stuckTime = time.Second
)

// insist bounds the attempts on the frame at the head, which holds all others
// up: after that it is counted as refused and the kernel passes it over.
func (d *tx) insist(e unix.Errno) {
	if d.stuck.tries == 0 || d.stuck.slot != d.unsent {
		d.stuck = stuck{slot: d.unsent, since: time.Now()}
	}
	d.stuck.tries++
	if e == unix.ENOMEM && d.stuck.tries < stuckTries || e == unix.ENOBUFS && time.Since(d.stuck.since) < stuckTime {
		return
	}
	d.stuck.tries = 0
	l := &d.lens[d.unsent&d.mask]
	if *l&sent != 0 {
		return
	}
	d.done.refused++
	d.done.bytes += uint64(*l & lenMask)
	*l |= sent
	d.blank(d.unsent)
}

// blank makes the frame of slot k one that the kernel passes over: none has
// length 0.
func (d *tx) blank(k uint32) { binary.NativeEndian.PutUint32(d.at(k)[abi.V2Len:], 0) }
