package main

import (
	"context"
	"fmt"

	"github.com/netring/netring/internal/gen"
)

// Who bounds a throughput.
const (
	boundLoss   = "loss"   // more is lost
	boundSender = "sender" // this machine sends no more
	boundRate   = "rate"   // -R asks for no more
)

// result is the throughput for one size of frame.
type result struct {
	Size   int     `json:"frame_bytes"` // with the checksum
	PPS    float64 `json:"pps"`         // highest rate without loss, as it was sent
	L1     float64 `json:"bits_per_second_l1"`
	Line   float64 `json:"line_rate_pps,omitempty"` // what -R in bits amounts to
	Bound  string  `json:"bound"`
	Tester bool    `json:"receiver_dropped"` // in some trial this program's own ring was full
	Trials int     `json:"trials"`
}

// verdict is the last object of --throughput.
type verdict struct {
	Type       string   `json:"type"` // "final"
	Function   string   `json:"function"`
	TxPort     string   `json:"port"`
	RxPort     string   `json:"rx_port"`
	Trial      float64  `json:"trial_seconds"`
	Resolution float64  `json:"resolution_percent,omitempty"`
	Results    []result `json:"results,omitempty"`
	Curve      []point  `json:"curve,omitempty"`
}

func (t *tester) verdict(function string) verdict {
	return verdict{Type: "final", Function: function, TxPort: t.spec.String(), RxPort: t.bench.rxPort, Trial: t.bench.trial.Seconds()}
}

// search finds the throughput of every size: the first trial goes as fast as
// can be or as -R says, then the interval between the highest rate without and
// the lowest with loss is halved until it is small.
func (t *tester) search(ctx context.Context) error {
	v := t.verdict("throughput")
	v.Resolution = t.bench.resolution
	for _, size := range t.bench.sizes {
		r, err := t.throughput(ctx, size)
		if err != nil {
			return fmt.Errorf("frames of %d bytes: %w", size, err)
		}
		v.Results = append(v.Results, r)
	}
	if t.json {
		return t.show(&v)
	}
	fmt.Fprintf(t.out, "highest rate without loss, %s to %s, trials of %v; frame sizes with checksum\n", v.TxPort, v.RxPort, t.bench.trial)
	fmt.Fprintf(t.out, "%8s %14s %16s  %-8s %s\n", "bytes", "packets/s", "bit/s (layer 1)", "bound by", "trials")
	for i := range v.Results {
		r := &v.Results[i]
		note := ""
		if r.Tester {
			note = "  (the tester's own receive ring was full in some)"
		}
		fmt.Fprintf(t.out, "%8d %14.0f %16.0f  %-8s %d%s\n", r.Size, r.PPS, r.L1, r.Bound, r.Trials, note)
	}
	return nil
}

func (t *tester) throughput(ctx context.Context, size int) (result, error) {
	r := result{Size: size}
	if t.rates.bits {
		r.Line = float64(t.rates.per) / float64(t.rates.cost(size-gen.FCS))
	}
	s := newSearch(t.bench.resolution)
	for ask := t.rates; ; ask = (rate{per: s.next()}) {
		x, err := t.trial(ctx, size, ask)
		if err != nil {
			return r, err
		}
		r.Trials++
		r.Tester = r.Tester || x.Tester != 0
		if s.note(x.PPS, x.Lost == 0 && x.Sent != 0) {
			break
		}
	}
	r.PPS, r.Bound = s.best, boundLoss
	switch {
	case !s.lossless:
	case t.rates.per != 0:
		r.Bound = boundRate
	default:
		r.Bound = boundSender
	}
	r.L1 = r.PPS * 8 * float64(size-gen.FCS+gen.WireOverhead)
	return r, nil
}

// search is a binary search for the highest rate that passes. It does no I/O.
type search struct {
	step     float64 // where it ends, as a part of the highest rate
	most     float64 // of the first trial
	lo, hi   float64
	best     float64 // highest rate that passed
	lossless bool    // the first trial passed
}

func newSearch(percent float64) *search { return &search{step: percent / 100} }

// note takes the outcome of a trial and reports whether the search is over.
func (s *search) note(pps float64, pass bool) (done bool) {
	first := s.most == 0
	if first {
		s.most, s.hi = pps, pps
		s.lossless = pass
	}
	if pass {
		s.best = max(s.best, pps)
	}
	if first {
		return pass || pps == 0
	}
	// By what was asked for: a sender that falls short must not stop the
	// search from getting on.
	if pass {
		s.lo = float64(s.next())
	} else {
		s.hi = float64(s.next())
	}
	return s.hi-s.lo <= s.step*s.most || s.next() <= uint64(s.lo) || s.next() < 1
}

// next is the rate of the next trial.
func (s *search) next() uint64 { return uint64((s.lo + s.hi) / 2) }

// point is one trial of a loss curve.
type point struct {
	Size    int     `json:"frame_bytes"`
	Percent int     `json:"percent"` // of the highest rate
	PPS     float64 `json:"pps"`
	Loss    float64 `json:"loss_percent"`
	Tester  bool    `json:"receiver_dropped"`
}

// curve measures the loss from the highest rate downwards in steps of 10 %,
// until two trials in a row lose nothing.
func (t *tester) curve(ctx context.Context) error {
	v := t.verdict("loss-curve")
	for _, size := range t.bench.sizes {
		if err := t.losses(ctx, size, &v); err != nil {
			return fmt.Errorf("frames of %d bytes: %w", size, err)
		}
	}
	if t.json {
		return t.show(&v)
	}
	fmt.Fprintf(t.out, "loss, %s to %s, trials of %v; frame sizes with checksum\n", v.TxPort, v.RxPort, t.bench.trial)
	fmt.Fprintf(t.out, "%8s %8s %14s %10s\n", "bytes", "of most", "packets/s", "loss")
	for i := range v.Curve {
		p := &v.Curve[i]
		fmt.Fprintf(t.out, "%8d %6d %% %14.0f %8.4f %%\n", p.Size, p.Percent, p.PPS, p.Loss)
	}
	return nil
}

func (t *tester) losses(ctx context.Context, size int, v *verdict) error {
	most := 0.0
	clean := 0
	for percent := 100; percent > 0 && clean < 2; percent -= 10 {
		ask := t.rates
		if percent != 100 {
			ask = rate{per: max(uint64(most*float64(percent)/100), 1)}
		}
		x, err := t.trial(ctx, size, ask)
		if err != nil {
			return err
		}
		if percent == 100 {
			most = x.PPS
		}
		p := point{Size: size, Percent: percent, PPS: x.PPS, Tester: x.Tester != 0}
		if x.Sent != 0 {
			p.Loss = 100 * float64(x.Lost) / float64(x.Sent)
		}
		if clean++; x.Lost != 0 {
			clean = 0
		}
		v.Curve = append(v.Curve, p)
	}
	return nil
}
