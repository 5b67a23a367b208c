package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/netring/netring/internal/gen"
	"github.com/netring/netring/nm"
	"github.com/netring/netring/ring"
)

// sender is a thread that fills a transmit ring.
type sender struct {
	j     *job
	r     *ring.Ring
	b     *gen.Builder
	s     *gen.Schedule
	left  uint64 // frames still to be sent, if bounded
	bound bool
	probe gen.Probe
	n     *counts
	base  struct{ packets, bytes, refused, bells uint64 } // of the ring before this sender
	super *superFrames                                    // with engine gso
	// Of each buffer of an interface, which nobody else writes to: it is
	// primed for b. Nil for other ports.
	primed []bool
}

// drainTime is how long a sender waits for what it has handed over.
const drainTime = time.Second

func (j *job) sender(r *ring.Ring, i int) (*sender, error) {
	b, err := gen.New(j.frames, i, j.threads)
	if err != nil {
		return nil, err
	}
	if n, most := j.frames.Sizes.Max(), largest(r, len(j.frames.Tags)); n > most {
		return nil, fmt.Errorf("frames of %d bytes: %s sends up to %d; use smaller ones or raise the MTU", n, j.spec.Name, most)
	}
	t := &sender{j: j, r: r, b: b, left: share(j.count, i, j.threads), bound: j.count != 0, n: &counts{}}
	t.base.packets, t.base.bytes = r.Stats.Packets.Load(), r.Stats.Bytes.Load()
	t.base.refused, t.base.bells = r.Stats.Drops[ring.DropRefused].Load(), r.Stats.Doorbells.Load()
	j.counts = append(j.counts, t.n)
	if j.engine == "gso" {
		t.super, err = newSuperFrames(t)
	}
	if s := j.spec; s.Pipe == "" && (s.Kind == nm.KindNetmap || s.Kind == nm.KindXDP) {
		t.primed = make([]bool, r.Region().Bufs())
	}
	return t, err
}

func (t *sender) run(ctx context.Context) error {
	t.s = t.j.schedule(0)
	if t.j.threads > 1 {
		for i, c := range t.j.counts {
			if c == t.n {
				t.s = t.j.schedule(i)
			}
		}
	}
	stop := ctx.Done()
	for !t.bound || t.left > 0 {
		select {
		case <-stop:
			return t.drain()
		default:
		}
		now := t.j.clock.now()
		due := t.s.Due(now)
		least := t.j.rates.cost(14)
		if due < least {
			t.sleep(t.s.Next(least)-now, stop)
			continue
		}
		if err := t.burst(due, now); err != nil {
			return err
		}
	}
	return t.drain()
}

// sleep waits for d: what is short by spinning, so that the schedule is kept.
func (t *sender) sleep(d time.Duration, stop <-chan struct{}) {
	const spin = 150 * time.Microsecond
	if d <= spin {
		return
	}
	timer := time.NewTimer(d - spin)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-stop:
	}
}

// burst sends what is due, at most one burst, and counts what is done.
func (t *sender) burst(due uint64, now time.Duration) error {
	var cost uint64
	if t.super != nil {
		cost = t.super.fill(due)
	} else {
		cost = t.fill(due, now)
	}
	t.s.Sent(cost)
	return t.push()
}

// push hands over what has been put into the ring.
func (t *sender) push() error {
	err := t.r.Sync()
	t.collect()
	if errors.Is(err, ring.ErrLinkDown) {
		// The link may come back; the frames wait in the ring.
		time.Sleep(time.Millisecond)
		return nil
	}
	return err
}

// fill puts up to a burst of frames into the ring and returns what they take
// of the rate.
func (t *sender) fill(due uint64, now time.Duration) (cost uint64) {
	r, rates := t.r, &t.j.rates
	room := min(t.j.burst, r.Space())
	if t.bound {
		room = int(min(uint64(room), t.left))
	}
	t.probe.Time = int64(now)
	n, k, least := 0, r.Head, rates.cost(14)
	for ; n < room && cost+least <= due; n++ {
		s := r.Slot(k)
		size := t.frame(r.Buf(k), s)
		if size == 0 {
			break
		}
		t.probe.Seq++
		s.Len, s.Flags = uint32(size), 0
		cost += rates.cost(size)
		k++
	}
	r.Head, r.Cur = k, k
	t.left -= uint64(n)
	return cost
}

// frame writes the next frame into the buffer of slot s and returns its size; 0
// if it does not fit. What all frames have in common is written to a buffer once:
// at 1514 bytes that is most of the work.
func (t *sender) frame(buf []byte, s *ring.Slot) int {
	if s.Buf >= uint32(len(t.primed)) {
		return t.b.Next(buf, &t.probe)
	}
	if !t.primed[s.Buf] {
		if !t.b.Prime(buf) {
			return t.b.Next(buf, &t.probe)
		}
		t.primed[s.Buf] = true
	}
	return t.b.NextIn(buf, &t.probe)
}

// collect brings the counts up to date: what the ring says is completed.
func (t *sender) collect() {
	if t.super != nil {
		t.super.collect()
	} else {
		t.n.packets.Store(t.r.Stats.Packets.Load() - t.base.packets)
		t.n.bytes.Store(t.r.Stats.Bytes.Load() - t.base.bytes)
		t.n.refused.Store(t.r.Stats.Drops[ring.DropRefused].Load() - t.base.refused)
	}
	t.n.calls.Store(t.r.Stats.Doorbells.Load() - t.base.bells)
	if t.s != nil {
		t.n.late.Store(t.s.Late())
	}
}

// drain waits until what was handed over is done.
func (t *sender) drain() error {
	for deadline := time.Now().Add(drainTime); t.r.Pending() > 0; {
		err := t.r.Sync()
		t.collect()
		if err != nil {
			return fmt.Errorf("%d frames were not sent: %w", t.r.Pending(), err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d frames were not sent within %v", t.r.Pending(), drainTime)
		}
	}
	t.collect()
	return nil
}
