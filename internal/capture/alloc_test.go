package capture

import (
	"bytes"
	"errors"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// TestNoAlloc: reading packets allocates nothing, but for the little that the
// file's own buffers take.
func TestNoAlloc(t *testing.T) {
	const packets = 2000
	for _, ng := range []bool{false, true} {
		var b bytes.Buffer
		old, write := pcapgo.NewWriter(&b), (func(gopacket.CaptureInfo, []byte) error)(nil)
		if ng {
			w, err := pcapgo.NewNgWriter(&b, layers.LinkTypeEthernet)
			if err != nil {
				t.Fatal(err)
			}
			write = func(c gopacket.CaptureInfo, f []byte) error { return errors.Join(w.WritePacket(c, f), w.Flush()) }
		} else {
			write = old.WritePacket
			if err := old.WriteFileHeader(65535, layers.LinkTypeEthernet); err != nil {
				t.Fatal(err)
			}
		}
		for k := range packets {
			if err := write(info(int64(k), 60, 60, 0), make([]byte, 60)); err != nil {
				t.Fatal(err)
			}
		}
		r, err := NewReader(bytes.NewReader(b.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		var p Packet
		if n := testing.AllocsPerRun(packets-2, func() {
			if err := r.Next(&p); err != nil {
				t.Error(err)
			}
		}); n > 0 {
			t.Errorf("pcapng %v: %v allocations a packet", ng, n)
		}
	}
}
