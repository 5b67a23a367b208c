package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/netring/netring/internal/gen"
	"github.com/netring/netring/nm"
	"github.com/netring/netring/ring"
)

// benchConfig is what only --throughput and --loss-curve take.
type benchConfig struct {
	throughput, curve bool
	rxPort            string
	sizes             []int // with the checksum, as RFC 2544 has them
	trial, settle     time.Duration
	resolution        float64 // percent
}

func defaultBench() benchConfig {
	return benchConfig{sizes: []int{64, 128, 256, 512, 1024, 1280, 1518}, trial: 2 * time.Second, settle: 300 * time.Millisecond, resolution: 1}
}

func (c *benchConfig) flags(f *pflag.FlagSet) {
	*c = defaultBench()
	f.BoolVar(&c.throughput, "throughput", false, "search the highest rate without loss from -i to --rx-port (RFC 2544, 26.1)")
	f.BoolVar(&c.curve, "loss-curve", false, "measure the loss at 100 %, 90 %, ... of the highest rate (RFC 2544, 26.3)")
	f.StringVar(&c.rxPort, "rx-port", "", "port that the frames arrive at, for --throughput and --loss-curve")
	f.IntSliceVar(&c.sizes, "sizes", c.sizes, "frame sizes of the trials, with the 4 bytes of checksum")
	f.DurationVar(&c.trial, "trial", c.trial, "length of a trial (RFC 2544 wants 60s)")
	f.DurationVar(&c.settle, "settle", c.settle, "silence after which frames count as lost (RFC 2544 wants 2s)")
	f.Float64Var(&c.resolution, "resolution", c.resolution, "percent of the highest rate at which the search ends")
}

func (c *benchConfig) on() bool { return c.throughput || c.curve }

func (c *benchConfig) validate(p *plan) error {
	d := defaultBench()
	if !c.on() {
		if c.rxPort != "" || len(c.sizes) != len(d.sizes) || c.trial != d.trial || c.settle != d.settle || c.resolution != d.resolution {
			return errors.New("--rx-port, --sizes, --trial, --settle and --resolution go with --throughput or --loss-curve")
		}
		return nil
	}
	switch {
	case c.throughput && c.curve:
		return errors.New("--throughput and --loss-curve: choose one")
	case c.rxPort == "":
		return errors.New("name the port that the frames arrive at with --rx-port")
	case p.function != "rx" && p.function != "tx":
		return fmt.Errorf("--throughput and --loss-curve send by themselves: leave -f %s out", p.function)
	case p.engine != "ring" || p.threads != 1 || p.count != 0 || p.imix || p.length != "60" || p.seconds != 0 || p.warmup != 0:
		return errors.New("--throughput and --loss-curve choose engine, sizes and times: leave --engine, -p, -n, -l, --imix, --time and --warmup out")
	case c.trial < 50*time.Millisecond || c.trial > time.Hour:
		return fmt.Errorf("trial %v: must be 50ms to 1h", c.trial)
	case c.settle < 250*time.Millisecond || c.settle > time.Minute:
		return fmt.Errorf("settle %v: must be 250ms to 1m", c.settle)
	case !(c.resolution >= 0.01 && c.resolution <= 50):
		return fmt.Errorf("resolution %v: must be 0.01 to 50 percent", c.resolution)
	case len(c.sizes) == 0:
		return errors.New("sizes: at least one is needed")
	}
	if _, err := nm.ParsePort(c.rxPort); err != nil {
		return err
	}
	for _, n := range c.sizes {
		if n < 64 || n > 65000 {
			return fmt.Errorf("size %d: must be 64 to 65000 bytes with the checksum", n)
		}
	}
	return nil
}

// matcher knows the frames of a trial.
type matcher struct {
	size, l3 int
	v4       bool
	proto    byte
	dst      uint16 // port, first of the range
	ports    uint16 // after the first
	hasPorts bool
}

func newMatcher(f *gen.Config, size int) *matcher {
	return &matcher{size: size, l3: 14 + 4*len(f.Tags), v4: f.Src.First.Is4(), hasPorts: f.Proto != gen.ICMP,
		proto: map[bool][3]byte{true: {17, 6, 1}, false: {17, 6, 58}}[f.Src.First.Is4()][f.Proto],
		dst:   f.Dst.FirstPort, ports: f.Dst.LastPort - f.Dst.FirstPort}
}

// ours reports whether a frame is one of the trial's: addresses may have been
// changed on its way, size, protocol and destination port not.
func (m *matcher) ours(f []byte) bool {
	l4 := 20
	if !m.v4 {
		l4 = 40
	}
	if len(f) != m.size || m.size < m.l3+l4+4 {
		return false
	}
	h := f[m.l3:]
	if m.v4 && (h[0] != 0x45 || h[9] != m.proto) || !m.v4 && (h[0]>>4 != 6 || h[6] != m.proto) {
		return false
	}
	return !m.hasPorts || binary.BigEndian.Uint16(h[l4+2:])-m.dst <= m.ports
}

// trial is one measurement at one rate. Its JSON keys are documented in
// docs/pktgen.md.
type trial struct {
	Type     string  `json:"type"` // "trial"
	Size     int     `json:"frame_bytes"`
	Asked    float64 `json:"asked_pps,omitempty"` // none for as fast as possible
	Seconds  float64 `json:"seconds"`
	Sent     uint64  `json:"sent_packets"`
	Received uint64  `json:"received_packets"`
	Lost     uint64  `json:"lost_packets"`
	Tester   uint64  `json:"receiver_dropped_packets"` // by this program's own receive ring
	PPS      float64 `json:"pps"`                      // sent
	L1       float64 `json:"bits_per_second_l1"`
}

// tester runs trials between two ports.
type tester struct {
	*job
	tx    *ring.Ring
	rx    *receiver
	match atomic.Pointer[matcher]
	ended atomic.Pointer[error] // how the receiver ended
}

// measure is --throughput and --loss-curve.
func (j *job) measure(ctx context.Context) (err error) {
	a, err := j.open(ctx, j.port, "tx")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	b, err := j.open(ctx, j.bench.rxPort, "rx")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if len(a.TxRings()) == 0 || len(b.RxRings()) == 0 {
		return errors.New("--throughput and --loss-curve need a port that sends and one that receives")
	}
	t := &tester{job: j, tx: a.TxRings()[0]}
	t.rx = &receiver{j: j, r: b.RxRings()[0], n: &counts{}, match: &t.match}
	t.match.Store(&matcher{})
	rctx, stop := context.WithCancel(context.Background())
	received := make(chan error, 1)
	go func() { received <- t.receive(rctx) }()
	defer func() { stop(); err = errors.Join(err, <-received) }()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unpin, err := j.pin(0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unpin()) }()
	if j.bench.curve {
		return t.curve(ctx)
	}
	return t.search(ctx)
}

// receive counts until ctx ends, on a thread of its own.
func (t *tester) receive(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unpin, err := t.pin(1)
	if err == nil {
		err = errors.Join(t.rx.run(ctx), unpin())
	}
	t.ended.Store(&err)
	return err
}

// trial sends frames of size bytes, with the checksum, at a rate for a while
// and counts what arrives.
func (t *tester) trial(ctx context.Context, size int, r rate) (trial, error) {
	p := *t.plan
	p.rates, p.count, p.function = r, 0, "tx"
	var err error
	if p.frames.Sizes, err = gen.ParseSizes(fmt.Sprint(size-gen.FCS), 14, 65000); err != nil {
		return trial{}, err
	}
	j := &job{plan: &p, clock: t.clock}
	s, err := j.sender(t.tx, 0)
	if err != nil {
		return trial{}, err
	}
	t.match.Store(newMatcher(&p.frames, size-gen.FCS))
	before, dropped := t.rx.n.packets.Load(), t.rx.n.dropped.Load()
	start := t.clock.now()
	tctx, cancel := context.WithTimeout(ctx, t.bench.trial)
	err = s.run(tctx)
	cancel()
	took := t.clock.now() - start
	if err = errors.Join(err, ctx.Err()); err != nil {
		return trial{}, err
	}
	x := trial{Type: "trial", Size: size, Seconds: took.Seconds(), Sent: s.n.packets.Load()}
	if x.Received, err = t.settled(ctx, before, x.Sent); err != nil {
		return trial{}, err
	}
	x.Lost = x.Sent - min(x.Sent, x.Received)
	x.Tester = t.rx.n.dropped.Load() - dropped
	x.PPS = float64(x.Sent) / x.Seconds
	x.L1 = x.PPS * 8 * float64(size-gen.FCS+gen.WireOverhead)
	if r.per != 0 {
		x.Asked = float64(r.per) / float64(r.cost(size-gen.FCS))
	}
	return x, t.show(&x)
}

// settled waits until all has arrived, or nothing more does.
func (t *tester) settled(ctx context.Context, before, sent uint64) (uint64, error) {
	got, last := uint64(0), t.clock.now()
	for {
		if e := t.ended.Load(); e != nil {
			return 0, errors.New("the receiver has ended")
		}
		now := t.clock.now()
		if n := t.rx.n.packets.Load() - before; n != got {
			got, last = n, now
		}
		if got >= sent || now-last > t.bench.settle {
			return got, nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// show prints an object with --json, and says what trials do with -v.
func (t *tester) show(x any) error {
	if !t.json {
		if y, ok := x.(*trial); ok {
			t.log.Debug("trial", "bytes", y.Size, "pps", uint64(y.PPS), "sent", y.Sent, "lost", y.Lost)
		}
		return nil
	}
	b, err := json.Marshal(x)
	if err == nil {
		_, err = fmt.Fprintf(t.out, "%s\n", b)
	}
	return err
}
