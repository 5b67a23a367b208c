package sched

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/netring/netring/ring"
)

func (g *rig) wantIDs(want []uint32) {
	g.t.Helper()
	if got := g.ids(); !slices.Equal(got, want) {
		g.t.Fatalf("sent %v, want %v", got, want)
	}
}

func (g *rig) wantDrops(cause ring.Cause, n uint64) {
	g.t.Helper()
	if got := g.tx.Stats.Drops[cause].Load(); got != n {
		g.t.Fatalf("%d drops (%v), want %d", got, cause, n)
	}
}

// With everything off, a queue is Move and one Sync per Flush.
func TestQueueOff(t *testing.T) {
	g := newRig(t, Options{}, txConfig{})
	g.dev.auto = true
	g.arrive(10, 60, false)
	if n := g.Move(g.rx, 4); n != 4 {
		t.Fatalf("took %d of 4", n)
	}
	if n := g.Move(g.rx, 100); n != 6 {
		t.Fatalf("took %d of 6", n)
	}
	if n := g.Move(g.rx, 1); n != 0 {
		t.Fatalf("took %d of none", n)
	}
	if got := g.tx.Stats.Syncs.Load(); got != 0 {
		t.Fatalf("%d syncs before the end of the round", got)
	}
	g.flush()
	g.flush()
	if got := g.tx.Stats.Syncs.Load(); got != 1 {
		t.Fatalf("%d syncs after the round", got)
	}
	g.wantIDs(seq(0, 10))
	if c := g.Counters(); c.Direct.Load() != 10 || c.BellRollup.Load() != 1 {
		t.Fatalf("direct %d, doorbells %d", c.Direct.Load(), c.BellRollup.Load())
	}
	// No room and nothing waits: dropped.
	g.dev.auto = false
	g.arrive(20, 60, false)
	if n := g.Move(g.rx, 20); n != 20 {
		t.Fatalf("took %d of 20", n)
	}
	g.flush()
	g.wantDrops(ring.DropFull, 4)
}

func TestQueueStaging(t *testing.T) {
	g := newRig(t, Options{StagePackets: 4, StageBytes: 300}, txConfig{slots: 64})
	g.dev.auto = true
	g.arrive(10, 60, false)
	g.Move(g.rx, 10)
	if len(g.dev.out) != 8 || g.stage.Waiting() != 2 {
		t.Fatalf("%d sent, %d staged; want 8, 2", len(g.dev.out), g.stage.Waiting())
	}
	g.arrive(1, 200, false)
	g.Move(g.rx, 1) // 120 + 200 bytes
	if len(g.dev.out) != 11 {
		t.Fatalf("%d sent; want 11, as the bytes are reached", len(g.dev.out))
	}
	g.arrive(3, 60, false)
	g.Move(g.rx, 3)
	g.flush()
	g.wantIDs(seq(0, 14))
	if c := g.Counters(); c.BellStaged.Load() != 3 || c.BellRollup.Load() != 1 {
		t.Fatalf("staged doorbells %d, roll-ups %d", c.BellStaged.Load(), c.BellRollup.Load())
	}
}

// A full ring sets oactive, frames wait, those with priority leave first, and
// completions clear it.
func TestQueueWaitsAndPrefers(t *testing.T) {
	g := newRig(t, Options{QueuePackets: 32, Classifier: lacp(t)}, txConfig{slots: 4})
	g.arrive(8, 60, false)
	g.arrive(2, 60, true)
	if n := g.Move(g.rx, 10); n != 10 {
		t.Fatalf("took %d of 10", n)
	}
	g.flush()
	c := g.Counters()
	if c.OActives.Load() != 1 || c.OActive.Load() != 1 || c.Waiting.Load() != 6 || c.Priority.Load() != 2 {
		t.Fatalf("oactive %d times, now %d; waiting %d, of %d with priority",
			c.OActives.Load(), c.OActive.Load(), c.Waiting.Load(), c.Priority.Load())
	}
	g.dev.finish(3)
	g.flush()
	g.dev.finish(100)
	g.flush()
	g.dev.finish(100)
	g.flush()
	g.wantIDs([]uint32{0, 1, 2, 3, 8, 9, 4, 5, 6, 7})
	if c.OActive.Load() != 0 || c.Waiting.Load() != 0 || c.Direct.Load() != 4 || c.Queued.Load() != 6 {
		t.Fatalf("oactive %d, waiting %d, direct %d, queued %d",
			c.OActive.Load(), c.Waiting.Load(), c.Direct.Load(), c.Queued.Load())
	}
}

func TestQueueFull(t *testing.T) {
	for _, full := range []Full{Drop, Backpressure} {
		t.Run(full.String(), func(t *testing.T) {
			g := newRig(t, Options{QueuePackets: 4, Rule: Evict, Full: full, Classifier: lacp(t)}, txConfig{slots: 4})
			g.arrive(10, 60, false)
			n := g.Move(g.rx, 10)
			g.flush()
			c := g.Counters()
			if full == Backpressure {
				if n != 8 || g.rx.Space() != 2 || c.Held.Load() != 1 || g.tx.Stats.Dropped() != 0 {
					t.Fatalf("took %d, left %d, held %d, dropped %d", n, g.rx.Space(), c.Held.Load(), g.tx.Stats.Dropped())
				}
				g.Copy(g.rx, g.rx.Head) // cannot be held back
				g.flush()
				g.wantDrops(ring.DropFull, 1)
				return
			}
			if n != 10 || c.Evicted[EvictForNewer].Load() != 2 {
				t.Fatalf("took %d, evicted %d", n, c.Evicted[EvictForNewer].Load())
			}
			g.arrive(3, 60, true)
			g.Move(g.rx, 3)
			g.flush()
			if p, e := c.Evicted[EvictForPriority].Load(), c.Evicted[EvictPriority].Load(); p != 2 || e != 1 {
				t.Fatalf("evicted %d for priority, %d with it", p, e)
			}
			g.wantDrops(ring.DropFull, 5)
			for range 4 {
				g.dev.finish(4)
				g.flush()
			}
			g.wantIDs([]uint32{0, 1, 2, 3, 11, 12, 8, 9})
		})
	}
}

// The limit stops the direct path before the ring is full, and what it counts
// is exactly what is outstanding.
func TestQueueLimit(t *testing.T) {
	g := newRig(t, Options{Limit: true, LimitHold: time.Second, QueuePackets: 64}, txConfig{slots: 64})
	g.arrive(40, 100, false)
	g.Move(g.rx, 40)
	g.flush()
	c := g.Counters()
	if got := g.tx.Pending(); got != 1 {
		t.Fatalf("%d frames in the ring at limit 0", got)
	}
	if c.LimitStops.Load() != 1 || c.OActives.Load() != 0 || c.Inflight.Load() != 100 {
		t.Fatalf("limit stops %d, oactive %d, inflight %d", c.LimitStops.Load(), c.OActives.Load(), c.Inflight.Load())
	}
	for range 10 {
		g.dev.finish(64)
		g.clk.Set(g.clk.Now() + int64(time.Millisecond))
		g.flush()
		if want := uint64(100 * g.tx.Pending()); c.Inflight.Load() != want {
			t.Fatalf("inflight %d, outstanding %d", c.Inflight.Load(), want)
		}
	}
	g.wantIDs(seq(0, 40))
	if c.Limit.Load() == 0 || c.LimitGrown.Load() == 0 {
		t.Fatalf("limit %d, grown %d", c.Limit.Load(), c.LimitGrown.Load())
	}
	if q, done := g.limit.p.queued.Load(), g.limit.c.completed; q != done || q != 4000 {
		t.Fatalf("limit queued %d, completed %d", q, done)
	}
}

// A device that finishes at once never makes anything wait, whatever the limit.
func TestQueueLimitSynchronous(t *testing.T) {
	g := newRig(t, Options{Limit: true, QueuePackets: 4}, txConfig{slots: 64})
	g.dev.auto = true
	for range 10 {
		g.arrive(30, 100, false)
		g.Move(g.rx, 30)
		g.flush()
	}
	g.wantIDs(seq(0, 300))
	if c := g.Counters(); c.Direct.Load() != 300 || c.Queued.Load() != 0 {
		t.Fatalf("direct %d, queued %d", c.Direct.Load(), c.Queued.Load())
	}
}

func TestQueueLinkDown(t *testing.T) {
	g := newRig(t, Options{Limit: true, StagePackets: 2, QueuePackets: 8}, txConfig{slots: 8})
	g.arrive(12, 60, false)
	g.Move(g.rx, 12) // one in the device's hands, some wait
	g.dev.err, g.dev.accept = ring.ErrLinkDown, 0
	g.dev.finish(1)
	if err := g.Flush(); !errors.Is(err, ring.ErrLinkDown) {
		t.Fatalf("flush: %v", err)
	}
	if g.Waiting() != 0 {
		t.Fatalf("%d wait for a dead link", g.Waiting())
	}
	for range 3 {
		g.arrive(4, 60, false)
		if n := g.Move(g.rx, 4); n != 4 {
			t.Fatalf("took %d of 4", n)
		}
		if err := g.Flush(); !errors.Is(err, ring.ErrLinkDown) {
			t.Fatalf("flush: %v", err)
		}
	}
	full, link := g.tx.Stats.Drops[ring.DropFull].Load(), g.tx.Stats.Drops[ring.DropLink].Load()
	if len(g.dev.out) != 1 || full+link != 23 || link < 20-full {
		t.Fatalf("sent %d, dropped %d full, %d link", len(g.dev.out), full, link)
	}
	if c := g.Counters(); c.Inflight.Load() != 0 || g.limit.p.queued.Load() != g.limit.c.completed {
		t.Fatalf("inflight %d, limit queued %d, completed %d", c.Inflight.Load(), g.limit.p.queued.Load(), g.limit.c.completed)
	}
	// It comes back by itself.
	g.dev.err, g.dev.auto = nil, true
	first := g.arrive(3, 60, false)
	g.Move(g.rx, 3)
	g.flush()
	g.wantIDs(append([]uint32{0}, seq(first, 3)...))
}

// While the link is down, frames in the device's hands are not stalled: the
// ring goes on with them when the link is back.
func TestQueueLinkDownIsNoStall(t *testing.T) {
	g := newRig(t, Options{QueuePackets: 8, Watchdog: 5 * time.Second}, txConfig{slots: 8})
	g.arrive(4, 60, false)
	g.Move(g.rx, 4)
	g.flush()
	g.dev.err = ring.ErrLinkDown
	for range 20 {
		g.clk.Set(g.clk.Now() + int64(time.Second))
		if err := g.Flush(); !errors.Is(err, ring.ErrLinkDown) || errors.Is(err, ErrStalled) {
			t.Fatalf("flush: %v", err)
		}
	}
	g.dev.err, g.dev.auto = nil, true
	g.flush()
	g.dev.finish(8)
	g.flush()
	g.wantIDs(seq(0, 4))
	if n := g.Counters().Watchdog.Load(); n != 0 {
		t.Fatalf("reset %d times", n)
	}
}

// An error that may pass leaves frames in place.
func TestQueueRetries(t *testing.T) {
	g := newRig(t, Options{Limit: true, LimitMin: 10000}, txConfig{slots: 8})
	g.dev.auto = true
	g.arrive(1, 60, false)
	g.Move(g.rx, 1)
	g.flush()
	g.arrive(5, 60, false)
	g.dev.err, g.dev.accept = errors.New("no buffer space"), 2
	g.Move(g.rx, 5)
	if err := g.Flush(); err == nil {
		t.Fatal("no error")
	}
	g.dev.err = nil
	g.flush()
	g.wantIDs(seq(0, 6))
	if g.tx.Stats.Dropped() != 0 || g.limit.p.queued.Load() != g.limit.c.completed {
		t.Fatalf("dropped %d, limit queued %d, completed %d", g.tx.Stats.Dropped(), g.limit.p.queued.Load(), g.limit.c.completed)
	}
}

func TestQueueWatchdog(t *testing.T) {
	for _, noReset := range []bool{false, true} {
		g := newRig(t, Options{Limit: true, LimitMin: 1000, QueuePackets: 8, Watchdog: 5 * time.Second}, txConfig{slots: 8})
		g.dev.noReset = noReset
		at := func(d time.Duration) { g.clk.Set(int64(d)) }
		at(100 * time.Second) // idle time does not count
		g.flush()
		g.arrive(4, 60, false)
		g.Move(g.rx, 4)
		g.flush()
		at(103 * time.Second)
		g.dev.finish(1) // a sign of life
		g.flush()
		at(108*time.Second - 1)
		g.flush()
		at(108 * time.Second)
		err := g.Flush()
		if !errors.Is(err, ErrStalled) || errors.Is(err, errors.ErrUnsupported) != noReset {
			t.Fatalf("after 5 s: %v", err)
		}
		c := g.Counters()
		if c.Watchdog.Load() != 1 {
			t.Fatalf("watchdog counted %d", c.Watchdog.Load())
		}
		g.flush() // not again at once
		if noReset {
			at(113 * time.Second)
			if err := g.Flush(); !errors.Is(err, ErrStalled) {
				t.Fatalf("after 5 s more: %v", err)
			}
			continue
		}
		if g.tx.Space() != 8 || g.dev.lost != 3 || c.Inflight.Load() != 0 {
			t.Fatalf("after the reset: room %d, lost %d, inflight %d", g.tx.Space(), g.dev.lost, c.Inflight.Load())
		}
		g.dev.auto = true
		g.arrive(4, 60, false)
		g.Move(g.rx, 4)
		g.flush()
		g.wantIDs([]uint32{0, 4, 5, 6, 7})
		if g.limit.p.queued.Load() != g.limit.c.completed {
			t.Fatalf("limit queued %d, completed %d", g.limit.p.queued.Load(), g.limit.c.completed)
		}
	}
}

// A frame that waits keeps its header and flags, super-frames included.
func TestQueueKeepsVnet(t *testing.T) {
	g := newRig(t, Options{QueuePackets: 8}, txConfig{slots: 2, bufSize: 1 << 17, vnet: ring.VnetLenMrg})
	v := ring.Vnet{Flags: ring.VnetNeedCsum, GSOType: ring.VnetGSOTCPv4, HdrLen: 54, GSOSize: 1448, CsumStart: 34, CsumOffset: 16}
	for i := range uint32(3) {
		g.in.put(t, numbered(i, 1514, false), 0, ring.Vnet{}, 0)
	}
	g.in.put(t, numbered(3, 60000, false), ring.SlotVnet|ring.SlotGSO|ring.SlotVLAN, v, 3000)
	g.Move(g.rx, 4)
	for range 3 {
		g.flush()
		g.dev.finish(2)
	}
	g.flush()
	g.wantIDs(seq(0, 4))
	last := g.dev.out[3]
	if last.vnet != v || last.flags != ring.SlotVnet|ring.SlotGSO|ring.SlotVLAN || len(last.data) != 60000 {
		t.Fatalf("%d bytes, flags %b, header %+v", len(last.data), last.flags, last.vnet)
	}
	if g.dev.out[2].flags != 0 {
		t.Fatalf("flags %b of a plain frame", g.dev.out[2].flags)
	}
	if len(g.store.mem) == 0 || countFree(g.store) != len(g.store.next) {
		t.Fatalf("%d chunks free of %d", countFree(g.store), len(g.store.next))
	}
}

func countFree(s *store) (n int) {
	for c := s.free; c != noChunk; c = s.next[c] {
		n++
	}
	return n
}

func TestQueueCopy(t *testing.T) {
	g := newRig(t, Options{QueuePackets: 2}, txConfig{slots: 2})
	g.arrive(1, 60, false)
	for range 5 {
		g.Copy(g.rx, g.rx.Head)
	}
	if g.rx.Space() != 1 {
		t.Fatal("copy took the frame")
	}
	for range 3 {
		g.flush()
		g.dev.finish(2)
	}
	g.flush()
	g.wantIDs([]uint32{0, 0, 0, 0})
	g.wantDrops(ring.DropFull, 1)
	if c := g.Counters(); c.Direct.Load() != 2 || c.Queued.Load() != 2 || c.Refused.Load() != 1 {
		t.Fatalf("direct %d, queued %d, refused %d", c.Direct.Load(), c.Queued.Load(), c.Refused.Load())
	}
}

// What the transmit ring can never send is dropped under its own cause,
// whether it would go directly or wait.
func TestQueueUnsendable(t *testing.T) {
	for _, wait := range []bool{false, true} {
		g := newRig(t, Options{QueuePackets: 8, Limit: true, LimitMin: 100000}, txConfig{slots: 2})
		g.flush()
		if wait {
			g.arrive(3, 60, false)
		}
		g.in.put(t, numbered(50, 1515, false), 0, ring.Vnet{}, 0)
		g.in.put(t, numbered(51, 60, false), ring.SlotVnet, ring.Vnet{}, 0)
		g.in.put(t, numbered(52, 3000, false), 0, ring.Vnet{}, 1000)
		g.Move(g.rx, 6)
		g.flush()
		g.dev.finish(2)
		g.flush()
		g.wantDrops(ring.DropOversize, 2)
		g.wantDrops(ring.DropOffload, 1)
		if g.rx.Space() != 0 || g.Waiting() != 0 {
			t.Fatalf("%d left, %d wait", g.rx.Space(), g.Waiting())
		}
	}
}

func TestQueuePurge(t *testing.T) {
	g := newRig(t, Options{QueuePackets: 8, StagePackets: 100}, txConfig{slots: 4})
	g.arrive(3, 60, false)
	g.Move(g.rx, 3)
	g.Purge(ring.DropClosed)
	g.wantDrops(ring.DropClosed, 3)
	g.arrive(6, 60, false)
	g.Move(g.rx, 6)
	g.Purge(ring.DropClosed) // the device has 4, 2 wait
	g.wantDrops(ring.DropClosed, 5)
	if g.tx.Head != g.tx.Accepted() || g.Waiting() != 0 {
		t.Fatalf("head %d, accepted %d, waiting %d", g.tx.Head, g.tx.Accepted(), g.Waiting())
	}
}
