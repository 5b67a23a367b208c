package forward

import (
	"io"
	"log/slog"
	"testing"

	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/mem"
	"github.com/netring/netring/sched"
)

// The path of a frame allocates nothing.
func BenchmarkRound(b *testing.B) {
	for name, q := range policies {
		b.Run(name, func(b *testing.B) {
			step, done := roundStep(b, q)
			defer done()
			b.ReportAllocs()
			frames := 0
			for b.Loop() {
				frames += step()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(frames), "ns/frame")
		})
	}
}

func TestRoundAllocatesNothing(t *testing.T) {
	for name, q := range policies {
		step, done := roundStep(t, q)
		if n := testing.AllocsPerRun(100, func() { step() }); n != 0 {
			t.Errorf("%s: %v allocations a round", name, n)
		}
		done()
	}
}

// roundStep makes a function that sends 32 frames through a bridge's handlers,
// without the scheduler, and returns how many came out.
func roundStep(tb testing.TB, q sched.Options) (step func() int, done func()) {
	tb.Helper()
	var p []Port
	var outer []*mem.Port
	for range 2 {
		in, out, err := mem.Pair(mem.Options{Slots: 64})
		if err != nil {
			tb.Fatal(err)
		}
		p = append(p, Port{Name: in.Name(), Links: []ring.Port{in}})
		outer = append(outer, out)
	}
	b, err := New(p, Options{Queue: q, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		tb.Fatal(err)
	}
	tx, rx := outer[0].TxRings()[0], outer[1].RxRings()[0]
	stations := b.workers[0].stations
	return func() int {
			for range min(32, tx.Space()) {
				tx.Buf(tx.Head)
				tx.Slot(tx.Head).Len, tx.Slot(tx.Head).Flags = 60, 0
				tx.Head++
			}
			tx.Cur = tx.Head
			_ = tx.Sync()
			for _, s := range stations {
				_, _ = s.Poll(64)
			}
			for _, s := range stations {
				_ = s.Flush()
			}
			_ = rx.Sync()
			n := ring.Skip(rx, rx.Space())
			_ = rx.Sync()
			return n
		}, func() {
			_ = b.Close()
			for _, o := range outer {
				o.Close()
			}
		}
}
