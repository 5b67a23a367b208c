package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"sync/atomic"
	"time"

	"github.com/netring/netring/internal/gen"
)

// counts are the books of one thread. The thread adds once per burst; the
// report reads.
type counts struct {
	packets atomic.Uint64 // sent and completed, or received
	bytes   atomic.Uint64 // of those frames, without checksum
	refused atomic.Uint64 // by the kernel or device
	dropped atomic.Uint64 // by the kernel, as the receive ring was full
	late    atomic.Uint64 // packets (bits) of the schedule that were given up
	calls   atomic.Uint64 // system calls that sent or waited
	supers  atomic.Uint64 // super-frames among what was received
	skipped atomic.Uint64 // packets of a capture that cannot be sent
}

// totals is a sum of counts at one time.
type totals struct {
	at                                            time.Duration
	packets, bytes, refused, dropped, late, calls uint64
	supers, skipped                               uint64
}

func sum(at time.Duration, all []*counts) totals {
	t := totals{at: at}
	for _, c := range all {
		t.packets += c.packets.Load()
		t.bytes += c.bytes.Load()
		t.refused += c.refused.Load()
		t.dropped += c.dropped.Load()
		t.late += c.late.Load()
		t.calls += c.calls.Load()
		t.supers += c.supers.Load()
		t.skipped += c.skipped.Load()
	}
	return t
}

// line is one report. Its JSON keys are documented in docs/pktgen.md.
type line struct {
	Type     string  `json:"type"` // interval or final
	Function string  `json:"function"`
	Engine   string  `json:"engine,omitempty"`
	Port     string  `json:"port"`
	Seconds  float64 `json:"seconds"`
	Packets  uint64  `json:"packets"`
	Bytes    uint64  `json:"bytes"`
	PPS      float64 `json:"pps"`
	L2       float64 `json:"bits_per_second_l2"` // frames without checksum
	L1       float64 `json:"bits_per_second_l1"` // whole time on the wire
	Refused  uint64  `json:"refused_packets"`
	Dropped  uint64  `json:"dropped_packets"`
	Late     uint64  `json:"late"`
	Calls    uint64  `json:"system_calls"`
	Supers   uint64  `json:"super_frames,omitempty"`    // received: how many were larger than a frame
	Skipped  uint64  `json:"skipped_packets,omitempty"` // replay: not to be sent
	CutBy    string  `json:"segmented_by,omitempty"`    // gso: who makes frames of super-frames
	AskedPPS float64 `json:"asked_pps,omitempty"`
	AskedBPS float64 `json:"asked_bits_per_second,omitempty"`

	Mean      *float64 `json:"mean_pps,omitempty"`
	Deviation *float64 `json:"deviation_pps,omitempty"`

	Stream  *stream  `json:"stream,omitempty"`
	Latency *latency `json:"latency,omitempty"`
}

func (p *plan) line(kind string, a, b totals) line {
	l := line{Type: kind, Function: p.function, Port: p.spec.String(), Seconds: (b.at - a.at).Seconds(),
		Packets: b.packets - a.packets, Bytes: b.bytes - a.bytes, Refused: b.refused - a.refused,
		Dropped: b.dropped - a.dropped, Late: b.late - a.late, Calls: b.calls - a.calls,
		Supers: b.supers - a.supers, Skipped: b.skipped - a.skipped}
	if p.function == "tx" {
		l.Engine, l.CutBy = p.engine, p.segmentedBy
	}
	l.rates(l.Packets, l.Bytes, l.Seconds)
	if p.rates.bits {
		l.AskedBPS = float64(p.rates.per)
	} else {
		l.AskedPPS = float64(p.rates.per)
	}
	return l
}

func (l *line) rates(packets, bytes uint64, seconds float64) {
	if seconds > 0 {
		l.PPS = float64(packets) / seconds
		l.L2 = float64(bytes) * 8 / seconds
		l.L1 = float64(bytes+packets*gen.WireOverhead) * 8 / seconds
	}
}

// reporter prints a line per interval.
type reporter struct {
	p     *plan
	all   []*counts
	clock func() time.Duration
	last  totals
	warm  *totals // where the rates of the summary begin
	past  []float64
	extra func(l *line, final bool) // adds what only one function has
}

// loop prints a line per interval until done.
func (r *reporter) loop(interval time.Duration, done <-chan struct{}) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.tick()
		case <-done:
			return
		}
	}
}

func (r *reporter) tick() {
	now := sum(r.clock(), r.all)
	if r.warm == nil && now.at >= r.p.warmup {
		r.warm = &now
	}
	l := r.p.line("interval", r.last, now)
	r.last = now
	if r.p.average {
		l.Mean, l.Deviation = r.moving(l.PPS)
	}
	r.print(&l, false)
}

// moving is the mean and standard deviation of the last 10 rates.
func (r *reporter) moving(pps float64) (mean, dev *float64) {
	if r.past = append(r.past, pps); len(r.past) > 10 {
		r.past = r.past[1:]
	}
	var m, v float64
	for _, x := range r.past {
		m += x / float64(len(r.past))
	}
	for _, x := range r.past {
		v += (x - m) * (x - m) / float64(len(r.past))
	}
	v = math.Sqrt(v)
	return &m, &v
}

// final prints the summary: exact totals of the whole run, rates without the
// warm-up, up to when the last packet was handed over.
func (r *reporter) final(end time.Duration) {
	now := sum(r.clock(), r.all)
	l := r.p.line("final", totals{}, now)
	l.Seconds = end.Seconds()
	l.rates(l.Packets, l.Bytes, l.Seconds)
	if r.warm != nil && r.p.warmup > 0 && end > r.warm.at {
		l.rates(now.packets-r.warm.packets, now.bytes-r.warm.bytes, (end - r.warm.at).Seconds())
	}
	r.print(&l, true)
}

func (r *reporter) print(l *line, final bool) {
	if r.extra != nil {
		r.extra(l, final)
	}
	if r.p.json {
		b, err := json.Marshal(l)
		if err != nil {
			r.p.log.Error("report", "err", err)
			return
		}
		fmt.Fprintf(r.p.out, "%s\n", b)
		return
	}
	r.p.text(r.p.out, l, final)
}

func (p *plan) text(w io.Writer, l *line, final bool) {
	u := p.unit
	if final {
		fmt.Fprintf(w, "total: ")
	}
	fmt.Fprintf(w, "%spps  %sbit/s l2  %sbit/s l1  (%d packets, %d bytes in %.3f s)", u(l.PPS), u(l.L2), u(l.L1), l.Packets, l.Bytes, l.Seconds)
	for _, x := range []struct {
		name string
		n    uint64
	}{{"refused", l.Refused}, {"dropped", l.Dropped}, {"late", l.Late}, {"skipped", l.Skipped}, {"in super-frames", l.Supers}} {
		if x.n != 0 {
			fmt.Fprintf(w, "  %s %d", x.name, x.n)
		}
	}
	if l.Mean != nil {
		fmt.Fprintf(w, "  mean %spps deviation %spps", u(*l.Mean), u(*l.Deviation))
	}
	if final && p.rates.per != 0 {
		asked, got, name := float64(p.rates.per), l.PPS, "pps"
		if p.rates.bits {
			name, got = "bit/s l1", l.L1
			if p.rates.extra == 0 {
				name, got = "bit/s l2", l.L2
			}
		}
		fmt.Fprintf(w, "  asked %s%s, got %.2f %%", u(asked), name, 100*got/asked)
	}
	fmt.Fprintln(w)
	if l.Stream != nil {
		l.Stream.text(w)
	}
	if l.Latency != nil && final {
		l.Latency.text(w)
	}
}

// unit prints a number with a unit prefix, or plain with -N.
func (p *plan) unit(x float64) string {
	if p.raw {
		return fmt.Sprintf("%.0f ", x)
	}
	for _, s := range []struct {
		at   float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if x >= s.at {
			return fmt.Sprintf("%.3f %s", x/s.at, s.name)
		}
	}
	return fmt.Sprintf("%.3f ", x)
}
