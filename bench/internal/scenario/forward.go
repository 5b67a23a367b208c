//go:build linux

package scenario

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/netring/netring/bench/internal/bed"
	"github.com/netring/netring/bench/internal/peer"
	"github.com/netring/netring/bench/internal/result"
	"github.com/netring/netring/internal/netlab"
)

// load is what the source sends.
type load struct {
	Len   int // bytes of a frame, without FCS
	Rate  int // packets a second, 0 for as many as it can
	Flows int // UDP source ports, 0 for 1
	// Live has the kernel make the frames, without skbs, for rates that no
	// sender reaches. d0 then receives in NAPI, which GRO gives it.
	Live bool
}

// Metrics of a forwarding sample.
const (
	mOffered    = "offered_pps"   // what the source sent or was refused
	mPPS        = "pps"           // what the sink received
	mLoss       = "loss_percent"  // in the window
	mCPU        = "cpu_percent"   // of the device under test's process
	mNanos      = "ns_per_packet" // of that, per packet delivered
	mWorkerUser = "worker_user_percent"
	mSent       = "sent_packets"
	mLost       = "lost_packets"        // of all that were sent, over the whole round
	mMissing    = "unaccounted_packets" // lost, and in no counter
	mDoorbells  = "doorbells_per_packet"
	mSoftirq    = "dut_core_softirq_percent"
)

// forward measures one forwarder under one load.
func (e *Env) forward(ctx context.Context, d *peer.DUT, o bed.Options, l load) (*result.Sample, error) {
	o.Drop = true
	if d.RPS {
		o.RPS = 1 << e.DUT
	}
	b, err := bed.New(o)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	if l.Live {
		if err := b.DUT.Offload("d0", map[string]bool{"rx-gro": true}); err != nil {
			return nil, err
		}
	}
	dut, err := d.Start(ctx, b, e.DUT)
	if err != nil {
		return nil, err
	}
	src, err := e.blast(b, l)
	if err != nil {
		return nil, err
	}
	if err := bed.Sleep(ctx, e.Warm); err != nil {
		return nil, err
	}
	s := &result.Sample{Metrics: map[string]float64{}}
	if s.Offloads, err = b.Offloads(); err != nil {
		return nil, err
	}
	if s.Window, err = b.Measure(ctx, e.Seconds, dut.PID()); err != nil {
		return nil, err
	}
	if err := src.Stop(); err != nil {
		return nil, fmt.Errorf("stop the source: %w", err)
	}
	total, err := e.settle(ctx, b)
	if err != nil {
		return nil, err
	}
	if err := dut.Stop(); err != nil {
		return nil, fmt.Errorf("stop the device under test: %w", err)
	}
	e.windowMetrics(s, b, d)
	e.totals(s, b, total)
	if d.Netring {
		if err := bridgeTotals(s, b, total, dut.Stdout()); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// blast starts the source.
func (e *Env) blast(b *bed.Bed, l load) (*peer.Proc, error) {
	program := peer.Blast
	if l.Live {
		program = peer.Live
	}
	return peer.Start(b.Gen, e.Source, e.Tools.Path(program), "-i", "g0", "-l", strconv.Itoa(l.Len),
		"-r", strconv.Itoa(l.Rate), "-f", strconv.Itoa(max(l.Flows, 1)))
}

// settle waits until nothing arrives at the sink any more and returns the
// final counters.
func (e *Env) settle(ctx context.Context, b *bed.Bed) (map[string]netlab.Counters, error) {
	const still, most = 60 * time.Millisecond, 3 * time.Second
	old, err := b.Counters()
	for end := time.Now().Add(most); err == nil && time.Now().Before(end); {
		if err = bed.Sleep(ctx, still); err != nil {
			break
		}
		var now map[string]netlab.Counters
		if now, err = b.Counters(); err == nil && delivered(b, now) == delivered(b, old) {
			return now, nil
		}
		old = now
	}
	return old, err
}

func delivered(b *bed.Bed, c map[string]netlab.Counters) (n uint64) {
	for _, name := range b.Lanes() {
		n += c[name].RxPackets
	}
	return n
}

func (e *Env) windowMetrics(s *result.Sample, b *bed.Bed, d *peer.DUT) {
	w, m := s.Window, s.Metrics
	m[mOffered] = w.Links["g0"].TX + w.Links["g0"].TXDrops
	if d.Command == "" {
		m[mPPS] = w.Links["d0"].RX
	} else {
		for _, name := range b.Lanes() {
			m[mPPS] += w.Links[name].RX
		}
	}
	if m[mOffered] > 0 {
		// What waits in rings when a window begins or ends makes a lossless run
		// look off by a little either way.
		m[mLoss] = max(0, 100*(1-m[mPPS]/m[mOffered]))
	}
	if e.DUT < len(w.CPUs) {
		m[mSoftirq] = w.CPUs[e.DUT].SoftIRQ
	}
	if w.App == nil {
		return
	}
	m[mCPU] = w.App.Total
	if m[mPPS] > 0 {
		m[mNanos] = m[mCPU] / 100 * 1e9 / m[mPPS]
	}
	if t := w.App.WorkerUser + w.App.WorkerSystem; t > 0 {
		m[mWorkerUser] = 100 * w.App.WorkerUser / t
	}
}

// totals compares what was sent with what arrived since the bed was made.
func (e *Env) totals(s *result.Sample, b *bed.Bed, c map[string]netlab.Counters) {
	sent := c["g0"].TxPackets
	s.Metrics[mSent] = float64(sent)
	s.Metrics[mLost] = float64(sent) - float64(delivered(b, c))
}

// bridgeTotals reads the final report of our bridge. Of what was lost, it and
// the interfaces must have counted every frame.
func bridgeTotals(s *result.Sample, b *bed.Bed, c map[string]netlab.Counters, stdout string) error {
	final, err := lastReport(stdout)
	if err != nil {
		return err
	}
	s.Final = final
	var f struct {
		Dropped float64 `json:"dropped_packets"`
		Ports   []struct {
			Driver    string             `json:"driver"`
			TX        float64            `json:"tx_packets"`
			Doorbells float64            `json:"tx_doorbells"`
			RXDrops   map[string]float64 `json:"rx_drops"`
		} `json:"ports"`
	}
	if err := json.Unmarshal(final, &f); err != nil {
		return fmt.Errorf("final report of the bridge: %w", err)
	}
	s.Metrics[mMissing] = s.Metrics[mLost] - f.Dropped
	for _, name := range b.Ports() {
		// Sent, and refused by the interface; and received, but dropped before
		// a socket saw it: mostly where the backlog of a core was full.
		s.Metrics[mMissing] -= float64(c[name].TxDropped + c[name].RxDropped)
	}
	var sent, bells float64
	for _, p := range f.Ports {
		sent += p.TX
		bells += p.Doorbells
		if p.Driver == "xdp" {
			// What found the socket's ring full, the interface has counted too.
			s.Metrics[mMissing] += p.RXDrops["kernel"]
		}
	}
	if sent > 0 {
		s.Metrics[mDoorbells] = bells / sent
	}
	return nil
}

// lastReport finds the last JSON object that calls itself final.
func lastReport(stdout string) (json.RawMessage, error) {
	var last json.RawMessage
	sc := bufio.NewScanner(strings.NewReader(stdout))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var head struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(sc.Bytes(), &head) == nil && head.Type == "final" {
			last = json.RawMessage(strings.Clone(sc.Text()))
		}
	}
	if err := sc.Err(); err != nil {
		return nil, err
	}
	if last == nil {
		return nil, errors.New("the bridge printed no final report")
	}
	return last, nil
}

// forwardCase is a case of a forwarder under a load.
func forwardCase(d peer.DUT, o bed.Options, l load) Case {
	return Case{Name: d.Name, Command: d.Command, Skip: d.Skip, Run: func(ctx context.Context, e *Env) (*result.Sample, error) {
		return e.forward(ctx, &d, o, l)
	}}
}

var forwardColumns = []Column{
	{Metric: mOffered, Head: "offered kpps", Scale: 1e3},
	{Metric: mPPS, Head: "forwarded kpps", Scale: 1e3, Range: true},
	{Metric: mLoss, Head: "loss %", Digits: 1},
	{Metric: mCPU, Head: "CPU %"},
	{Metric: mNanos, Head: "CPU ns/packet"},
	{Metric: mWorkerUser, Head: "user % of worker", Digits: 1},
	{Metric: mMissing, Head: "unaccounted"},
}

// Names of the cases that goals refer to.
const (
	cNetring   = "netring bridge"
	cKernel    = "kernel bridge, softirq on the source's core"
	cKernelRPS = "kernel bridge, softirq on the DUT's core (RPS)"
	cTestpmd   = "testpmd io, net_af_packet"
	cGopacket  = "gopacket/afpacket loop"
	cNetsniff  = "netsniff-ng -k 100"
	cVnetFwd   = "vnetfwd (C, recv/send with PACKET_VNET_HDR)"
)

func forwardSize(size int) Scenario {
	g := func(against string, least float64) Goal {
		return Goal{Case: cNetring, Metric: mPPS, Against: against, Min: least,
			Text: fmt.Sprintf("at least %.2f times %s", least, against)}
	}
	s := Scenario{
		Name:  fmt.Sprintf("forward%d", size),
		Title: fmt.Sprintf("Forwarding one way, %d-byte frames, full speed", size),
		About: "The source sends as fast as it can from d0 to d1. A forwarder in user space does its work on its own core and finds " +
			"the frames already copied into its ring by the source's core; a kernel bridge without RPS does everything on the source's " +
			"core, source included, so the one with RPS is the fairer comparison.",
		Warm: shortWarm, Window: shortWindow, QuickWarmup: true,
		Columns: forwardColumns,
		Cases: func(e *Env) []Case {
			duts := []peer.DUT{e.Tools.Bridge(cNetring)}
			if size == 60 { // where the cost per frame shows
				duts = append(duts, e.Tools.Bridge("netring bridge, V3 blocks", "--rx-version=v3"),
					e.Tools.Bridge("netring bridge, past the qdisc", "--qdisc-bypass"),
					e.Tools.Bridge("netring bridge, without virtio-net headers", "--vnet=off"))
			}
			duts = append(duts, Testpmd(e), e.Tools.Gopacket(cGopacket, false), peer.Netsniff(cNetsniff),
				peer.KernelBridge(cKernel, false), peer.KernelBridge(cKernelRPS, true), peer.None("source alone"))
			var cases []Case
			for _, d := range duts {
				cases = append(cases, forwardCase(d, bed.Options{}, load{Len: size}))
			}
			return cases
		},
	}
	if size == 60 {
		s.Goals = []Goal{
			g(cTestpmd, 1.15), g(cKernelRPS, 1.15), g(cKernel, 1.15), g(cGopacket, 1.4),
			{Case: cNetring, Metric: mWorkerUser, Max: 10, Text: "the worker spends at most 10 % of its CPU time in user mode"},
			{Case: cNetring, Metric: mMissing, ZeroMax: true, Text: "every frame is delivered or counted"},
		}
	}
	return s
}

// Testpmd is the DPDK contender; its idle main thread sits on the source's core.
func Testpmd(e *Env) peer.DUT { return peer.Testpmd(cTestpmd, e.Source) }

const halfSeconds = 30 * time.Second

func halfRate() Scenario {
	return Scenario{
		Name:  "half-rate",
		Title: "Loss at half the maximum rate",
		About: "Each forwarder's maximum is measured first, at full load; then the source sends at half of that for 30 s. " +
			"Lost packets are counted from start to end, not in a window.",
		Rounds: 5, NoWarmup: true, Window: halfSeconds, Once: 4 * time.Second,
		Columns: []Column{
			{Metric: mOffered, Head: "offered kpps", Scale: 1e3},
			{Metric: mPPS, Head: "forwarded kpps", Scale: 1e3, Range: true},
			{Metric: mSent, Head: "packets sent"},
			{Metric: mLost, Head: "packets lost", Range: true},
			{Metric: mCPU, Head: "CPU %"},
			{Metric: mNanos, Head: "CPU ns/packet"},
		},
		Goals: []Goal{{Case: cNetring, Metric: mLost, ZeroMax: true, Text: "no packet lost"}},
		Cases: func(e *Env) []Case {
			d := e.Tools.Bridge(cNetring)
			return []Case{{Name: d.Name, Command: d.Command, Skip: d.Skip, Run: func(ctx context.Context, e *Env) (*result.Sample, error) {
				if e.Found[mPPS] == 0 {
					short := *e
					short.Seconds = min(e.Seconds, DefaultWindow)
					s, err := short.forward(ctx, &d, bed.Options{}, load{Len: 60})
					if err != nil {
						return nil, err
					}
					e.Found[mPPS] = s.Metrics[mPPS]
				}
				return e.forward(ctx, &d, bed.Options{}, load{Len: 60, Rate: int(e.Found[mPPS] / 2)})
			}}}
		},
	}
}
