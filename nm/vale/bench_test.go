package vale

import (
	"fmt"
	"testing"

	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/mem"
)

// ringEgress sends straight into a ring.
type ringEgress struct{ tx *ring.Ring }

func (e ringEgress) Move(src *ring.Ring, n int) int { return ring.Move(e.tx, src, n) }

func (e ringEgress) Copy(src *ring.Ring, k uint32) {
	if !ring.Copy(e.tx, src, k) {
		e.tx.Stats.Drop(ring.DropFull, 1)
	}
}

func (e ringEgress) Flush() error { return e.tx.Sync() }

// cables are switch ports of ring/mem: what a station sends into far[i] comes
// to the switch by near[i], and back.
type cables struct {
	*Switch
	near, far []*mem.Port
}

// newCables makes n ports, over one region or over a region each.
func newCables(b testing.TB, n int, shared bool) *cables {
	b.Helper()
	o := mem.Options{Slots: 256}
	if shared {
		p, err := mem.NewPool(n*o.Bufs(), mem.DefaultBufSize)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = p.Close() })
		o.Pool = p
	}
	s, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	c := &cables{Switch: s}
	for i := range n {
		near, far, err := mem.Pair(o)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _, _ = near.Close(), far.Close() })
		if _, err := s.Add(fmt.Sprintf("p%d", i), []ring.Egress{ringEgress{near.TxRings()[0]}}); err != nil {
			b.Fatal(err)
		}
		c.near, c.far = append(c.near, near), append(c.far, far)
	}
	return c
}

// offer sends n 60-byte frames from the station at port in, in turn from
// frames, of which there is a power of two; nil for those that are in the
// buffers.
func (c *cables) offer(b testing.TB, in, n int, frames [][]byte) {
	tx := c.far[in].TxRings()[0]
	if tx.Space() < n {
		b.Fatalf("%d slots to send %d frames", tx.Space(), n)
	}
	for i := range n {
		s := tx.Slot(tx.Head)
		if frames != nil {
			copy(tx.Buf(tx.Head)[:60], frames[i&(len(frames)-1)])
		} else {
			s.Off = uint32(tx.Offset())
		}
		s.Len, s.Flags = 60, 0
		tx.Head++
	}
	tx.Cur = tx.Head
	c.sync(b, tx)
}

func (c *cables) sync(b testing.TB, r *ring.Ring) {
	if err := r.Sync(); err != nil {
		b.Fatal(err)
	}
}

// forward lets the switch take n frames from port in.
func (c *cables) forward(b testing.TB, in, n int) {
	rx := c.near[in].RxRings()[0]
	c.sync(b, rx)
	if got := c.Forward(0, PortID(in), rx, n); got != n {
		b.Fatalf("forwarded %d of %d frames", got, n)
	}
	if err := c.Flush(0); err != nil {
		b.Fatal(err)
	}
	c.sync(b, rx)
}

// drain takes what arrived at the station of port out.
func (c *cables) drain(b testing.TB, out int) int {
	rx := c.far[out].RxRings()[0]
	c.sync(b, rx)
	n := ring.Skip(rx, rx.Len())
	c.sync(b, rx)
	return n
}

const benchBatch = 64

// BenchmarkForward measures a station's frames from its transmit ring, through
// the switch, to the receiving station; all on one core. The sender writes
// each frame, but for the resident ones, of which all buffers have one.
func BenchmarkForward(b *testing.B) {
	for _, v := range []struct {
		name     string
		ports    int
		shared   bool
		stations int
		resident bool
	}{
		{"swap/1to1", 3, true, 1, false}, {"copy/1to1", 3, false, 1, false},
		{"swap/1to1/resident", 3, true, 1, true},
		{"swap/wire", 2, true, 1, false}, {"copy/wire", 2, false, 1, false},
		{"swap/64stations", 3, true, 64, false},
	} {
		b.Run(v.name, func(b *testing.B) {
			c := newCables(b, v.ports, v.shared)
			frames := make([][]byte, v.stations)
			for i := range frames {
				frames[i] = frame(macB+MAC(i), macA+MAC(i), i)
				c.offer(b, 1, 1, [][]byte{frame(bcast, macB+MAC(i), 0)})
				c.forward(b, 1, 1)
				for p := range v.ports {
					c.drain(b, p)
				}
				c.sync(b, c.far[1].TxRings()[0])
			}
			if v.resident {
				for g, i := c.near[0].RxRings()[0].Region(), 0; i < g.Bufs(); i++ {
					copy(g.Buf(uint32(i))[mem.DefaultHeadroom:], frames[0])
				}
				frames = nil
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i += benchBatch {
				c.offer(b, 0, benchBatch, frames)
				c.forward(b, 0, benchBatch)
				if n := c.drain(b, 1); n != benchBatch {
					b.Fatalf("%d of %d frames arrived", n, benchBatch)
				}
			}
			b.ReportMetric(float64(b.N)/1e6/b.Elapsed().Seconds(), "Mpps")
		})
	}
}

// BenchmarkFlood measures frames to all, the copies counted.
func BenchmarkFlood(b *testing.B) {
	const ports = 5
	c := newCables(b, ports, true)
	f := [][]byte{frame(bcast, macA, 0)}
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += benchBatch {
		c.offer(b, 0, benchBatch, f)
		c.forward(b, 0, benchBatch)
		for p := 1; p < ports; p++ {
			c.drain(b, p)
		}
	}
	b.ReportMetric(float64(b.N)*(ports-1)/1e6/b.Elapsed().Seconds(), "Mpps-out")
}

// BenchmarkTable measures the table alone, full to its limit.
func BenchmarkTable(b *testing.B) {
	t := newTable(b, TableOptions{})
	for i := range DefaultAddresses {
		t.Learn(macA+MAC(i), PortID(i&7))
	}
	b.Run("lookup", func(b *testing.B) {
		b.ReportAllocs()
		i := MAC(0)
		for b.Loop() {
			if _, ok := t.Lookup(macA + i&(DefaultAddresses-1)); !ok {
				b.Fatal("lost")
			}
			i += 37
		}
	})
	b.Run("miss", func(b *testing.B) {
		i := MAC(0)
		for b.Loop() {
			if _, ok := t.Lookup(macB<<8&macMask + i); ok {
				b.Fatal("found")
			}
			i++
		}
	})
	b.Run("learn", func(b *testing.B) {
		b.ReportAllocs()
		i := MAC(0)
		for b.Loop() {
			a := i & (DefaultAddresses - 1)
			if !t.Learn(macA+a, PortID(a&7)) {
				b.Fatal("refused")
			}
			i += 37
		}
	})
}

// TestAllocs: forwarding allocates nothing, be it known, flooded or dropped.
func TestAllocs(t *testing.T) {
	c := newCables(t, 4, true)
	fill := func(i int) []byte { return frame([]MAC{macA, macB, bcast, lacp}[i&3], macA, i) }
	var all [][]byte
	for i := range 32 {
		all = append(all, fill(i))
	}
	n := testing.AllocsPerRun(100, func() {
		c.offer(t, 0, len(all), all)
		c.forward(t, 0, len(all))
		for p := range c.far {
			c.drain(t, p)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations for %d frames", n, len(all))
	}
}
