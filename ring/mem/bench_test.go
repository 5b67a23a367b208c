package mem_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/mem"
)

func pair(t testing.TB, o mem.Options) (a, b *mem.Port) {
	t.Helper()
	a, b, err := mem.Pair(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, p := range []*mem.Port{a, b} {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return a, b
}

// fill writes batch frames of 60 bytes, which do not wrap, and hands them over.
func fill(t testing.TB, tx *ring.Ring, batch uint32, touch bool) {
	from, to := tx.Head, tx.Head+batch
	at := from & uint32(tx.Len()-1)
	slots := tx.Slots()[at : at+batch]
	for i := range slots {
		slots[i].Len, slots[i].Flags = 60, 0
	}
	for k := from; touch && k != to; k++ {
		b := tx.Buf(k)[:60]
		for i := 0; i < 56; i += 8 {
			binary.LittleEndian.PutUint64(b[i:], uint64(k))
		}
		binary.LittleEndian.PutUint32(b[56:], k)
	}
	tx.Head, tx.Cur = to, to
	if err := tx.Sync(); err != nil {
		t.Fatal(err)
	}
}

// drain reads all frames that have come, which do not wrap, and passes over them.
func drain(t testing.TB, rx *ring.Ring, touch bool) (sum uint64) {
	if err := rx.Sync(); err != nil {
		t.Fatal(err)
	}
	from, to := rx.Head, rx.Tail()
	at := from & uint32(rx.Len()-1)
	slots := rx.Slots()[at : at+to-from]
	for i := range slots {
		sum += uint64(slots[i].Len)
	}
	for k := from; touch && k != to; k++ {
		for b := rx.Frame(k); len(b) >= 8; b = b[8:] {
			sum += binary.LittleEndian.Uint64(b)
		}
	}
	rx.Head, rx.Cur = to, to
	return sum
}

func BenchmarkPair(b *testing.B) {
	for _, touch := range []bool{false, true} {
		for _, slots := range []int{256, 512, 1024} {
			batch := uint32(slots / 4)
			b.Run(fmt.Sprintf("touch=%v/slots=%d/batch=%d", touch, slots, batch), func(b *testing.B) {
				p, q := pair(b, mem.Options{Slots: slots})
				tx, rx := p.TxRings()[0], q.RxRings()[0]
				b.ReportAllocs()
				var sum uint64
				for b.Loop() {
					fill(b, tx, batch, touch)
					sum += drain(b, rx, touch)
				}
				if sum == 0 {
					b.Fatal("nothing arrived")
				}
				b.ReportMetric(float64(b.N)*float64(batch)/b.Elapsed().Seconds()/1e6, "Mpps")
			})
		}
	}
}
