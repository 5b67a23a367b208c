//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/netring/netring/bench/internal/bed"
	"github.com/netring/netring/bench/internal/peer"
	"github.com/netring/netring/bench/internal/result"
)

// mMiscount is by how much a sender's own count is off from its interface's.
const mMiscount = "miscounted_packets"

// sendCase runs a sender on the DUT's core, out of d1 into the sink: the same
// way that a forwarder's frames take, without the receiving.
func sendCase(d peer.DUT, o bed.Options) Case {
	return Case{Name: d.Name, Command: d.Command, Skip: d.Skip, Run: func(ctx context.Context, e *Env) (*result.Sample, error) {
		b, err := bed.New(o)
		if err != nil {
			return nil, err
		}
		defer b.Close()
		return e.send(ctx, b, &d)
	}}
}

// send measures a sender on a bed.
func (e *Env) send(ctx context.Context, b *bed.Bed, d *peer.DUT) (*result.Sample, error) {
	p, err := d.Start(ctx, b, e.DUT)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(p.Sends(ctx, b), bed.Sleep(ctx, e.Warm)); err != nil {
		return nil, err
	}
	s := &result.Sample{Metrics: map[string]float64{}}
	if s.Offloads, err = b.Offloads(); err != nil {
		return nil, err
	}
	if s.Window, err = b.Measure(ctx, e.Seconds, p.PID()); err != nil {
		return nil, err
	}
	if err := p.Stop(); err != nil {
		return nil, err
	}
	total, err := e.settle(ctx, b)
	if err != nil {
		return nil, err
	}
	m := s.Metrics
	m[mPPS] = s.Window.Links["s0"].RX
	m[mCPU] = s.Window.App.Total
	m[mNanos] = m[mCPU] / 100 * 1e9 / m[mPPS]
	m[mLost] = float64(total["d1"].TxPackets) - float64(total["s0"].RxPackets)
	if d.Count != nil {
		n, err := d.Count(p.Stdout())
		if err != nil {
			return nil, err
		}
		m[mMiscount] = math.Abs(n - float64(total["d1"].TxPackets))
	}
	return s, nil
}

var sendColumns = []Column{
	{Metric: mPPS, Head: "sent kpps", Scale: 1e3, Range: true},
	{Metric: mNanos, Head: "CPU ns/packet"},
	{Metric: mLost, Head: "lost"},
	{Metric: mMiscount, Head: "own count off by"},
}

// Names of the senders that goals refer to.
const (
	cGenRing   = "pktgen --engine ring"
	cGenGSO    = "pktgen --engine gso"
	cGenXDP    = "pktgen -i xdp:d1"
	cGenLive   = "pktgen --engine xdp"
	cTxRing    = "C, TPACKET_V2 ring, 64 frames a doorbell"
	cTxRingV   = "C, the same, whole frame by virtio-net header"
	cBlast     = "C, AF_XDP in copy mode"
	cLive      = "C, live frames"
	cTrafgen   = "trafgen"
	cTrafgenQ  = "trafgen --qdisc-path"
	cTcpreplay = "tcpreplay, capture in memory"
	cPmdTX     = "testpmd txonly, net_af_packet"
)

// atLeast is the goal to reach a multiple of another case's packet rate.
func atLeast(ours string, least float64, against string) Goal {
	return Goal{Case: ours, Metric: mPPS, Against: against, Min: least,
		Text: fmt.Sprintf("%s: at least %.2f times %s", ours, least, against)}
}

// countsRight is the goal that a generator's count is its interface's.
func countsRight(ours string) Goal {
	return Goal{Case: ours, Metric: mMiscount, ZeroMax: true, Text: ours + ": its count is that of its interface"}
}

// gsoBurst is how many super-frames go into one system call. The kernel cuts one
// into 128 frames, and a veth has room for a few hundred, which its other end
// empties in between, unless the scheduler wants the core: then it waits for
// the end of the call, and long calls lose frames.
const gsoBurst = "--burst=2"

// send shows what one core can send into the sink over packet sockets, us
// against the others; it is also the limit for every forwarder over such rings.
func send(size int) Scenario {
	s := Scenario{
		Name:  fmt.Sprintf("send%d", size),
		Title: fmt.Sprintf("Generators over packet sockets, %d-byte frames", size),
		About: "Programs send from the DUT's core out of d1, the way that a forwarder's frames take, without receiving anything; the sink drops " +
			"at the entry to its stack (tcx), on the same core, in the sender's time, which is cheaper than XDP for frames that have an skb, and its " +
			"interface counts. The C programs only fill and kick: a generator or forwarder over the same kind of ring can hardly be faster. Frames of " +
			"`--engine gso` travel as UDP super-frames as far as the kernel's segmentation in front of d1, and are counted one by one behind it.",
		Warm: shortWarm, Window: shortWindow, QuickWarmup: true,
		Columns: sendColumns,
		Goals: []Goal{
			atLeast(cGenRing, 0.97, cTxRing), atLeast(cGenRing, 0.97, cTxRingV), atLeast(cGenRing, 1, cTrafgen), atLeast(cGenRing, 1, cTrafgenQ),
			atLeast(cGenRing, 1, cTcpreplay), atLeast(cGenRing, 1, cPmdTX), atLeast(cGenGSO, 2.5, cTrafgen), atLeast(cGenGSO, 2.5, cTrafgenQ),
			countsRight(cGenRing), countsRight(cGenGSO),
		},
		Cases: func(e *Env) (cases []Case) {
			t, l := e.Tools, "-l"+strconv.Itoa(size)
			for _, d := range []peer.DUT{
				t.Pktgen(cGenRing, "d1", "tx", l), t.Pktgen(cGenGSO, "d1", "tx", l, "--engine=gso", gsoBurst),
				t.Sender(cTxRing, peer.TxRing, size), t.Sender(cTxRingV, peer.TxRing, size, "-v"),
				t.Sender("C, the ring, 1 frame a doorbell", peer.TxRing, size, "-b", "1"),
				t.Trafgen(cTrafgen, size), t.Trafgen(cTrafgenQ, size, "--qdisc-path"), t.Tcpreplay(cTcpreplay, size),
				peer.TestpmdTX(cPmdTX, e.Source, size),
			} {
				cases = append(cases, sendCase(d, bed.Options{DropTC: true}))
			}
			return cases
		},
	}
	if size == 1514 {
		// One flow of 1514-byte frames has no more than 44 of them in a super-frame.
		s.About += " A super-frame has at most 64 KB, so 44 frames of this size."
	}
	return s
}
