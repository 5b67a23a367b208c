//go:build linux

package peer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"github.com/netring/netring/bench/internal/bed"
	"github.com/netring/netring/bench/internal/procfs"
	"github.com/netring/netring/internal/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// What tcpreplay and trafgen get must be what the C programs send: valid UDP.
func TestCapture(t *testing.T) {
	for _, size := range []int{60, 1514} {
		r, err := pcapgo.NewReader(bytes.NewReader(capture(frame(size), 3)))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for ; ; n++ {
			data, info, err := r.ReadPacketData()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if info.Length != size || len(data) != size {
				t.Errorf("frame of %d bytes, want %d", info.Length, size)
			}
			checkFrame(t, data)
		}
		if n != 3 {
			t.Errorf("%d frames, want 3", n)
		}
	}
}

func checkFrame(t *testing.T, data []byte) {
	t.Helper()
	p := gopacket.NewPacket(data, layers.LayerTypeEthernet, gopacket.Default)
	ip, _ := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	udp, _ := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
	if p.ErrorLayer() != nil || ip == nil || udp == nil {
		t.Fatalf("not a UDP frame: %v", p)
	}
	sum := ip.Checksum
	b := gopacket.NewSerializeBuffer()
	if err := ip.SerializeTo(b, gopacket.SerializeOptions{ComputeChecksums: true}); err != nil {
		t.Fatal(err)
	}
	if ip.Checksum != sum || ip.SrcIP.String() != bed.GenIP || ip.DstIP.String() != bed.SinkIP || udp.DstPort != 9 ||
		int(udp.Length) != len(data)-34 || int(ip.Length) != len(data)-14 {
		t.Errorf("IP %+v, sum %#x, UDP %+v", ip, sum, udp)
	}
}

func TestTrafgenConfig(t *testing.T) {
	if got := string(trafgenConfig([]byte{2, 0, 255})); got != "{ 0x02, 0x00, 0xff }\n" {
		t.Errorf("got %q", got)
	}
}

func TestParsePktgen(t *testing.T) {
	out := `{"type":"interval","packets":5}` + "\nnoise\n" + `{"type":"final","packets":123,"pps":7}` + "\n"
	if n, err := parsePktgen(out); err != nil || n != 123 {
		t.Errorf("%v, %v", n, err)
	}
	if _, err := parsePktgen(`{"type":"interval","packets":5}`); err == nil {
		t.Error("no error without a final report")
	}
}

func TestParseTestpmdRX(t *testing.T) {
	out := `Press enter to exit

Signal 15 received, preparing to exit...
  ---------------------- Forward statistics for port 0  ----------------------
  RX-packets: 3081728        RX-dropped: 0             RX-total: 3081728
  TX-packets: 0              TX-dropped: 0             TX-total: 0
  +++++++++++++++ Accumulated forward statistics for all ports+++++++++++++++
  RX-packets: 3081728        RX-dropped: 0             RX-total: 3081728
`
	if n, err := parseTestpmdRX(out); err != nil || n != 3081728 {
		t.Errorf("%v, %v", n, err)
	}
	for _, out := range []string{"", "RX-packets:\n", "RX-packets: many\n"} {
		if _, err := parseTestpmdRX(out); err == nil {
			t.Errorf("%q: no error", out)
		}
	}
}

// A program's child that nobody tells must end with it, or it goes on sending
// into the next measurement.
func TestStopEndsChildren(t *testing.T) {
	netlab.NeedNet(t)
	lab := netlab.Setup(t, "a")
	if _, err := exec.LookPath("taskset"); err != nil {
		t.Skip("taskset is not installed: apt-get install util-linux")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	// The shell waits for its child and hands no signal on.
	p, err := Start(lab.NS("a"), Anywhere, "sh", "-c", "trap 'wait; exit 0' TERM; sleep 1000 & echo ready; wait")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Says(ctx, "ready"); err != nil {
		t.Fatal(err)
	}
	all, err := procfs.Tasks()
	if err != nil {
		t.Fatal(err)
	}
	family := procfs.Family(all, p.PID())
	if len(family) < 2 {
		t.Fatalf("family %v, want a shell and its child", family)
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	for {
		if all, err = procfs.Tasks(); err != nil {
			t.Fatal(err)
		}
		left := 0
		for pid := range family {
			if task, ok := all[pid]; ok && strings.HasPrefix(task.Name, "sleep") {
				left++
			}
		}
		if left == 0 {
			return
		}
		if ctx.Err() != nil {
			t.Fatal("the child is still there")
		}
	}
}
