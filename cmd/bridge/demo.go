package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/netring/netring/internal/cli"
	"github.com/netring/netring/internal/forward"
	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/ring"
)

// The demonstration's network: namespaces gen, dut and sink, joined by veth
// pairs g0-d0 and d1-s0. The bridge joins d0 and d1.
const (
	genIf, inIf   = "g0", "d0"
	outIf, sinkIf = "d1", "s0"
)

// settleTime is how long the demonstration waits for the last frames.
const settleTime = 2 * time.Second

type demoConfig struct {
	json    bool
	verbose bool
	seconds float64
	rate    int
	size    int
}

func newDemo(stdout, stderr io.Writer) *cobra.Command {
	var d demoConfig
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the bridge at work in a network of its own; no root needed",
		Long: `demo makes network namespaces joined by veth pairs, in a user namespace unless
it is run as root, and forwards between them: a generator sends numbered frames
at a steady rate, the bridge forwards, a receiver counts what arrives and
compares with the counters that the kernel keeps for the interfaces.
Nothing outlives it.`,
		Args:          noArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := d.validate(); err != nil {
				return err
			}
			code, again, err := netlab.Reexec(false)
			if err != nil {
				return fmt.Errorf("demo: %w", err)
			}
			if again {
				return cli.ExitCode(code)
			}
			return d.run(cmd.Context(), stdout, cli.NewLog(stderr, d.verbose))
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.Float64Var(&d.seconds, "seconds", 5, "how long to send")
	f.IntVar(&d.rate, "rate", 200000, "frames a second to send, 0 for as many as possible (then some are lost)")
	f.IntVar(&d.size, "size", 60, "bytes per frame, without the checksum")
	f.BoolVar(&d.json, "json", false, "print one JSON object instead of the table")
	f.BoolVarP(&d.verbose, "verbose", "v", false, "say more on stderr")
	return cmd
}

func (d *demoConfig) validate() error {
	switch {
	case d.seconds < 0.1 || d.seconds > 3600:
		return cli.Usagef("--seconds %v: must be between 0.1 and 3600", d.seconds)
	case d.rate < 0 || d.rate > 100e6:
		return cli.Usagef("--rate %d: must be between 0 and 100000000", d.rate)
	case d.size < minFrame || d.size > 1514:
		return cli.Usagef("--size %d: must be between %d and 1514", d.size, minFrame)
	}
	return nil
}

// demoResult is what demo --json prints. The keys are stable.
type demoResult struct {
	Type       string            `json:"type"` // "demo"
	Seconds    float64           `json:"seconds"`
	FrameBytes int               `json:"frame_bytes"`
	Sent       uint64            `json:"sent_packets"`
	Forwarded  uint64            `json:"forwarded_packets"`
	Received   uint64            `json:"received_packets"`
	Lost       uint64            `json:"lost_packets"`
	Duplicate  uint64            `json:"duplicate_packets"`
	Reordered  uint64            `json:"reordered_packets"`
	PPS        float64           `json:"forwarded_pps"`
	Bits       float64           `json:"bits_per_second"`
	Drops      map[string]uint64 `json:"drops"`
	// What the kernel counted on the outer interfaces.
	GenTX  uint64 `json:"generator_tx_packets"`
	SinkRX uint64 `json:"receiver_rx_packets"`
}

func (d *demoConfig) run(ctx context.Context, stdout io.Writer, log *slog.Logger) (err error) {
	quietRuntime(3) // the bridge's, the generator and the receiver
	lab, err := netlab.New("gen", "dut", "sink")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	if err := errors.Join(
		lab.Veth("gen", genIf, "dut", inIf, netlab.VethOpts{}),
		lab.Veth("dut", outIf, "sink", sinkIf, netlab.VethOpts{}),
	); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	res, err := d.measure(ctx, lab, log)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if d.json {
		return json.NewEncoder(stdout).Encode(res)
	}
	return res.text(stdout)
}

// demoPorts are the ends of the demonstration.
type demoPorts struct {
	gen, sink ring.Port
	dut       []forward.Port
	options   forward.Options
}

func (d *demoConfig) open(lab *netlab.Lab, log *slog.Logger) (p demoPorts, err error) {
	var c config
	c.flags(pflag.NewFlagSet("", pflag.ContinueOnError)) // the bridge's defaults
	c.interfaces = []string{inIf, outIf}
	if err := c.parse(); err != nil {
		return p, err
	}
	p.options = c.options(log)
	err = errors.Join(
		lab.NS("gen").Do(func() (err error) { p.gen, err = openEnd(genIf, ring.TX); return err }),
		lab.NS("sink").Do(func() (err error) { p.sink, err = openEnd(sinkIf, ring.RX); return err }),
		lab.NS("dut").Do(func() (err error) { p.dut, err = openPorts(&c, log); return err }),
	)
	if err != nil {
		p.close()
	}
	return p, err
}

func (p *demoPorts) close() {
	if p.gen != nil {
		p.gen.Close()
	}
	if p.sink != nil {
		p.sink.Close()
	}
	_ = closePorts(p.dut)
}

func (d *demoConfig) measure(ctx context.Context, lab *netlab.Lab, log *slog.Logger) (*demoResult, error) {
	p, err := d.open(lab, log)
	if err != nil {
		return nil, err
	}
	defer p.close()
	b, err := forward.New(p.dut, p.options)
	if err != nil {
		return nil, err
	}
	bctx, stop := context.WithCancel(context.Background())
	defer stop()
	bridged := make(chan error, 1)
	go func() { bridged <- b.Run(bctx) }()

	recv := newReceiver(p.sink.RxRings()[0])
	go recv.run()
	sent, took, err := send(ctx, p.gen, demoFrame(d.size), d.rate, time.Duration(d.seconds*float64(time.Second)))
	recv.finish(sent, settleTime)
	stop()
	if err = errors.Join(err, <-bridged, recv.err, b.Close()); err != nil {
		return nil, err
	}
	gen, err1 := lab.NS("gen").Counters(genIf)
	sink, err2 := lab.NS("sink").Counters(sinkIf)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	st := b.Stats()
	total := newReport(&st, "final", time.Now(), took)
	fwd := st.Ports[1].Sent()
	res := &demoResult{
		Type: "demo", Seconds: took.Seconds(), FrameBytes: d.size, Sent: sent, Forwarded: fwd,
		Received: recv.unique, Lost: sent - recv.unique, Duplicate: recv.duplicate, Reordered: recv.reordered,
		Drops: total.Drops, GenTX: gen.TxPackets, SinkRX: sink.RxPackets,
	}
	res.PPS = float64(fwd) / took.Seconds()
	res.Bits = res.PPS * 8 * float64(d.size)
	return res, nil
}

func (r *demoResult) text(w io.Writer) error {
	line := func(name string, n uint64) string {
		pps := float64(n) / r.Seconds
		return fmt.Sprintf("%-10s %12d %12.0f %10.1f\n", name, n, pps, pps*8*float64(r.FrameBytes)/1e6)
	}
	s := fmt.Sprintf("%s (namespace gen) > %s [bridge] %s > %s (namespace sink), %d-byte frames, %.1f s\n\n", genIf, inIf, outIf, sinkIf, r.FrameBytes, r.Seconds) +
		fmt.Sprintf("%-10s %12s %12s %10s\n", "", "packets", "packets/s", "Mbit/s") +
		line("sent", r.Sent) + line("forwarded", r.Forwarded) + line("received", r.Received) +
		fmt.Sprintf("%-10s %12d\n\n", "lost", r.Lost) +
		fmt.Sprintf("duplicates %d, out of order %d; the kernel counted %d sent by %s and %d received by %s\n",
			r.Duplicate, r.Reordered, r.GenTX, genIf, r.SinkRX, sinkIf)
	if len(r.Drops) != 0 {
		s += fmt.Sprintf("dropped by the bridge: %v\n", r.Drops)
	}
	_, err := io.WriteString(w, s)
	return err
}

// demoFrame is a UDP datagram of the whole frame's size, with room for a
// sequence number.
func demoFrame(size int) []byte {
	f := make([]byte, size)
	copy(f, demoDst[:])
	copy(f[6:], demoSrc[:])
	f[12], f[13] = 0x08, 0x00
	ip := f[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	putUint16(ip[2:], uint16(size-14))
	copy(ip[12:], []byte{192, 0, 2, 1})
	copy(ip[16:], []byte{192, 0, 2, 2})
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(ip[i])<<8 | uint32(ip[i+1])
	}
	sum = sum>>16 + sum&0xffff
	putUint16(ip[10:], ^uint16(sum+sum>>16))
	udp := ip[20:]
	putUint16(udp, 9)
	putUint16(udp[2:], 9)
	putUint16(udp[4:], uint16(size-34)) // no UDP checksum: the number changes
	return f
}

func putUint16(b []byte, v uint16) { b[0], b[1] = byte(v>>8), byte(v) }
