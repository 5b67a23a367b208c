//go:build linux

package scenario

import (
	"context"
	"fmt"
	"strconv"

	"github.com/netring/netring/bench/internal/bed"
	"github.com/netring/netring/bench/internal/peer"
	"github.com/netring/netring/bench/internal/result"
)

// sendCase runs a sender on the DUT's core, out of d1 into the sink: the same
// way that a forwarder's frames take, without the receiving.
func sendCase(t *peer.Tools, name, program string, size int, args ...string) Case {
	argv := append([]string{t.Path(program), "-i", "d1", "-l", strconv.Itoa(size)}, args...)
	c := Case{Name: name, Command: fmt.Sprint(program, argv[1:])}
	if err := t.Missing[program]; err != nil {
		c.Skip = err.Error()
	}
	c.Run = func(ctx context.Context, e *Env) (*result.Sample, error) {
		b, err := bed.New(bed.Options{Drop: true})
		if err != nil {
			return nil, err
		}
		defer b.Close()
		p, err := peer.Start(b.DUT, e.DUT, argv...)
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
		return s, nil
	}
	return c
}

// send shows what one core can send into the sink at all: the limit for every
// forwarder above, and for a generator.
func send(size int) Scenario {
	return Scenario{
		Name:  fmt.Sprintf("send%d", size),
		Title: fmt.Sprintf("Sending only, %d-byte frames: the limit", size),
		About: "Small C programs send from the DUT's core out of d1, the way that a forwarder's frames take, without receiving anything. " +
			"A forwarder over the same kind of ring cannot be faster than that.",
		Columns: []Column{
			{Metric: mPPS, Head: "sent kpps", Scale: 1e3, Range: true},
			{Metric: mNanos, Head: "CPU ns/packet"},
			{Metric: mLost, Head: "lost"},
		},
		Cases: func(e *Env) []Case {
			t := e.Tools
			return []Case{
				sendCase(t, "TPACKET_V2 ring, 64 frames a doorbell", peer.TxRing, size),
				sendCase(t, "TPACKET_V2 ring, whole frame by virtio-net header", peer.TxRing, size, "-v"),
				sendCase(t, "TPACKET_V2 ring, 1 frame a doorbell", peer.TxRing, size, "-b", "1"),
				sendCase(t, "AF_XDP, copy mode", peer.Blast, size),
			}
		},
	}
}
