package finish

import (
	"fmt"
	"sync/atomic"

	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/mem"
)

// Egress stands before an egress whose ring carries no virtio-net header, when
// frames may come in that have one. It finishes those: they go by a pipe, which
// [Move] and [Copy] write at one end and which is moved on from the other. All
// others go straight to the egress, unless some in the pipe are before them.
type Egress struct {
	ring.Egress
	to   *ring.Ring // the egress's own ring
	ends [2]*mem.Port
	tx   *ring.Ring // of the pipe
	rx   *ring.Ring

	// Made counts the segments of super-frames but for the first of each: one
	// frame in, 1 + Made out. Anybody may read it.
	Made atomic.Uint64
}

// Bounds of the pipe: enough segments for any super-frame of the usual MTU,
// and of memory where frames are larger.
const (
	pipeSlots = 1024
	pipeBytes = 4 << 20
)

// NewEgress makes the way out before next, the egress of ring to. It takes a
// pipe's descriptors and memory until Close.
func NewEgress(next ring.Egress, to *ring.Ring) (*Egress, error) {
	o := mem.Options{Slots: pipeSlots, BufSize: to.MaxFrame() + mem.DefaultHeadroom}
	for o.Slots > 64 && o.Slots*o.BufSize > pipeBytes {
		o.Slots /= 2
	}
	a, b, err := mem.Pair(o)
	if err != nil {
		return nil, fmt.Errorf("make a pipe to finish frames in: %w", err)
	}
	return &Egress{Egress: next, to: to, ends: [2]*mem.Port{a, b}, tx: a.TxRings()[0], rx: b.RxRings()[0]}, nil
}

// Move is [ring.Egress.Move].
func (f *Egress) Move(src *ring.Ring, n int) int {
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
		if src.Space() == 0 || Move(f.tx, src, 1) == 0 {
			break
		}
		f.count(head)
		done++
	}
	f.push()
	return done
}

// Copy is [ring.Egress.Copy].
func (f *Egress) Copy(src *ring.Ring, k uint32) {
	room := f.push()
	if room && !ring.NeedsFinish(f.to, src, k) {
		f.Egress.Copy(src, k)
		return
	}
	head := f.tx.Head
	if !Copy(f.tx, src, k) {
		f.to.Stats.Drop(ring.DropFull, 1)
		return
	}
	f.count(head)
	f.push()
}

// count notes what became of one frame that was put into the pipe at head.
func (f *Egress) count(head uint32) {
	n := uint64(0)
	for k := head; k != f.tx.Head; k++ {
		if f.tx.Slot(k).Flags&ring.SlotMoreFrag == 0 {
			n++
		}
	}
	if n > 1 {
		f.Made.Add(n - 1)
	}
}

// push moves on what is in the pipe and reports whether that was all.
func (f *Egress) push() bool {
	if f.Pending() == 0 {
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

// Pending is the number of finished frames in the pipe.
func (f *Egress) Pending() int { return int(f.tx.Head-f.tx.Accepted()) + f.rx.Space() }

// Drops counts, by cause, the frames that could not be finished. What the pipe
// passed on counts at the egress's own ring.
func (f *Egress) Drops() *[ring.NumCauses]atomic.Uint64 { return &f.tx.Stats.Drops }

// Flush is [ring.Egress.Flush].
func (f *Egress) Flush() error {
	f.push()
	return f.Egress.Flush()
}

// Close counts what the egress has not taken as closed. Not while another
// method runs.
func (f *Egress) Close() error {
	f.to.Stats.Drop(ring.DropClosed, uint64(f.Pending()))
	_ = ring.Skip(f.rx, f.rx.Space())
	_ = f.rx.Sync()
	if err := f.ends[1].Close(); err != nil {
		return err
	}
	return f.ends[0].Close()
}
