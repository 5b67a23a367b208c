package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/netring/netring/internal/gen"
	"github.com/netring/netring/internal/packet"
	"github.com/netring/netring/nm"
	"github.com/netring/netring/ring"
)

// lockedBook guards a book that the thread writes and the report reads. It is
// taken per probe: streams that need more than a few million a second are
// counted with rx, not followed.
type lockedBook = sync.Mutex

// latency is a distribution of times in nanoseconds.
type latency struct {
	Kind  string `json:"kind"` // round-trip or one-way
	Count int64  `json:"count"`
	Min   int64  `json:"min_ns"`
	Mean  int64  `json:"mean_ns"`
	P50   int64  `json:"p50_ns"`
	P90   int64  `json:"p90_ns"`
	P99   int64  `json:"p99_ns"`
	P999  int64  `json:"p999_ns"`
	Max   int64  `json:"max_ns"`
	Sent  uint64 `json:"sent,omitempty"`
	Lost  uint64 `json:"lost"`
}

func (l *latency) text(w io.Writer) {
	us := func(ns int64) float64 { return float64(ns) / 1e3 }
	fmt.Fprintf(w, "  %s us: min %.1f  mean %.1f  p50 %.1f  p90 %.1f  p99 %.1f  p99.9 %.1f  max %.1f  (%d times, %d lost)\n",
		l.Kind, us(l.Min), us(l.Mean), us(l.P50), us(l.P90), us(l.P99), us(l.P999), us(l.Max), l.Count, l.Lost)
}

// histogram holds times from 1 ns to 10 s with three digits.
type histogram struct{ h *hdrhistogram.Histogram }

func newHistogram() *histogram { return &histogram{hdrhistogram.New(1, 10e9, 3)} }

// add records a time; one beyond the range counts as the range's end.
func (h *histogram) add(ns int64) { _ = h.h.RecordValue(min(max(ns, 1), 10e9)) }

func (h *histogram) latency(kind string) *latency {
	q := func(p float64) int64 { return h.h.ValueAtQuantile(p) }
	return &latency{Kind: kind, Count: h.h.TotalCount(), Min: h.h.Min(), Mean: int64(h.h.Mean()),
		P50: q(50), P90: q(90), P99: q(99), P999: q(99.9), Max: h.h.Max()}
}

// write puts the distribution into a file, as percentiles in microseconds.
func (h *histogram) write(file string) error {
	if file == "" {
		return nil
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = h.h.PercentilesPrint(f, 5, 1000)
	return errors.Join(err, f.Close())
}

// pinger sends probes and times their return.
type pinger struct {
	j    *job
	d    *nm.Desc
	b    *gen.Builder
	n    *counts
	mu   lockedBook
	book gen.Tracker
	hist *histogram
	sent uint64
}

func (j *job) ping(d *nm.Desc) ([]worker, error) {
	b, err := gen.New(j.frames, 0, 1)
	if err != nil {
		return nil, err
	}
	p := &pinger{j: j, d: d, b: b, n: &counts{}, hist: newHistogram()}
	j.counts = append(j.counts, p.n)
	j.extra = p.report
	return []worker{p}, nil
}

// pongTime is how long the last answers are waited for.
const pongTime = time.Second

func (p *pinger) run(ctx context.Context) error {
	s := p.j.schedule(0)
	frame := make([]byte, p.j.frames.Sizes.Max())
	for p.j.count == 0 || p.sent < p.j.count {
		if ctx.Err() != nil {
			break
		}
		now := p.j.clock.now()
		if s.Due(now) == 0 {
			if err := p.listen(ctx, s.Next(1)-now); err != nil {
				return err
			}
			continue
		}
		n := p.b.Next(frame, &gen.Probe{Seq: p.sent, Time: int64(p.j.clock.now()), Kind: gen.ProbePing})
		if err := p.d.Inject(frame[:n]); err != nil && !errors.Is(err, nm.ErrNoRoom) {
			return err
		}
		if err := p.d.SyncTx(); err != nil && !errors.Is(err, ring.ErrLinkDown) {
			return err
		}
		s.Sent(1)
		p.mu.Lock()
		p.sent++
		p.mu.Unlock()
		p.n.calls.Add(1)
	}
	for deadline := p.j.clock.now() + pongTime; p.book.Received < p.sent && ctx.Err() == nil; {
		left := deadline - p.j.clock.now()
		if left <= 0 {
			break
		}
		if err := p.listen(ctx, left); err != nil {
			return err
		}
	}
	return nil
}

// listen takes answers for up to d.
func (p *pinger) listen(ctx context.Context, d time.Duration) error {
	if _, err := p.d.Poll(ctx, d, nm.In); err != nil {
		if ctx.Err() != nil || errors.Is(err, ring.ErrLinkDown) {
			return nil
		}
		return err
	}
	now := p.j.clock.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for f := range p.d.Packets() {
		var probe gen.Probe
		if !gen.FindProbe(f.Frame, &probe) || probe.Kind != gen.ProbePong {
			continue
		}
		p.book.Observe(probe.Seq)
		p.hist.add(int64(now) - probe.Time)
		p.n.packets.Add(1)
		p.n.bytes.Add(uint64(len(f.Frame)))
	}
	return nil
}

func (p *pinger) report(l *line, final bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.Latency = p.hist.latency("round-trip")
	l.Latency.Sent = p.sent
	l.Latency.Lost = p.sent - min(p.sent, p.book.Received-p.book.Duplicates)
	if final {
		if err := p.hist.write(p.j.histogram); err != nil {
			p.j.log.Error("histogram file", "err", err)
		}
	}
}

// ponger answers pings.
type ponger struct {
	j *job
	d *nm.Desc
	n *counts
}

func (j *job) pong(d *nm.Desc) ([]worker, error) {
	p := &ponger{j: j, d: d, n: &counts{}}
	j.counts = append(j.counts, p.n)
	return []worker{p}, nil
}

func (p *ponger) run(ctx context.Context) error {
	for p.j.count == 0 || p.n.packets.Load() < p.j.count {
		if _, err := p.d.Poll(ctx, -1, nm.In); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if errors.Is(err, ring.ErrLinkDown) {
				time.Sleep(50 * time.Millisecond)
				continue
			}
			return err
		}
		p.n.calls.Add(1)
		for f := range p.d.Packets() {
			if answer(f.Frame) {
				if err := p.d.Inject(f.Frame); err != nil && !errors.Is(err, nm.ErrNoRoom) {
					return err
				}
				p.n.packets.Add(1)
				p.n.bytes.Add(uint64(len(f.Frame)))
			}
		}
		if err := p.d.SyncTx(); err != nil && !errors.Is(err, ring.ErrLinkDown) {
			return err
		}
	}
	return p.d.Flush(ctx)
}

// answer turns a ping into its pong in place: addresses and ports change
// sides, which leaves the checksums as they are, and the kind changes, which
// does not. It reports false for anything else.
func answer(f []byte) bool {
	var probe gen.Probe
	if !gen.FindProbe(f, &probe) || probe.Kind != gen.ProbePing {
		return false
	}
	var h packet.Packet
	packet.Parse(f, &h)
	swap(f[:6], f[6:12])
	n, at := 4, h.L3+12
	if h.Kind == packet.IPv6 {
		n, at = 16, h.L3+8
	}
	swap(f[at:at+n], f[at+n:at+2*n])
	sum := 6
	switch h.Proto {
	case packet.ProtoICMP, packet.ProtoICMPv6:
		return false // the peer's stack answers echo requests by itself
	case packet.ProtoTCP:
		sum = 16
	}
	swap(f[h.L4:h.L4+2], f[h.L4+2:h.L4+4])
	kind := f[h.Payload+4:]
	c := f[h.L4+sum:]
	was := uint16(c[0])<<8 | uint16(c[1])
	now := packet.Update16(was, uint16(gen.ProbePing), uint16(gen.ProbePong))
	if h.Proto == packet.ProtoUDP {
		now = packet.UDPChecksum(now)
	}
	kind[0], kind[1] = 0, byte(gen.ProbePong)
	c[0], c[1] = byte(now>>8), byte(now)
	return true
}

func swap(a, b []byte) {
	for i := range a {
		a[i], b[i] = b[i], a[i]
	}
}
