package ring_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/netring/netring/ring"
)

// TestLife: whoever got in finds the memory until it leaves, whatever many
// goroutines do that go in and out, nested and refused, and several that shut.
func TestLife(t *testing.T) {
	for range 200 {
		l := ring.NewLife()
		var gone, first atomic.Int32
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for l.Enter() {
					if l.Enter() { // refused if Shut came in between
						l.Exit()
					}
					if gone.Load() != 0 {
						t.Error("inside after Drain")
					}
					l.Exit()
				}
				if !l.Closed() {
					t.Error("refused before it was closed")
				}
			})
		}
		for range 2 {
			all.Go(func() {
				if l.Shut() {
					first.Add(1)
					l.Drain()
					gone.Store(1)
				}
			})
		}
		all.Wait()
		if first.Load() != 1 || !l.Closed() || l.Enter() {
			t.Fatalf("%d first shuts, closed %v", first.Load(), l.Closed())
		}
	}
}

// TestDrainWaits: Drain does not return while somebody is inside.
func TestDrainWaits(t *testing.T) {
	l := ring.NewLife()
	if !l.Enter() || !l.Shut() {
		t.Fatal("a fresh life is closed")
	}
	var left atomic.Bool
	done := make(chan bool)
	go func() {
		l.Drain()
		done <- left.Load()
	}()
	for range 1000 {
		if l.Enter() { // each refusal gives Drain a false alarm
			t.Fatal("let in after Shut")
		}
	}
	left.Store(true)
	l.Exit()
	if !<-done {
		t.Error("Drain returned while somebody was inside")
	}
}

func TestClosedRing(t *testing.T) {
	life := ring.NewLife()
	r, err := ring.New(ring.Config{Port: "p", Index: 3, Slots: 4, Region: region(t, 4, 64), Life: life, Driver: all{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Enter(); err != nil {
		t.Fatal(err)
	}
	life.Shut()
	if err := r.Sync(); !errors.Is(err, ring.ErrClosed) { // also while inside
		t.Error(err)
	}
	r.Exit()
	life.Drain()
	r.Arm()
	for what, err := range map[string]error{"enter": r.Enter(), "sync": r.Sync(), "refresh": r.Refresh(), "reset": r.Reset()} {
		var op *ring.OpError
		if !errors.Is(err, ring.ErrClosed) || !errors.As(err, &op) || op.Op != what || op.Ring != 3 {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// all is a driver with every ability, none of which may be asked for.
type all struct{}

func (all) Sync(*ring.Ring, uint32, uint32) (uint32, uint32, error) { panic("closed") }
func (all) Arm(*ring.Ring)                                          { panic("closed") }
func (all) Refresh(*ring.Ring) error                                { panic("closed") }
func (all) Reset(*ring.Ring) error                                  { panic("closed") }
