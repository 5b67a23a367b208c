// Command pktgen generates, receives and measures packets. See docs/pktgen.md.
package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/netring/netring/internal/cli"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main with its surroundings as arguments.
func run(args []string, stdout, stderr io.Writer) int {
	return cli.Run(newRoot, args, stdout, stderr)
}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	var c config
	root := &cobra.Command{
		Use:   "pktgen -i PORT -f tx|rx|ping|pong|txseq|rxseq|replay",
		Short: "Generate, receive and measure packets",
		Long: `pktgen sends packets at a rate, or as fast as it can, or counts what arrives, in
the manner of netmap's pkt-gen. A port is an interface (eth0, netmap:eth0,
xdp:eth0) or a pipe; see docs/pktgen.md for the names and for the units.

Sizes are those of frames without the 4 bytes of checksum. A rate in bits counts
the whole time that a frame takes on the wire (layer 1) unless /l2 is added.
Interfaces become promiscuous while it runs.

A line per interval and a summary go to stdout, diagnostics to stderr. The first
SIGINT or SIGTERM stops, waits for what is on its way, and prints the summary.`,
		Example: `  pktgen -i eth0 -f tx -R 1M -l 60                 # a million 60-byte frames a second
  pktgen -i eth0 -f tx -n 1000 -s 10.0.0.1-10.0.0.9:99 -p 2
  pktgen -i eth0 -f tx --engine gso -R 10Gbit
  pktgen -i eth1 -f rx --json
  pktgen -i eth0 -f replay --file x.pcap --speed 2
  pktgen -i eth0 --rx-port eth1 --throughput       # highest rate without loss
  pktgen -i eth0 -f ping -n 1000 -R 1k             # against pktgen -f pong`,
		Version:       cli.Version(),
		Args:          noArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.log = cli.NewLog(stderr, c.verbose)
			c.out = stdout
			p, err := c.plan()
			if err != nil {
				return &cli.UsageError{Err: err}
			}
			return p.run(cmd.Context())
		},
	}
	root.SetVersionTemplate("pktgen {{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	c.flags(root.Flags())
	root.AddCommand(newDemo(stdout, stderr))
	return root
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) != 0 {
		return cli.Usagef("unexpected argument %q: name the port with -i, such as -i %s", args[0], args[0])
	}
	return nil
}
