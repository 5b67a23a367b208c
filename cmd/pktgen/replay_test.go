package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/netring/netring/internal/gen"
)

// captured writes a capture of n numbered frames, one every gap, and one that
// is cut off.
func captured(t *testing.T, ng bool, n int, gap time.Duration) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "x")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var w interface {
		WritePacket(gopacket.CaptureInfo, []byte) error
	}
	flush := func() error { return nil }
	if ng {
		g, err := pcapgo.NewNgWriter(f, layers.LinkTypeEthernet)
		if err != nil {
			t.Fatal(err)
		}
		w, flush = g, g.Flush
	} else {
		p := pcapgo.NewWriterNanos(f)
		if err := p.WriteFileHeader(65535, layers.LinkTypeEthernet); err != nil {
			t.Fatal(err)
		}
		w = p
	}
	src, err := gen.ParseRange("10.0.0.1", 1)
	if err != nil {
		t.Fatal(err)
	}
	sizes, err := gen.ParseSizes("70-200", 14, 1514)
	if err != nil {
		t.Fatal(err)
	}
	b, err := gen.New(gen.Config{DstMAC: [6]byte{2, 0, 0, 0, 0, 9}, SrcMAC: [6]byte{2, 0, 0, 0, 0, 8}, Src: src, Dst: src, Sizes: sizes, Probe: true}, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1514)
	at := time.Unix(1700000000, 123456789)
	put := func(k, n, length int) {
		info := gopacket.CaptureInfo{Timestamp: at.Add(time.Duration(k) * gap), CaptureLength: n, Length: length}
		if err := w.WritePacket(info, buf[:n]); err != nil {
			t.Fatal(err)
		}
	}
	for k := range n {
		size := b.Next(buf, &gen.Probe{Seq: uint64(k)})
		put(k, size, size)
	}
	put(n-1, 60, 61)
	if err := flush(); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestReplay: every packet of every pass is sent, in order and in the time of
// the capture; what is cut off is left out and counted.
func TestReplay(t *testing.T) {
	a, b := veth(t)
	const n = 100
	for _, c := range []struct {
		name     string
		ng       bool
		args     []string
		packets  uint64
		skipped  uint64
		from, to time.Duration // of the sending
	}{
		{"pcap", false, nil, n, 1, 198 * time.Millisecond, 0},
		{"pcapng, passes keep their timing", true, []string{"--loop", "3"}, 3 * n, 3, 598 * time.Millisecond, 0},
		{"twice as fast", false, []string{"--speed", "2"}, n, 1, 99 * time.Millisecond, 190 * time.Millisecond},
		{"fast", true, []string{"--speed", "0", "--loop", "50"}, 50 * n, 50, 0, 5 * time.Second},
		{"rate", false, []string{"-R", "1k", "--loop", "2"}, 2 * n, 2, 199 * time.Millisecond, 0},
		{"bounded", true, []string{"-n", "42", "--loop", "0", "--speed", "0"}, 42, 0, 0, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			done := background(t, ctx, b, "-i", "b0", "-f", "rxseq", "-n", fmt.Sprint(c.packets), "-W", "5s")
			l := last(lines(t, ctx, a, append([]string{"-i", "a0", "-f", "replay", "--file", captured(t, c.ng, n, 2*time.Millisecond)}, c.args...)...))
			got := <-done
			if l.Packets != c.packets || l.Skipped != c.skipped || got.Packets != c.packets || got.Bytes != l.Bytes || got.Stream.Other != 0 || got.Stream.Reordered != 0 && c.packets <= n {
				t.Errorf("sent %d, skipped %d, received %d (%d of %d bytes), %+v", l.Packets, l.Skipped, got.Packets, got.Bytes, l.Bytes, got.Stream)
			}
			took := time.Duration(l.Seconds * float64(time.Second))
			if took < c.from || c.to != 0 && l.Late == 0 && took > c.to {
				t.Errorf("took %v, want %v to %v", took, c.from, c.to)
			}
		})
	}
}

func TestReplayRefuses(t *testing.T) {
	a, _ := veth(t)
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte("no capture, but long enough to be one"), 0o600); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(captured(t, false, 2, 0))
	if err != nil {
		t.Fatal(err)
	}
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, good[:len(good)-10], 0o600); err != nil {
		t.Fatal(err)
	}
	for file, why := range map[string]string{bad: "header", short: "packet 3", "/nonexistent": "no such file"} {
		var code error
		if err := a.Do(func() error {
			root := newRoot(&started{}, &started{})
			root.SetArgs([]string{"-i", "a0", "-f", "replay", "--file", file})
			code = root.ExecuteContext(context.Background())
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if code == nil || !strings.Contains(code.Error(), why) {
			t.Errorf("%s: %v, want %q", file, code, why)
		}
	}
}
