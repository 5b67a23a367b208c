package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/gen"
	"github.com/netring/netring/nm"
	"github.com/netring/netring/poll"
	"github.com/netring/netring/ring"
)

// receiver is a thread that counts what arrives on one ring.
type receiver struct {
	j      *job
	r      *ring.Ring
	left   uint64
	bound  bool
	n      *counts
	each   func(frame []byte, now time.Duration) // for numbered streams, nil to count only
	match  *atomic.Pointer[matcher]              // counts these frames only, unless nil
	kernel time.Duration                         // when the kernel was last asked for its drops
}

// A receiver that found gather packets and only counts them lets more come for
// about napTime. Asleep by the clock it need not be woken for each batch, which
// the sender's core would have to do, and would send less for it.
const (
	gather  = 16
	napTime = 50 * time.Microsecond
)

// nap sleeps for napTime, without the Go scheduler's part in it. If a signal
// cuts it short, the next batch is smaller.
func nap() {
	ts := unix.NsecToTimespec(int64(napTime))
	_ = unix.Nanosleep(&ts, nil)
}

func (j *job) receivers(d *nm.Desc) (w []worker, err error) {
	for i, r := range d.RxRings() {
		t := &receiver{j: j, r: r, left: share(j.count, i, len(d.RxRings())), bound: j.count != 0, n: &counts{}}
		j.counts = append(j.counts, t.n)
		w = append(w, t)
	}
	if len(w) == 0 {
		return nil, fmt.Errorf("%s has no receive ring", j.port)
	}
	if j.function == "rxseq" {
		s := newStreamBook(j)
		w[0].(*receiver).each = s.observe
		j.extra = s.report
	}
	return w, nil
}

func (t *receiver) run(ctx context.Context) error {
	waiter, err := poll.NewWaiter()
	if err != nil {
		return err
	}
	defer waiter.Close()
	last := t.j.clock.now()
	for !t.bound || t.left > 0 {
		ready, err := waiter.Wait(ctx, 100*time.Millisecond, t.r)
		t.n.calls.Add(1)
		now := t.j.clock.now()
		switch {
		case ctx.Err() != nil:
			return t.finish()
		case errors.Is(err, ring.ErrLinkDown):
			// It may come back; meanwhile nothing arrives.
			time.Sleep(50 * time.Millisecond)
		case err != nil:
			return errors.Join(err, t.finish())
		case ready:
			last = now
			if n := t.take(now); n >= gather && t.each == nil {
				nap()
			}
		}
		if now-t.kernel > 100*time.Millisecond {
			t.refresh(now)
		}
		if t.j.exitIdle != 0 && now-last > t.j.exitIdle {
			t.j.log.Info("nothing received: stopping", "for", t.j.exitIdle)
			return t.finish()
		}
	}
	return t.finish()
}

// take counts what the last sync brought, and no more than is asked for. It
// returns the number of packets.
func (t *receiver) take(now time.Duration) (packets uint64) {
	var bytes, supers uint64
	r := t.r
	for r.Head != r.Tail() && (!t.bound || packets < t.left) {
		s := r.Slot(r.Head)
		switch {
		case t.match != nil && !t.match.Load().ours(r.Frame(r.Head)):
		case s.Flags&ring.SlotGSO != 0:
			frames, size := onWire(r, r.Head)
			packets, bytes, supers = packets+frames, bytes+size, supers+1
		case s.Flags&ring.SlotMoreFrag == 0:
			packets++
			fallthrough
		default:
			bytes += uint64(s.Len)
		}
		if t.each != nil {
			t.each(r.Frame(r.Head), now)
		}
		r.Head++
	}
	r.Cur = r.Head
	t.n.packets.Add(packets)
	t.n.bytes.Add(bytes)
	t.n.supers.Add(supers)
	if t.bound {
		t.left -= min(t.left, packets) // the last super-frame may bring more
	}
	return packets
}

// onWire is how many frames, and bytes of them, the super-frame in slot k is
// on a wire: its payload in segments, each behind headers of its own.
func onWire(r *ring.Ring, k uint32) (frames, bytes uint64) {
	n := uint64(r.Slot(k).Len)
	var v ring.Vnet
	if !r.Vnet(k, &v) || v.GSOSize == 0 || v.Flags&ring.VnetNeedCsum == 0 {
		return 1, n
	}
	// Not HdrLen: that is how much the kernel wants to be contiguous.
	f, head := r.Frame(k), int(v.CsumStart)
	switch v.GSOType &^ ring.VnetGSOECN {
	case ring.VnetGSOUDPL4:
		head += 8
	case ring.VnetGSOTCPv4, ring.VnetGSOTCPv6:
		if head+12 >= len(f) {
			return 1, n
		}
		head += int(f[head+12]>>4) * 4
	default:
		return 1, n
	}
	if head >= len(f) {
		return 1, n
	}
	payload, size := uint64(len(f)-head), uint64(v.GSOSize)
	frames = (payload + size - 1) / size
	return frames, payload + frames*uint64(head)
}

func (t *receiver) refresh(now time.Duration) error {
	t.kernel = now
	err := t.r.Refresh()
	t.n.dropped.Store(t.r.Stats.KernelDrops.Load())
	if errors.Is(err, ring.ErrLinkDown) {
		return nil
	}
	return err
}

func (t *receiver) finish() error { return t.refresh(t.j.clock.now()) }

// stream is what became of a numbered stream.
type stream struct {
	Numbered   uint64 `json:"numbered"`
	Lost       uint64 `json:"lost"`
	Duplicates uint64 `json:"duplicates"`
	Reordered  uint64 `json:"reordered"`
	Stale      uint64 `json:"stale"`
	Other      uint64 `json:"other"` // frames without a number
}

func (s *stream) text(w io.Writer) {
	fmt.Fprintf(w, "  numbered %d  lost %d  duplicates %d  reordered %d  too old to tell %d  other %d\n",
		s.Numbered, s.Lost, s.Duplicates, s.Reordered, s.Stale, s.Other)
}

// streamBook follows a numbered stream; one-way times are right if the sender
// is on the same machine.
type streamBook struct {
	mu    lockedBook
	track gen.Tracker
	other uint64
	hist  *histogram
	j     *job
}

func (b *streamBook) observe(frame []byte, now time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var p gen.Probe
	if !gen.FindProbe(frame, &p) || p.Kind != gen.ProbeSeq {
		b.other++
		return
	}
	b.track.Observe(p.Seq)
	if d := int64(now) - p.Time; d >= 0 {
		b.hist.add(d)
	}
}

func newStreamBook(j *job) *streamBook { return &streamBook{hist: newHistogram(), j: j} }

func (b *streamBook) report(l *line, final bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := &b.track
	l.Stream = &stream{t.Received, t.Lost(), t.Duplicates, t.Reordered, t.Stale, b.other}
	if final {
		l.Latency = b.hist.latency("one-way")
		if err := b.hist.write(b.j.histogram); err != nil {
			b.j.log.Error("histogram file", "err", err)
		}
	}
}
