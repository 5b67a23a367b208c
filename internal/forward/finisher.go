package forward

import (
	"fmt"
	"sync/atomic"

	"github.com/netring/netring/internal/finish"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/mem"
)

// finisher stands before an egress whose ring carries no virtio-net header,
// when frames may come in that have one. It finishes those: they go by a pipe,
// written by package finish at one end and moved on from the other. All others
// go straight to the egress, unless some in the pipe are before them.
type finisher struct {
	ring.Egress
	to   *ring.Ring // the egress's own ring
	ends [2]*mem.Port
	tx   *ring.Ring // of the pipe
	rx   *ring.Ring
	made atomic.Uint64 // frames that became of a frame, but for the first
}

// Bounds of the pipe: enough segments for any super-frame of the usual MTU,
// and of memory where frames are larger.
const (
	pipeSlots = 1024
	pipeBytes = 4 << 20
)

func newFinisher(next ring.Egress, to *ring.Ring) (*finisher, error) {
	o := mem.Options{Slots: pipeSlots, BufSize: to.MaxFrame() + mem.DefaultHeadroom}
	for o.Slots > 64 && o.Slots*o.BufSize > pipeBytes {
		o.Slots /= 2
	}
	a, b, err := mem.Pair(o)
	if err != nil {
		return nil, fmt.Errorf("make a pipe to finish frames in: %w", err)
	}
	return &finisher{Egress: next, to: to, ends: [2]*mem.Port{a, b}, tx: a.TxRings()[0], rx: b.RxRings()[0]}, nil
}

// Move is [ring.Egress.Move].
func (f *finisher) Move(src *ring.Ring, n int) int {
	done := 0
	for done < n && f.push() {
		if run := plain(src, n-done); run > 0 {
			moved := f.Egress.Move(src, run)
			done += moved
			if moved < run {
				break
			}
			continue
		}
		head := f.tx.Head
		if src.Space() == 0 || finish.Move(f.tx, src, 1) == 0 {
			break
		}
		f.count(head)
		done++
	}
	f.push()
	return done
}

// Copy is [ring.Egress.Copy].
func (f *finisher) Copy(src *ring.Ring, k uint32) {
	room := f.push()
	if room && !ring.NeedsFinish(f.to, src, k) {
		f.Egress.Copy(src, k)
		return
	}
	head := f.tx.Head
	if !finish.Copy(f.tx, src, k) {
		f.to.Stats.Drop(ring.DropFull, 1)
		return
	}
	f.count(head)
	f.push()
}

// count notes what became of one frame that was put into the pipe at head.
func (f *finisher) count(head uint32) {
	if n := f.tx.Head - head; n > 1 {
		f.made.Add(uint64(n - 1))
	}
}

// plain counts frames at the head of src, up to n, that need no finishing.
func plain(src *ring.Ring, n int) int {
	frames := 0
	for k := src.Head; frames < n && k != src.Tail(); k++ {
		flags := src.Slot(k).Flags
		if flags&ring.SlotVnet != 0 {
			break
		}
		if flags&ring.SlotMoreFrag == 0 {
			frames++
		}
	}
	return frames
}

// push moves on what is in the pipe and reports whether that was all.
func (f *finisher) push() bool {
	if f.pending() == 0 {
		return true
	}
	// The pipe's ends are ours alone and cannot fail before they are closed.
	_ = f.tx.Sync()
	_ = f.rx.Sync()
	f.Egress.Move(f.rx, f.rx.Space())
	_ = f.rx.Sync()
	_ = f.tx.Sync()
	return f.rx.Space() == 0
}

// pending is the number of finished frames in the pipe.
func (f *finisher) pending() int { return int(f.tx.Head-f.tx.Accepted()) + f.rx.Space() }

// Flush is [ring.Egress.Flush].
func (f *finisher) Flush() error {
	f.push()
	return f.Egress.Flush()
}

// close counts what the egress has not taken as closed.
func (f *finisher) close() error {
	f.to.Stats.Drop(ring.DropClosed, uint64(f.pending()))
	_ = ring.Skip(f.rx, f.rx.Space())
	_ = f.rx.Sync()
	if err := f.ends[1].Close(); err != nil {
		return err
	}
	return f.ends[0].Close()
}
