package main

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/pcapgo"

	"github.com/netring/netring/internal/netlab"
)

// refusal runs pktgen inside a namespace and returns why it did not start.
func refusal(t *testing.T, ns *netlab.NS, args ...string) (why string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := ns.Do(func() error {
		root := newRoot(&started{}, &started{})
		root.SetArgs(append(args, "-n", "3"))
		if err := root.ExecuteContext(ctx); err != nil {
			why = err.Error()
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return why
}

// TestSizes: frames are as large as the interface's MTU and its VLAN tags
// allow, whatever the driver would take, and larger ones are refused.
func TestSizes(t *testing.T) {
	a, _ := veth(t)
	for _, c := range []struct{ args, why string }{
		{"-l 1514", ""},
		{"-l 1515", "up to 1514"},
		{"-l 60-1518", "up to 1514"},
		{"-l 1515 --engine gso", "up to 1514"},
		{"-l 1518 --vlan 5", ""},
		{"-l 1519 --vlan 5", "up to 1518"},
		{"-l 59", ""},
		{"-l 41", "headers need 42"},
		{"-l -5", `size "-5"`},
		{"-l 60-", `size "60-"`},
		{"-l random:60", `size "random:60"`},
	} {
		why := refusal(t, a, append([]string{"-i", "a0", "-f", "tx"}, strings.Fields(c.args)...)...)
		if (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: %q, want %q", c.args, why, c.why)
		}
	}
}

// TestReplaySizes: of a capture go the frames that the interface sends; one
// without any, or without packets, is refused.
func TestReplaySizes(t *testing.T) {
	a, _ := veth(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, c := range []struct {
		name          string
		frames        [][]byte
		sent, skipped uint64
		why           string
	}{
		{"none", nil, 0, 0, "no packets"},
		{"too large", [][]byte{tagged(1515)}, 0, 0, "none of its 1 packets"},
		{"runt", [][]byte{tagged(13)}, 0, 0, "none of its 1 packets"},
		{"some", [][]byte{tagged(1514), tagged(1515), tagged(1518, 0x8100), tagged(1519, 0x8100), tagged(1518, 0x88a8, 0x8100), tagged(14)}, 4, 2, ""},
	} {
		name := filepath.Join(t.TempDir(), "x.pcap")
		f, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		w := pcapgo.NewWriter(f)
		err = w.WriteFileHeader(65535, 1)
		for _, b := range c.frames {
			if err == nil {
				err = w.WritePacket(gopacket.CaptureInfo{CaptureLength: len(b), Length: len(b)}, b)
			}
		}
		if err != nil || f.Close() != nil {
			t.Fatal(err)
		}
		args := []string{"-i", "a0", "-f", "replay", "--file", name}
		if c.why != "" {
			if why := refusal(t, a, args...); !strings.Contains(why, c.why) {
				t.Errorf("%s: %q, want %q", c.name, why, c.why)
			}
			continue
		}
		if l := last(lines(t, ctx, a, args...)); l.Packets != c.sent || l.Skipped != c.skipped {
			t.Errorf("%s: %d sent, %d skipped; want %d, %d", c.name, l.Packets, l.Skipped, c.sent, c.skipped)
		}
	}
}

// tagged is a frame of n bytes with VLAN tags of these TPIDs.
func tagged(n int, tpids ...uint16) []byte {
	b := make([]byte, max(n, 22))
	copy(b, "\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01")
	for i, id := range append(tpids, 0x88b5) {
		binary.BigEndian.PutUint16(b[12+4*i:], id)
	}
	return b[:n]
}
