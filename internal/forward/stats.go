package forward

import (
	"github.com/netring/netring/internal/gate"
	"github.com/netring/netring/lagg"
	"github.com/netring/netring/nm/vale"
	"github.com/netring/netring/poll"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/sched"
)

// Stats of a bridge since it was made.
type Stats struct {
	Ports []PortStats
	// Copied counts the frames that were made of others: to send one to several
	// ports, and the segments of super-frames beyond the first.
	Copied  uint64
	Workers []poll.WorkerStats
}

// PortStats are the counters of one port, over all its links and workers.
type PortStats struct {
	Name  string
	Links []LinkStats
	// Untaken and Abandoned count frames that a stopped bridge did not pass
	// on (cause closed): those that the kernel had stored and nobody took,
	// and those that a receive ring had given.
	Untaken, Abandoned uint64
	// Filtered counts frames that came by a link of a group which may not
	// deliver, NoLink those for a group without a link that is up (cause link).
	Filtered, NoLink uint64
	Queue            sched.Counts // summed over the queues before its transmit rings
	Group            *lagg.Status // nil for one link
	// Switch has what the switch did with the frames from and for this port;
	// nil in a wire.
	Switch *vale.PortStats
}

// LinkStats are the counters of one interface, over all workers.
type LinkStats struct {
	Name string
	Down bool
	// Rx and Tx are sums over the link's rings.
	Rx, Tx Counts
	Gate   *gate.GuardCounts // nil without
}

// Counts is a copy of [ring.Counters], summed over rings.
type Counts struct {
	Packets, Bytes, Syncs, Doorbells, Retries uint64
	KernelPackets, KernelDrops, KernelFreezes uint64
	Drops                                     [ring.NumCauses]uint64
}

func (c *Counts) add(r *ring.Ring) {
	s := &r.Stats
	c.Packets += s.Packets.Load()
	c.Bytes += s.Bytes.Load()
	c.Syncs += s.Syncs.Load()
	c.Doorbells += s.Doorbells.Load()
	c.Retries += s.Retries.Load()
	c.KernelPackets += s.KernelPackets.Load()
	c.KernelDrops += s.KernelDrops.Load()
	c.KernelFreezes += s.KernelFreezes.Load()
	for i := range s.Drops {
		c.Drops[i] += s.Drops[i].Load()
	}
}

// Dropped is the sum over the causes, the kernel's drops not among them.
func (c *Counts) Dropped() (n uint64) {
	for _, d := range c.Drops {
		n += d
	}
	return n
}

// Stats may be called by any goroutine at any time. Totals add up exactly once
// Run has returned and the ports are closed.
func (b *Bridge) Stats() Stats {
	s := Stats{Workers: b.sched.Stats()}
	var switched []vale.PortStats
	if b.sw != nil {
		switched = b.sw.Ports()
	}
	n := 0 // index of the link among all
	for i, p := range b.ports {
		ps := PortStats{Name: p.Name, Untaken: b.left[i].untaken.Load(), Abandoned: b.left[i].abandoned.Load(), Filtered: b.left[i].filtered.Load()}
		if switched != nil {
			ps.Switch = &switched[i]
			// Each flooded frame went to all ports but one.
			s.Copied += ps.Switch.Flooded * uint64(len(b.ports)-2)
		}
		if g := b.links[i][0].group; g != nil {
			status := g.Status()
			ps.Group = &status
		}
		for _, w := range b.workers {
			if g := w.groups[i]; g != nil {
				noLink, copied := g.counts()
				ps.NoLink += noLink
				s.Copied += copied
			}
		}
		for _, l := range b.links[i] {
			ls := LinkStats{Name: l.port.Name(), Down: l.down.Load()}
			for _, r := range l.port.RxRings() {
				ls.Rx.add(r)
			}
			for _, r := range l.port.TxRings() {
				ls.Tx.add(r)
			}
			for _, w := range b.workers {
				o := w.stations[n].out
				o.queue.Counters().AddTo(&ps.Queue)
				if o.finish != nil {
					s.Copied += o.finish.Made.Load()
					// What could not be finished was dropped there, and
					// what the pipe passed on counts at the real ring.
					for c := range ls.Tx.Drops {
						ls.Tx.Drops[c] += o.finish.Drops()[c].Load()
					}
				}
			}
			if l.guard != nil {
				c := l.guard.Counts()
				ls.Gate = &c
			}
			n++
			ps.Links = append(ps.Links, ls)
		}
		s.Ports = append(s.Ports, ps)
	}
	return s
}

// Received is the number of frames that the port's sockets saw, whatever
// became of them.
func (p *PortStats) Received() uint64 {
	n := p.Untaken
	for i := range p.Links {
		rx := &p.Links[i].Rx
		n += rx.Packets + rx.KernelDrops + rx.Dropped()
	}
	return n
}

// Sent is the number of frames that the port's devices have finished.
func (p *PortStats) Sent() (n uint64) {
	for i := range p.Links {
		n += p.Links[i].Tx.Packets
	}
	return n
}
