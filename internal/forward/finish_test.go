package forward

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/mem"
)

// Unfinished frames leave finished through a ring without virtio-net header,
// in order with the others.
func TestFinish(t *testing.T) {
	with := mem.Options{Slots: 64, VnetLen: ring.VnetLen, BufSize: ring.MaxFrame + mem.DefaultHeadroom}
	c := newCable(t, Options{Queue: policies["backpressure"]}, with, mem.Options{Slots: 256}).run()
	tx := c.outer[0].TxRings()[0]
	const segments, size = 5, 1000
	for kind := range 3 {
		payload := 200
		if kind == 2 {
			payload = segments * size
		}
		f := tcpFrame(payload)
		copy(tx.Buf(tx.Head), f)
		s := tx.Slot(tx.Head)
		s.Len, s.Flags = uint32(len(f)), 0
		if kind > 0 {
			v := ring.Vnet{Flags: ring.VnetNeedCsum, CsumStart: 34, CsumOffset: 16}
			if kind == 2 {
				v.GSOType, v.GSOSize, v.HdrLen = ring.VnetGSOTCPv4, size, 54
			}
			if !tx.SetVnet(tx.Head, &v) {
				t.Fatal("no room for the header")
			}
		}
		tx.Head++
	}
	tx.Cur = tx.Head
	if err := tx.Sync(); err != nil {
		t.Fatal(err)
	}
	var lens []int
	rx := c.outer[1].RxRings()[0]
	for end := time.Now().Add(5 * time.Second); len(lens) < 2+segments && time.Now().Before(end); time.Sleep(time.Millisecond) {
		if err := rx.Sync(); err != nil {
			t.Fatal(err)
		}
		for ; rx.Head != rx.Tail(); rx.Head++ {
			f := rx.Frame(rx.Head)
			lens = append(lens, len(f))
			if len(lens) > 1 && tcpSum(f) != 0xffff {
				t.Errorf("frame %d: wrong checksum", len(lens))
			}
		}
		rx.Cur = rx.Head
	}
	want := []int{254, 254, 1054, 1054, 1054, 1054, 1054}
	if fmt.Sprint(lens) != fmt.Sprint(want) {
		t.Errorf("lengths %v, want %v", lens, want)
	}
	if err := rx.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := c.end(); err != nil {
		t.Error(err)
	}
	if _, _, _, copied := c.sums(); copied != segments-1 {
		t.Errorf("%d frames made, want %d", copied, segments-1)
	}
	c.balance(3)
}

// tcpFrame is a TCP segment over IPv4 whose checksum covers the pseudo header.
func tcpFrame(payload int) []byte {
	f := make([]byte, 54+payload)
	f[12], f[13] = 0x08, 0x00
	ip := f[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, 6
	binary.BigEndian.PutUint16(ip[2:], uint16(len(f)-14))
	copy(ip[12:], []byte{10, 0, 0, 1, 10, 0, 0, 2})
	tcp := ip[20:]
	tcp[12] = 5 << 4
	for i := range tcp[20:] {
		tcp[20+i] = byte(i * 3)
	}
	pseudo := sum16(ip[12:20], 6+uint32(20+payload))
	binary.BigEndian.PutUint16(tcp[16:], pseudo)
	return f
}

// tcpSum adds up a segment with its pseudo header: 0xffff if it is right.
func tcpSum(f []byte) uint16 {
	total := int(binary.BigEndian.Uint16(f[16:]))
	return sum16(f[34:14+total], uint32(sum16(f[26:34], 6+uint32(total-20))))
}

func sum16(b []byte, acc uint32) uint16 {
	for i := 0; i < len(b); i += 2 {
		acc += uint32(b[i]) << 8
		if i+1 < len(b) {
			acc += uint32(b[i+1])
		}
	}
	for acc > 0xffff {
		acc = acc>>16 + acc&0xffff
	}
	return uint16(acc)
}
