package lagg

import (
	"testing"
	"time"

	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/mem"
)

func BenchmarkSelect(b *testing.B) {
	for name, o := range map[string]Options{
		"failover": {}, "roundrobin": {Proto: RoundRobin, Stride: 8}, "bytes": {Proto: RoundRobin, StrideBytes: 16384},
		"loadbalance": {Proto: LoadBalance}, "loadbalance/l3l4": {Proto: LoadBalance, Hash: L3 | L4},
	} {
		b.Run(name, func(b *testing.B) {
			g := group(b, 4, o)
			var out []ring.Egress
			for i := range 4 {
				g.SetLink(i, true, 1)
				out = append(out, skipper{})
			}
			e, err := g.Egress(out, func() time.Duration { return 1 })
			if err != nil {
				b.Fatal(err)
			}
			src := frames(b, 256)
			b.ReportAllocs()
			for b.Loop() {
				e.Move(src, 256)
				src.Sync()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/pkt")
		})
	}
}

// BenchmarkMem sends 64-byte frames of 256 flows through a group over two
// memory ports and receives them on the other side.
func BenchmarkMem(b *testing.B) {
	for _, c := range []struct {
		name string
		o    Options
	}{
		{"failover", Options{}}, {"roundrobin/stride=32", Options{Proto: RoundRobin, Stride: 32}},
		{"loadbalance", Options{Proto: LoadBalance, Seed: 1}}, {"broadcast", Options{Proto: Broadcast}},
	} {
		b.Run(c.name, func(b *testing.B) {
			g := group(b, 2, c.o)
			var out []ring.Egress
			var far []*ring.Ring
			for i := range 2 {
				g.SetLink(i, true, 1)
				near, end, err := mem.Pair(mem.Options{})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { near.Close(); end.Close() })
				out = append(out, wire{near.TxRings()[0]})
				far = append(far, end.RxRings()[0])
			}
			e, err := g.Egress(out, func() time.Duration { return 1 })
			if err != nil {
				b.Fatal(err)
			}
			src := frames(b, 256)
			b.ReportAllocs()
			for b.Loop() {
				if e.Move(src, 256) != 256 || e.Flush() != nil || src.Sync() != nil {
					b.Fatal("held up")
				}
				for _, rx := range far {
					rx.Sync()
					ring.Skip(rx, rx.Space())
					rx.Cur = rx.Head
					rx.Sync()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/pkt")
		})
	}
}

// wire is a transmit ring without a queue before it.
type wire struct{ tx *ring.Ring }

func (w wire) Move(src *ring.Ring, n int) int { return ring.Move(w.tx, src, n) }
func (w wire) Copy(src *ring.Ring, k uint32)  { ring.Copy(w.tx, src, k) }
func (w wire) Flush() error                   { return w.tx.Sync() }
func (w wire) Pending() int                   { return w.tx.Pending() }

func TestNoAllocations(t *testing.T) {
	for _, o := range []Options{{}, {Proto: RoundRobin}, {Proto: RoundRobin, StrideBytes: 2048}, {Proto: LoadBalance}, {Proto: Broadcast}} {
		g := group(t, 2, o)
		g.SetLink(0, true, 1)
		g.SetLink(1, true, 1)
		e, err := g.Egress([]ring.Egress{skipper{}, skipper{}}, func() time.Duration { return 1 })
		if err != nil {
			t.Fatal(err)
		}
		src := frames(t, 64)
		if n := testing.AllocsPerRun(50, func() {
			e.Copy(src, src.Head)
			e.Move(src, 64)
			e.Flush()
			src.Sync()
		}); n != 0 {
			t.Errorf("%v: %v allocations a batch", o.Proto, n)
		}
	}
}

// skipper is an egress that costs nothing.
type skipper struct{}

func (skipper) Move(src *ring.Ring, n int) int { return ring.Skip(src, n) }
func (skipper) Copy(*ring.Ring, uint32)        {}
func (skipper) Flush() error                   { return nil }
func (skipper) Pending() int                   { return 0 }
