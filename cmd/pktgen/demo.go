package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/netring/netring/internal/cli"
	"github.com/netring/netring/internal/netlab"
)

// newDemo is "pktgen demo": a sender and a receiver over a veth pair of their
// own.
func newDemo(stdout, stderr io.Writer) *cobra.Command {
	var seconds time.Duration
	var asJSON bool
	rate := "100k"
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Send and receive in a network of its own; no root needed",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if seconds < 100*time.Millisecond {
				return cli.Usagef("--time %v: must be at least 100ms", seconds)
			}
			code, again, err := netlab.Reexec(false)
			if err != nil {
				return fmt.Errorf("demo: %w", err)
			}
			if again {
				return cli.ExitCode(code)
			}
			return demo(cmd.Context(), seconds, rate, asJSON, stdout, stderr)
		},
	}
	cmd.Flags().DurationVar(&seconds, "time", 3*time.Second, "how long to send")
	cmd.Flags().StringVarP(&rate, "rate", "R", rate, "rate, as of pktgen -R")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object per interval and a final one, for each side")
	return cmd
}

func demo(ctx context.Context, seconds time.Duration, rate string, asJSON bool, stdout, stderr io.Writer) error {
	lab, err := netlab.New("gen", "sink")
	if err != nil {
		return err
	}
	defer lab.Close()
	if err := lab.Veth("gen", "g0", "sink", "s0", netlab.VethOpts{}); err != nil {
		return err
	}
	side := func(ns string, c config, started func()) func() error {
		c.threads, c.burst, c.ttl, c.report, c.wait = 1, defaultBurst, 64, time.Second, 2*time.Second
		c.engine, c.length, c.proto, c.pattern, c.dstMAC = "ring", "60", "udp", "00", "ff:ff:ff:ff:ff:ff"
		c.vnet, c.replay, c.bench = -1, defaultReplay(), defaultBench()
		c.json, c.out, c.log = asJSON, stdout, cli.NewLog(stderr, false)
		return func() error {
			p, err := c.plan()
			if err != nil {
				return &cli.UsageError{Err: err}
			}
			p.started = started
			return lab.NS(ns).Do(func() error { return p.run(ctx) })
		}
	}
	if !asJSON {
		fmt.Fprintf(stdout, "g0 (namespace gen) sends numbered frames at %s for %v, s0 (namespace sink) receives:\n", rate, seconds)
	}
	listening := make(chan struct{})
	receive := side("sink", config{port: "s0", function: "rxseq", exitIdle: time.Second + seconds/2}, func() { close(listening) })
	send := side("gen", config{port: "g0", function: "txseq", rate: rate, seconds: seconds}, nil)
	done := make(chan error, 1)
	go func() { done <- receive() }()
	select {
	case <-listening: // nothing that is sent from now on is missed
	case err := <-done:
		return err
	}
	sendErr := send()
	return errors.Join(sendErr, <-done)
}
