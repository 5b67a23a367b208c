package forward

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/netring/netring/internal/gate"
	netlink "github.com/netring/netring/internal/link"
	"github.com/netring/netring/poll"
	"github.com/netring/netring/ring"
)

// guard keeps a link from receiving more than the workers can forward. Worker
// 0 runs it.
type guard struct {
	*gate.Guard
	supers atomic.Uint64 // rounds that met a segmentation super-frame first
	broken bool
}

// hooked is a port that may occupy its interface's XDP hook.
type hooked interface{ HoldsXDP() bool }

// openGuards makes a guard for each link, with the gate off. Where there may
// be none the bridge goes on without: it says why, once.
func (b *Bridge) openGuards() {
	cpus := b.opt.Poll.CPUs
	if cpus == nil || slices.Contains(cpus, -1) {
		b.opt.Log.Debug("no gate against receive livelock: it needs workers that are pinned to CPUs")
		return
	}
	for _, links := range b.links {
		for _, l := range links {
			if h, ok := l.port.(hooked); ok && h.HoldsXDP() {
				continue // its own program is where the gate would be
			}
			info, err := netlink.Lookup(l.port.Name())
			if err == nil {
				var g *gate.Guard
				if g, err = gate.NewGuard(info.Name, info.Index, cpus, b.opt.Gate, b.opt.Log); err == nil {
					l.guard = &guard{Guard: g}
					continue
				}
			}
			var pe *gate.PrivilegeError
			if errors.As(err, &pe) {
				b.opt.Log.Debug("no gate against receive livelock", "err", err)
				return
			}
			b.opt.Log.Warn("no gate against receive livelock", "port", l.port.Name(), "err", err)
		}
	}
}

// closeGuards takes all gates off.
func (b *Bridge) closeGuards() error {
	var errs []error
	for _, links := range b.links {
		for _, l := range links {
			if l.guard != nil {
				errs = append(errs, l.guard.Close())
			}
		}
	}
	return errors.Join(errs...)
}

// meet notes what kind of frames come in: one look a round is enough to see
// that TCP sends super-frames.
func (g *guard) meet(rx *ring.Ring) {
	if rx.Slot(rx.Head).Flags&ring.SlotGSO != 0 {
		g.supers.Add(1)
	}
}

// guarded is what a status check does for the guard.
func (s *station) guarded(now time.Duration) {
	s.observe()
	g := s.link.guard
	if s.w.id != 0 || g.broken {
		return
	}
	sample := s.w.b.observed(s.link)
	sample.Now, sample.Super = now, g.supers.Load()
	if err := g.Sample(sample); err != nil {
		g.broken = true
		s.link.log.Warn("gate left as it is", "port", s.Name(), "err", err)
	}
}

// observe notes how the station does.
func (s *station) observe() {
	left := s.rx.Space()
	s.taken.Store(uint64(max(0, int64(s.rx.Stats.Packets.Load())-int64(left))))
	s.waiting.Store(int64(s.least))
	s.least = left
}

// observed is how l does, by what all workers have noted last.
func (b *Bridge) observed(l *link) (s poll.GateSample) {
	for _, r := range l.port.RxRings() {
		s.Drops += r.Stats.KernelDrops.Load()
		s.Slots += r.Len()
	}
	for _, w := range b.workers {
		for _, o := range w.stations {
			if o.link == l {
				s.Delivered += o.taken.Load()
				s.Waiting += int(o.waiting.Load())
			}
		}
	}
	for _, links := range b.links {
		for _, o := range links {
			for _, r := range o.port.TxRings() {
				s.Sent += r.Stats.Packets.Load()
			}
		}
	}
	return s
}
