//go:build linux

package peer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/netring/netring/bench/internal/bed"
)

// ringArgs give DPDK's packet sockets rings of 8 MiB, as large as those of the
// other contenders; its own default is 2 MiB.
const ringArgs = "qdisc_bypass=1,blocksz=65536,framesz=2048,framecnt=4096"

// packetDev and xdpDev name DPDK's drivers for an interface. Its AF_XDP driver
// polls inside of the kernel by default; with busy false it does not.
func packetDev(i int, iface string) string {
	return fmt.Sprintf("net_af_packet%d,iface=%s,%s", i, iface, ringArgs)
}

func xdpDev(i int, iface string, busy bool) string {
	d := fmt.Sprintf("net_af_xdp%d,iface=%s,force_copy=1", i, iface)
	if !busy {
		d += ",busy_budget=0"
	}
	return d
}

// testpmd runs DPDK's test program on the DUT's core; its idle main thread sits
// on another.
func testpmd(name string, scratchCPU int, mode string, args []string, devs ...string) DUT {
	var vdevs []string
	for _, d := range devs {
		vdevs = append(vdevs, "--vdev="+d)
	}
	args = append([]string{"--forward-mode=" + mode}, args...)
	return DUT{
		Name: name, Skip: firstOf(Installed("dpdk-testpmd", "dpdk-dev"), Installed("stdbuf", "coreutils")),
		Command: "dpdk-testpmd " + strings.Join(vdevs, " ") + " -- " + strings.Join(args, " "),
		start: func(ctx context.Context, b *bed.Bed, cpu int) (*Proc, error) {
			// It takes its own affinity from --lcores; the main core only waits
			// on the standard input.
			argv := []string{"stdbuf", "-oL", "dpdk-testpmd",
				fmt.Sprintf("--lcores=0@%d,1@%d", scratchCPU, cpu), "--main-lcore=0", "--no-pci", "--in-memory", "--no-telemetry",
				"--log-level=lib.eal:error", "-m", "256"}
			argv = append(append(argv, vdevs...), "--", "--auto-start", "--nb-cores=1", "--total-num-mbufs=32768")
			p, err := Start(b.DUT, scratchCPU, append(argv, args...)...)
			if err != nil {
				return nil, err
			}
			return p, p.Says(ctx, "Press enter to exit")
		},
	}
}

// Testpmd is DPDK's forwarder over its af_packet driver, ports handed across
// without a look at the frame (io mode).
func Testpmd(name string, scratchCPU int) DUT {
	return testpmd(name, scratchCPU, "io", nil, packetDev(0, "d0"), packetDev(1, "d1"))
}

// TestpmdXDP is the same over its AF_XDP driver.
func TestpmdXDP(name string, scratchCPU int, busy bool) DUT {
	return testpmd(name, scratchCPU, "io", nil, xdpDev(0, "d0", busy), xdpDev(1, "d1", busy))
}

// TestpmdTX sends UDP frames out of d1, over packet sockets.
func TestpmdTX(name string, scratchCPU, size int) DUT {
	return testpmd(name, scratchCPU, "txonly", []string{"--txpkts=" + strconv.Itoa(size)}, packetDev(0, "d1"))
}

// TestpmdXDPTX sends over AF_XDP.
func TestpmdXDPTX(name string, scratchCPU, size int, busy bool) DUT {
	return testpmd(name, scratchCPU, "txonly", []string{"--txpkts=" + strconv.Itoa(size)}, xdpDev(0, "d1", busy))
}

// TestpmdXDPRX counts what it receives at d0 over AF_XDP.
func TestpmdXDPRX(name string, scratchCPU int, busy bool) DUT {
	d := testpmd(name, scratchCPU, "rxonly", nil, xdpDev(0, "d0", busy))
	d.Count = parseTestpmdRX
	return d
}

// parseTestpmdRX reads how many packets testpmd received, from the statistics
// of its end.
func parseTestpmdRX(out string) (float64, error) {
	for line := range strings.Lines(out) {
		_, rest, ok := strings.Cut(line, "RX-packets:")
		if f := strings.Fields(rest); ok && len(f) > 0 {
			return strconv.ParseFloat(f[0], 64)
		}
	}
	return 0, errors.New("testpmd printed no RX-packets")
}

func firstOf(reasons ...string) string {
	for _, r := range reasons {
		if r != "" {
			return r
		}
	}
	return ""
}

const hugePagesFile = "/proc/sys/vm/nr_hugepages"

// HugePages reserves what DPDK needs, if it is installed, and returns what puts
// the old number back.
func HugePages() (restore func(), err error) {
	const n = 256
	if Installed("dpdk-testpmd", "") != "" {
		return func() {}, nil
	}
	old, err := os.ReadFile(hugePagesFile)
	if err != nil {
		return nil, err
	}
	if have, err := strconv.Atoi(strings.TrimSpace(string(old))); err == nil && have >= n {
		return func() {}, nil
	}
	if err := os.WriteFile(hugePagesFile, []byte(strconv.Itoa(n)), 0); err != nil {
		return nil, fmt.Errorf("reserve huge pages for DPDK: %w", err)
	}
	return func() { _ = os.WriteFile(hugePagesFile, old, 0) }, nil
}
