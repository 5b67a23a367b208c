package xdp

import (
	"time"

	"github.com/netring/netring/ring"
)

// drainTime is how long Close waits for what is in the transmit rings;
// drainPause is between looks.
const (
	drainTime  = time.Second
	drainPause = 100 * time.Microsecond
)

// drain goes on kicking until what was handed over is sent, at most for the time
// given, and counts the rest as closed. Nobody is inside any more: the ring's
// own tail stays, the one after it is in d.end.
func (d *sender) drain(r *ring.Ring, limit time.Duration) {
	d.end = r.Tail()
	for deadline := time.Now().Add(limit); ; time.Sleep(drainPause) {
		d.end = d.complete(r, d.end)
		if d.posted == 0 {
			return
		}
		if time.Now().After(deadline) || d.dev.State() != nil || later(d.dev, kick(d.q.fd)) != nil {
			break
		}
	}
	d.end = d.complete(r, d.end)
	var left uint64
	for i := range d.posted {
		if d.lens[(d.end+i)&uint32(len(d.lens)-1)]&moreFollows == 0 {
			left++
		}
	}
	r.Stats.Drop(ring.DropClosed, left)
}
