package lagg

import (
	"testing"
	"time"

	"github.com/netring/netring/ring"
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

// skipper is an egress that costs nothing.
type skipper struct{}

func (skipper) Move(src *ring.Ring, n int) int { return ring.Skip(src, n) }
func (skipper) Copy(*ring.Ring, uint32)        {}
func (skipper) Flush() error                   { return nil }
