package poll

import "sync/atomic"

// WorkerStats are a worker's counters since the Scheduler was made.
type WorkerStats struct {
	Rounds  uint64
	Empty   uint64 // rounds that moved nothing
	Packets uint64
	Checks  uint64 // status checks
	Ticks   uint64 // clock ticks, missed ones among them
	Held    uint64 // ticks at which it kept to its share for somebody else
	Naps    uint64 // sleeps by the clock
	Waits   uint64 // sleeps in poll(2)
	Wakes   uint64 // ends of those by something that was ready
	Caught  uint64 // wakes spared: packets that found the worker awake for them
	Errors  uint64 // descriptors that signalled an error
	Load    uint64 // gauge: percent of a tick that the last pass took

	Controller ControllerCounts
}

// workerStats is written by the worker alone.
type workerStats struct {
	rounds, empty, packets, checks, ticks, held, naps, waits, wakes, caught, errors, load atomic.Uint64

	short, lost, suspect, stalled, pending, burst atomic.Uint64
}

func (s *workerStats) round(done int) {
	s.rounds.Add(1)
	if done == 0 {
		s.empty.Add(1)
	} else {
		s.packets.Add(uint64(done))
	}
}

func (s *workerStats) controller(c *Controller) {
	n := c.Counts()
	s.short.Store(n.Short)
	s.lost.Store(n.Lost)
	s.suspect.Store(n.Suspect)
	s.stalled.Store(n.Stalled)
	s.pending.Store(n.Pending)
	s.burst.Store(uint64(n.Burst))
	s.load.Store(uint64(max(c.Load(), 0)))
}

func (s *workerStats) read() WorkerStats {
	return WorkerStats{
		Rounds: s.rounds.Load(), Empty: s.empty.Load(), Packets: s.packets.Load(), Checks: s.checks.Load(), Ticks: s.ticks.Load(),
		Held: s.held.Load(), Naps: s.naps.Load(), Waits: s.waits.Load(), Wakes: s.wakes.Load(), Caught: s.caught.Load(), Errors: s.errors.Load(), Load: s.load.Load(),
		Controller: ControllerCounts{Short: s.short.Load(), Lost: s.lost.Load(), Suspect: s.suspect.Load(), Stalled: s.stalled.Load(),
			Pending: s.pending.Load(), Burst: int(s.burst.Load())},
	}
}
