// Command bridge joins network interfaces in userspace: two as a wire, three or
// more as a learning switch. See docs/bridge.md.
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
		Use:   "bridge -i eth1 -i eth2 [-i eth3 ...]",
		Short: "Forward between network interfaces in userspace",
		Long: `bridge joins network interfaces through memory-mapped packet rings: two as a
wire, three or more as a learning switch. The interfaces become promiscuous
while it runs; the host's own stack keeps seeing their traffic, so give them no
addresses. It needs CAP_NET_RAW (and CAP_NET_ADMIN to change offloads).

A line per direction and interval goes to stdout, diagnostics to stderr.
The first SIGINT or SIGTERM stops receiving, forwards what has arrived, prints
the totals and exits with 0; the second exits at once.`,
		Example: `  bridge -i eth1 -i eth2              # a wire
  bridge -i eth1 -i eth2 -i eth3      # a switch
  bridge -i eth1 -i eth2 --json       # one JSON object a second
  bridge -i xdp:eth1 -i xdp:eth2      # a wire by AF_XDP
  bridge probe -i eth1                # what the kernel and driver allow
  bridge demo                         # see it work, without root`,
		Version:       cli.Version(),
		Args:          noArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := cli.NewLog(stderr, c.verbose)
			if c.profile == "latency" && !cmd.Flags().Changed("linger") {
				c.poll.Linger = latencyLinger
			}
			if err := c.validate(); err != nil {
				return err
			}
			return bridge(cmd.Context(), &c, stdout, log)
		},
	}
	root.SetVersionTemplate("bridge {{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	c.flags(root.Flags())
	root.AddCommand(newDemo(stdout, stderr), newProbe(stdout))
	return root
}

// noArgs refuses words that are not flags; an interface without -i is the
// usual mistake.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) != 0 {
		return cli.Usagef("unexpected argument %q: name interfaces with -i, such as -i %s", args[0], args[0])
	}
	return nil
}
