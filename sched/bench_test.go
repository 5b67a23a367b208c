package sched

import (
	"fmt"
	"testing"
	"time"

	"github.com/netring/netring/ring"
)

const burst = 64

// mover is what one round of a worker does with one run of frames.
type mover interface {
	Move(src *ring.Ring, n int) int
	Flush() error
}

// plain is a round without a Queue: the floor.
type plain struct{ tx *ring.Ring }

func (p plain) Move(src *ring.Ring, n int) int { return ring.Move(p.tx, src, n) }
func (p plain) Flush() error                   { return p.tx.Sync() }

// everything has all mechanisms on.
func everything(t testing.TB) Options {
	o := Defaults()
	o.Classifier = newClassifier(t, ClassifierOptions{SynAck: true})
	return o
}

// lane is a queue, or the floor, between rings that are always ready.
type lane struct {
	mover
	rx  *ring.Ring
	in  *fakeRx
	dev *fakeTx
	clk Clock
}

// newLane makes a lane with a transmit ring of slots slots; o nil is the floor.
func newLane(t testing.TB, o *Options, slots, size int) *lane {
	t.Helper()
	l := &lane{}
	l.clk.Set(int64(time.Hour))
	tx, dev := newTx(t, txConfig{slots: slots})
	dev.auto, dev.quiet = true, true
	l.dev, l.mover = dev, plain{tx}
	if o != nil {
		opt := *o
		opt.Clock = &l.clk
		q, err := NewQueue(tx, opt)
		if err != nil {
			t.Fatal(err)
		}
		l.mover = q
	}
	l.rx, l.in = newRx(t, 512, 2048, ring.VnetLen)
	for i := range uint32(512) {
		l.in.put(t, numbered(i, size, false), 0, ring.Vnet{}, 0)
	}
	return l
}

// round moves one burst; after it, as many frames have arrived again.
func (l *lane) round(t testing.TB) {
	if n := l.Move(l.rx, burst); n != burst {
		t.Fatalf("moved %d of %d", n, burst)
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	l.refill(t)
}

func (l *lane) refill(t testing.TB) {
	l.in.next += burst
	if err := l.rx.Sync(); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkMove is a worker's round of 64 frames of 60 bytes: without a queue,
// with everything off, and with everything on.
func BenchmarkMove(b *testing.B) {
	on := everything(b)
	staged := on
	staged.StagePackets = StagePackets
	for _, bc := range []struct {
		name string
		o    *Options
	}{{"plain", nil}, {"off", &Options{}}, {"on", &on}, {"on-staged-16", &staged}} {
		b.Run(bc.name, func(b *testing.B) {
			l := newLane(b, bc.o, 512, 60)
			for range 100 {
				l.round(b)
			}
			b.ReportAllocs()
			for b.Loop() {
				l.round(b)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/burst, "ns/pkt")
		})
	}
}

// BenchmarkCongested is two rounds of 64 frames, of which most have to wait:
// the device finishes nothing during the first.
func BenchmarkCongested(b *testing.B) {
	for _, size := range []int{60, 1514} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			o := everything(b)
			l := newLane(b, &o, 16, size)
			b.ReportAllocs()
			for b.Loop() {
				l.congested(b)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(2*burst), "ns/pkt")
			if q := l.mover.(*Queue); q.Counters().Queued.Load() == 0 {
				b.Fatal("nothing waited")
			}
		})
	}
}

// congested is two rounds; the device finishes nothing during the first.
func (l *lane) congested(t testing.TB) {
	l.dev.auto = false
	if n := l.Move(l.rx, burst); n != burst {
		t.Fatalf("moved %d of %d", n, burst)
	}
	l.refill(t)
	l.dev.finish(l.dev.r.Len())
	l.dev.auto = true
	l.round(t)
}

// Neither path allocates.
func TestQueueAllocs(t *testing.T) {
	on := everything(t)
	for name, o := range map[string]*Options{"off": {}, "on": &on} {
		l := newLane(t, o, 512, 60)
		if n := testing.AllocsPerRun(100, func() { l.round(t) }); n != 0 {
			t.Errorf("%s: %v allocations per round", name, n)
		}
	}
	l := newLane(t, &on, 16, 1514)
	if n := testing.AllocsPerRun(100, func() { l.congested(t) }); n != 0 {
		t.Errorf("congested: %v allocations per round", n)
	}
	if c := l.mover.(*Queue).Counters(); c.Queued.Load() == 0 {
		t.Error("congested: nothing waited")
	}
}
