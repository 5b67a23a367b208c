//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/netring/netring/bench/internal/bed"
	"github.com/netring/netring/bench/internal/peer"
	"github.com/netring/netring/bench/internal/result"
)

// Names of the AF_XDP contenders. DPDK's driver polls inside of the kernel
// unless told not to; which is better depends on the work, so both are shown.
const (
	cPmdXDPTX     = "testpmd txonly, net_af_xdp"
	cPmdXDPTXCalm = "testpmd txonly, net_af_xdp, busy_budget=0"
	cBridgeXDP    = "netring bridge, xdp: ports"
	cBridgeRing   = "netring bridge, TPACKET"
	cPmdXDP       = "testpmd io, net_af_xdp"
	cPmdXDPCalm   = "testpmd io, net_af_xdp, busy_budget=0"
	cRecvXDP      = "pktgen -f rx -i xdp:d0"
	cRecvRing     = "pktgen -f rx -i d0 (TPACKET)"
	cPmdRX        = "testpmd rxonly, net_af_xdp"
	cPmdRXCalm    = "testpmd rxonly, net_af_xdp, busy_budget=0"
)

// copyMode is why figures of AF_XDP are what they are here.
const copyMode = "A veth has no zero-copy mode: the kernel copies each frame into or out of the shared memory, and makes an skb of each that is sent."

func xdpTX(size int) Scenario {
	return Scenario{
		Name:  fmt.Sprintf("xdptx%d", size),
		Title: fmt.Sprintf("Sending over AF_XDP, %d-byte frames", size),
		About: "As the generators over packet sockets, over AF_XDP sockets. " + copyMode,
		Warm:  shortWarm, Window: shortWindow, QuickWarmup: true,
		Columns: sendColumns,
		Goals:   []Goal{atLeast(cGenXDP, 1, cPmdXDPTX), atLeast(cGenXDP, 1, cPmdXDPTXCalm), countsRight(cGenXDP)},
		Cases: func(e *Env) []Case {
			return []Case{
				sendCase(e.Tools.Pktgen(cGenXDP, "xdp:d1", "tx", "-l"+strconv.Itoa(size)), bed.Options{Drop: true}),
				sendCase(peer.TestpmdXDPTX(cPmdXDPTX, e.Source, size, true), bed.Options{Drop: true}),
				sendCase(peer.TestpmdXDPTX(cPmdXDPTXCalm, e.Source, size, false), bed.Options{Drop: true}),
				sendCase(e.Tools.Sender(cBlast, peer.Blast, size), bed.Options{Drop: true}),
			}
		},
	}
}

func xdpForward(size int) Scenario {
	return Scenario{
		Name:  fmt.Sprintf("xdpforward%d", size),
		Title: fmt.Sprintf("Forwarding over AF_XDP, %d-byte frames, full speed", size),
		About: "The same network and source as above. " + copyMode + " The bridge between two AF_XDP ports itself copies nothing. What the source " +
			"can offer depends on how dear receiving at d0 is, which happens on its core: see what is offered.",
		Warm: shortWarm, Window: shortWindow, QuickWarmup: true,
		Columns: forwardColumns,
		Goals: []Goal{
			atLeast(cBridgeXDP, 1.1, cPmdXDP), atLeast(cBridgeXDP, 1.1, cPmdXDPCalm), atLeast(cBridgeXDP, 1.1, cBridgeRing),
			{Case: cBridgeXDP, Metric: mMissing, ZeroMax: true, Text: "every frame is delivered or counted"},
		},
		Cases: func(e *Env) (cases []Case) {
			for _, d := range []peer.DUT{
				e.Tools.BridgeOf(cBridgeXDP, []string{"xdp:d0", "xdp:d1"}), e.Tools.Bridge(cBridgeRing),
				peer.TestpmdXDP(cPmdXDP, e.Source, true), peer.TestpmdXDP(cPmdXDPCalm, e.Source, false),
			} {
				cases = append(cases, forwardCase(d, bed.Options{}, load{Len: size}))
			}
			return cases
		},
	}
}

// lineRate60 is what 10 Gbit/s Ethernet carries of 60-byte frames: 4 bytes of
// checksum and 20 of preamble and gap go with each.
const lineRate60 = 10e9 / (8 * (60 + 24))

// farSinkCase is a sender whose sink receives on the source's core, which is
// free: the sender does not pay for it.
func farSinkCase(d peer.DUT) Case {
	d.Name += farSink
	return Case{Name: d.Name, Command: d.Command, Skip: d.Skip, Run: func(ctx context.Context, e *Env) (*result.Sample, error) {
		b, err := bed.New(bed.Options{Drop: true})
		if err != nil {
			return nil, err
		}
		defer b.Close()
		if err := b.ThreadSink("s0", e.Source); err != nil {
			return nil, err
		}
		return e.send(ctx, b, &d)
	}}
}

const farSink = ", sink on the other core"

func live() Scenario {
	return Scenario{
		Name:  "live60",
		Title: "Generator inside of the kernel, 60-byte frames",
		About: fmt.Sprintf("BPF_PROG_RUN with live frames out of d1: no skb is made anywhere. The line rate of 10 Gbit/s is %.2f Mpps. The C program "+
			"sends pages as they are; pktgen's program writes headers and checksums into each frame, since addresses may vary. With ranges, "+
			"256 addresses and 1000 ports do. The sink receives on the sender's core, in its time, and takes a good part of it; or, as the far end of a "+
			"wire would, on the other core (threaded NAPI).", lineRate60/1e6),
		Warm: shortWarm, Window: shortWindow, QuickWarmup: true,
		Columns: []Column{
			{Metric: mPPS, Head: "sent Mpps", Scale: 1e6, Digits: 2, Range: true},
			{Metric: mNanos, Head: "CPU ns/packet", Digits: 1},
			{Metric: mLost, Head: "lost"},
			{Metric: mMiscount, Head: "own count off by"},
		},
		Goals: []Goal{
			{Case: cGenLive, Metric: mPPS, Min: 10e6, Text: cGenLive + ": at least 10 Mpps"},
			{Case: cGenLive + farSink, Metric: mPPS, Min: 10e6, Text: cGenLive + farSink + ": at least 10 Mpps"},
			atLeast(cGenLive, 0.9, cLive), atLeast(cGenLive+farSink, 0.9, cLive+farSink), countsRight(cGenLive),
		},
		Cases: func(e *Env) []Case {
			ours, theirs := e.Tools.Pktgen(cGenLive, "d1", "tx", "-l60", "--engine=xdp"), e.Tools.Sender(cLive, peer.LiveMax, 60)
			ranges := e.Tools.Pktgen(cGenLive+", ranges", "d1", "tx", "-l60", "--engine=xdp", "-s10.0.0.0:1000-10.0.0.255:1999")
			near := bed.Options{Drop: true}
			return []Case{
				sendCase(ours, near), sendCase(ranges, near), sendCase(theirs, near), farSinkCase(ours), farSinkCase(theirs),
			}
		},
	}
}

// mReceived is what a receiver says that it received, a second.
const mReceived = "received_pps"

// recvCase sends live frames from gen's core to a receiver at d0. What it
// received it tells itself, once it has stopped.
func recvCase(d peer.DUT) Case {
	return Case{Name: d.Name, Command: d.Command, Skip: d.Skip, Run: func(ctx context.Context, e *Env) (*result.Sample, error) {
		if err := e.Tools.Missing[peer.PktgenName]; err != nil {
			return nil, err
		}
		b, err := bed.New(bed.Options{Drop: true})
		if err != nil {
			return nil, err
		}
		defer b.Close()
		// With GRO a veth receives live frames without an XDP program too.
		if err := b.DUT.Offload("d0", map[string]bool{"rx-gro": true}); err != nil {
			return nil, err
		}
		p, err := d.Start(ctx, b, e.DUT)
		if err != nil {
			return nil, err
		}
		src, err := peer.Start(b.Gen, e.Source, e.Tools.Path(peer.PktgenName), "-i", "g0", "-f", "tx", "--engine=xdp", "-l60",
			"--cpus", strconv.Itoa(e.Source))
		if err != nil {
			return nil, err
		}
		if err := bed.Sleep(ctx, e.Warm); err != nil {
			return nil, err
		}
		s := &result.Sample{Metrics: map[string]float64{}}
		if s.Window, err = b.Measure(ctx, e.Seconds, p.PID()); err != nil {
			return nil, err
		}
		if err := src.Stop(); err != nil {
			return nil, fmt.Errorf("stop the source: %w", err)
		}
		total, err := e.settle(ctx, b)
		if err != nil {
			return nil, err
		}
		if err := p.Stop(); err != nil {
			return nil, err
		}
		n, err := d.Count(p.Stdout())
		if err != nil {
			return nil, err
		}
		return s, recvMetrics(s, n, float64(total["g0"].TxPackets))
	}}
}

// recvMetrics takes the share of all sent packets that were received for that
// in the window too: a receiver's count is exact, but of the whole run.
func recvMetrics(s *result.Sample, received, sent float64) error {
	if sent == 0 {
		return errors.New("the source sent nothing")
	}
	m := s.Metrics
	m[mOffered] = s.Window.Links["g0"].TX
	m[mReceived] = m[mOffered] * received / sent
	m[mLoss] = 100 * (1 - received/sent)
	m[mSent] = sent
	if a := s.Window.App; a != nil && m[mReceived] > 0 {
		m[mCPU] = a.Total
		m[mNanos] = a.Total / 100 * 1e9 / m[mReceived]
	}
	return nil
}

func xdpRX() Scenario {
	goal := func(against string) Goal {
		return Goal{Case: cRecvXDP, Metric: mReceived, Against: against, Min: 1, Text: cRecvXDP + ": at least as many as " + against}
	}
	return Scenario{
		Name:  "xdprx60",
		Title: "Receiving from the generator inside of the kernel, 60-byte frames",
		About: "`pktgen --engine xdp` sends out of g0 as fast as it can; the kernel's half of receiving at d0 happens on the source's core, in its " +
			"time, and slows it. Received is what the receiver itself counted, over the whole run, as a share of what g0 sent; the rate is " +
			"that share of the rate in the window.",
		Warm: shortWarm, Window: shortWindow, QuickWarmup: true,
		Columns: []Column{
			{Metric: mOffered, Head: "offered kpps", Scale: 1e3},
			{Metric: mReceived, Head: "received kpps", Scale: 1e3, Range: true},
			{Metric: mLoss, Head: "loss %", Digits: 1},
			{Metric: mCPU, Head: "CPU %"},
			{Metric: mNanos, Head: "CPU ns/packet"},
		},
		Goals: []Goal{goal(cPmdRX), goal(cPmdRXCalm)},
		Cases: func(e *Env) (cases []Case) {
			for _, d := range []peer.DUT{
				e.Tools.Pktgen(cRecvXDP, "xdp:d0", "rx"), peer.TestpmdXDPRX(cPmdRX, e.Source, true), peer.TestpmdXDPRX(cPmdRXCalm, e.Source, false),
				e.Tools.Pktgen(cRecvRing, "d0", "rx"),
			} {
				cases = append(cases, recvCase(d))
			}
			return cases
		},
	}
}
