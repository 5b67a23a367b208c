package forward

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/lagg"
	"github.com/netring/netring/ring"
)

// groupOut is one worker's way out through a port of several links.
type groupOut struct {
	*lagg.Egress
	taken atomic.Uint64 // frames, of which a broadcasting group sends several copies
}

var _ lagg.Pender = (*outlet)(nil)

// Move is [ring.Egress.Move].
func (g *groupOut) Move(src *ring.Ring, n int) int {
	n = g.Egress.Move(src, n)
	g.taken.Add(uint64(n))
	return n
}

// Copy is [ring.Egress.Copy].
func (g *groupOut) Copy(src *ring.Ring, k uint32) {
	g.taken.Add(1)
	g.Egress.Copy(src, k)
}

// counts returns how many frames went to no member, as no link was up, and how
// many more went out than came in.
func (g *groupOut) counts() (noLink, copied uint64) {
	// Taken is added to last and read first: the difference is never negative.
	taken, sum := g.taken.Load(), g.Stats.NoLink.Load()
	noLink = sum
	for i := range g.Stats.Frames {
		sum += g.Stats.Frames[i].Load()
	}
	return noLink, sum - taken
}

// join makes a group of a port's links.
func (b *Bridge) join(p *Port, links []*link) error {
	if p.Group == nil {
		return nil
	}
	names := make([]string, len(links))
	for i, l := range links {
		names[i] = l.port.Name()
	}
	g, err := lagg.New(names, *p.Group)
	if err != nil {
		return err
	}
	for i, l := range links {
		l.group, l.member = g, i
		g.SetLink(i, true, monotonic())
	}
	return nil
}

// monotonic is the time that the scheduler's clocks show.
func monotonic() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return 0 // it cannot fail
	}
	return time.Duration(ts.Nano())
}
