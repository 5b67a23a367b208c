//go:build cgo && linux

package afpacket_test

import (
	"bytes"
	"testing"

	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/afpacket"
	"github.com/netring/netring/ring/ringtest"
	"github.com/netring/netring/ring/tpacket"
)

// TestAgainstTPACKET: what one driver sends, the other reads, byte for byte, in
// order and once. The two share no code.
func TestAgainstTPACKET(t *testing.T) {
	netlab.NeedNet(t)
	for _, version := range []tpacket.Version{tpacket.V2, tpacket.V3} {
		l := netlab.Setup(t, "a", "b")
		l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
		ours := netlab.Open(t, l.NS("a"), func() (*tpacket.Port, error) { return tpacket.Open("a0", tpacket.Options{Version: version}) })
		theirs := open(t, l.NS("b"), "b0", afpacket.Options{Promiscuous: true, VLAN: true})
		for _, way := range []struct {
			name   string
			tx, rx *ring.Ring
		}{
			{"tpacket to gopacket", ours.TxRings()[0], theirs.RxRings()[0]},
			{"gopacket to tpacket", theirs.TxRings()[0], ours.RxRings()[0]},
		} {
			seq := byte(0)
			for _, tag := range []string{"", "\x81\x00\x00\x05"} {
				for size := 60; size <= 1514; size += 97 {
					seq++
					exchange(t, way.name, way.tx, way.rx, crossFrame(tag, size, seq))
				}
			}
			if err := way.rx.Sync(); err != nil || way.rx.Space() != 0 {
				t.Errorf("V%d %s: %d frames too many, %v", version, way.name, way.rx.Space(), err)
			}
		}
	}
}

// crossFrame is a frame of size bytes with a tag and a pattern.
func crossFrame(tag string, size int, seq byte) []byte {
	b := append([]byte("\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01"+tag), 0x88, 0xb5, seq)
	for i := len(b); i < size; i++ {
		b = append(b, byte(i*5)^seq)
	}
	return b
}

// exchange sends a frame and expects exactly it.
func exchange(t *testing.T, name string, tx, rx *ring.Ring, want []byte) {
	t.Helper()
	ringtest.Put(t, tx, want)
	ringtest.Flush(t, tx)
	if got, _, _ := ringtest.Get(t, rx); !bytes.Equal(got, want) {
		t.Fatalf("%s: sent %d bytes % x, got %d bytes % x", name, len(want), want[:20], len(got), got[:min(20, len(got))])
	}
}

// TestForwardWithin: frames go from a port's receive ring to its transmit ring.
func TestForwardWithin(t *testing.T) {
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	a := open(t, l.NS("a"), "a0", afpacket.Options{Slots: 8, Promiscuous: true})
	b := open(t, l.NS("b"), "b0", afpacket.Options{Slots: 8, Promiscuous: true})
	tx, rx := b.TxRings()[0], b.RxRings()[0]
	for i := range 20 {
		want := crossFrame("", 60+i, byte(i))
		ringtest.Put(t, a.TxRings()[0], want)
		ringtest.Flush(t, a.TxRings()[0])
		ringtest.Await(t, rx)
		if n := ring.Move(tx, rx, 1); n != 1 {
			t.Fatalf("moved %d frames", n)
		}
		ringtest.Flush(t, tx)
		if got, _, _ := ringtest.Get(t, a.RxRings()[0]); !bytes.Equal(got, want) {
			t.Fatalf("frame %d came back as % x", i, got)
		}
	}
}
