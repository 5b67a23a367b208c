//go:build cgo && linux

package afpacket_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/afpacket"
	"github.com/netring/netring/ring/tpacket"
)

// TestAgainstTPACKET: what one driver sends, the other reads, byte for byte, in
// order and once. The two share no code.
func TestAgainstTPACKET(t *testing.T) {
	netlab.NeedNet(t)
	for _, version := range []tpacket.Version{tpacket.V2, tpacket.V3} {
		l := netlab.Setup(t, "a", "b")
		l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
		var ours *tpacket.Port
		if err := l.NS("a").Do(func() (err error) {
			ours, err = tpacket.Open("a0", tpacket.Options{Version: version})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer ours.Close()
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
	s := tx.Slot(tx.Head)
	s.Len, s.Flags = uint32(copy(tx.Buf(tx.Head), want)), 0
	tx.Head++
	tx.Cur = tx.Head
	for deadline := time.Now().Add(5 * time.Second); ; {
		if err := tx.Sync(); err != nil {
			t.Fatal(err)
		}
		if err := rx.Sync(); err != nil {
			t.Fatal(err)
		}
		if rx.Space() > 0 && tx.Pending() == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: a frame of %d bytes did not arrive", name, len(want))
		}
	}
	if got := rx.Frame(rx.Head); !bytes.Equal(got, want) {
		t.Fatalf("%s: sent %d bytes % x, got %d bytes % x", name, len(want), want[:20], len(got), got[:min(20, len(got))])
	}
	rx.Head++
	rx.Cur = rx.Head
}
