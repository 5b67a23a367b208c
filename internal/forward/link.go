package forward

import (
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/netring/netring/ring"
)

// link is one interface: a port of the bridge has one, a group several. All
// workers share it.
type link struct {
	port ring.Port
	down atomic.Bool
	log  *slog.Logger
}

// report takes the outcome of an operation on the link and returns the error
// if the bridge cannot go on with it. Changes of the link's state are said
// once, whichever worker sees them first.
func (l *link) report(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ring.ErrLinkDown):
		l.setDown(true)
		return nil
	}
	return err
}

func (l *link) setDown(down bool) {
	if !l.down.CompareAndSwap(!down, down) {
		return
	}
	if down {
		l.log.Warn("link is down: its frames are dropped until it is back", "port", l.port.Name())
	} else {
		l.log.Warn("link is up", "port", l.port.Name())
	}
}

// outlet is one worker's way out through one link: the egress proper, left
// out while the link is down.
type outlet struct {
	ring.Egress
	tx   *ring.Ring
	link *link
}

// Move is [ring.Egress.Move]; frames for a link that is down are dropped.
func (o *outlet) Move(src *ring.Ring, n int) int {
	if o.link.down.Load() {
		n = ring.Skip(src, n)
		o.tx.Stats.Drop(ring.DropLink, uint64(n))
		return n
	}
	return o.Egress.Move(src, n)
}

// Copy is [ring.Egress.Copy].
func (o *outlet) Copy(src *ring.Ring, k uint32) {
	if o.link.down.Load() {
		o.tx.Stats.Drop(ring.DropLink, 1)
		return
	}
	o.Egress.Copy(src, k)
}

// Flush is [ring.Egress.Flush] with errors that only mean a link down taken
// note of and left out.
func (o *outlet) Flush() error { return o.link.report(o.Egress.Flush()) }
