package forward

import (
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/netring/netring/lagg"
	"github.com/netring/netring/ring"
)

// link is one interface: a port of the bridge has one, a group several. All
// workers share it.
type link struct {
	port    ring.Port
	down    atomic.Bool
	deleted atomic.Bool
	watched atomic.Bool // somebody calls Bridge.LinkState: believe them alone
	log     *slog.Logger
	guard   *guard // nil without

	group  *lagg.Group // that the link is a member of, nil if it stands alone
	member int
	lost   func() // called when the link goes down; nil if nobody cares
}

// report takes the outcome of an operation on the link and returns the error
// if the bridge cannot go on with it.
func (l *link) report(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, ring.ErrLinkDown) {
		if !l.watched.Load() {
			l.setDown(true)
		}
		return nil
	}
	return err
}

// refreshed notes that the driver finds nothing wrong with the link.
func (l *link) refreshed() {
	if !l.watched.Load() {
		l.setDown(false)
	}
}

// setDown notes the link's state. Changes are said once, whoever sees them.
func (l *link) setDown(down bool) {
	if !l.down.CompareAndSwap(!down, down) {
		return
	}
	if l.group != nil {
		l.group.SetLink(l.member, !down, monotonic())
	}
	if down && l.lost != nil {
		l.lost()
	}
	if down {
		l.log.Warn("link is down: its frames are dropped until it is back", "port", l.port.Name())
	} else {
		l.log.Warn("link is up again", "port", l.port.Name())
	}
}

// gone is an error once the interface is known to be deleted.
func (l *link) gone() error {
	if l.deleted.Load() {
		return &ring.OpError{Op: "forward", Port: l.port.Name(), Ring: -1, Err: ring.ErrGone}
	}
	return nil
}

// LinkState tells the bridge of a link's state, by the name of its port: nil
// for up, or an error that Is [ring.ErrLinkDown] or [ring.ErrGone]. From the
// first call for a link on, only these calls decide whether it is up. Any
// goroutine.
func (b *Bridge) LinkState(name string, state error) {
	for _, links := range b.links {
		for _, l := range links {
			if l.port.Name() != name {
				continue
			}
			l.watched.Store(true)
			if errors.Is(state, ring.ErrGone) {
				l.deleted.Store(true)
			}
			l.setDown(state != nil)
		}
	}
}
