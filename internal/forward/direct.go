package forward

import (
	"errors"

	"github.com/netring/netring/ring"
)

// direct is the egress with nothing in between: frames go straight into one
// transmit ring, one doorbell a round.
type direct struct {
	tx   *ring.Ring
	hold bool // leave in src what does not fit, instead of dropping it
	err  error
}

func (d *direct) Move(src *ring.Ring, n int) int {
	done := ring.Move(d.tx, src, n)
	if done == n || d.tx.Space() != 0 || src.Space() == 0 {
		return done
	}
	// Full: ring the doorbell now and see what that frees.
	d.sync()
	done += ring.Move(d.tx, src, n-done)
	if done < n && !d.hold && d.tx.Space() == 0 {
		k := ring.Skip(src, n-done)
		d.tx.Stats.Drop(ring.DropFull, uint64(k))
		done += k
	}
	return done
}

func (d *direct) Copy(src *ring.Ring, k uint32) {
	if ring.Copy(d.tx, src, k) {
		return
	}
	d.sync()
	if !ring.Copy(d.tx, src, k) {
		d.tx.Stats.Drop(ring.DropFull, 1)
	}
}

func (d *direct) Flush() error {
	if d.tx.Pending() != 0 {
		d.sync()
	}
	err := d.err
	d.err = nil
	return err
}

// sync hands the ring over. Frames that the driver did not take are still in
// their slots: they are offered again with the next doorbell, unless the link
// is down.
func (d *direct) sync() {
	head := d.tx.Head
	err := d.tx.Sync()
	if err == nil {
		return
	}
	if back := head - d.tx.Head; back != 0 {
		if errors.Is(err, ring.ErrLinkDown) {
			d.tx.Stats.Drop(ring.DropLink, frames(d.tx, d.tx.Head, head))
		} else {
			d.tx.Head, d.tx.Cur = head, head
		}
	}
	if d.err == nil {
		d.err = err
	}
}

// left counts what is in the ring and not known to be sent, as closed, and
// takes back what the driver was not given. What the driver has it counts
// itself when it closes.
func (d *direct) left() {
	if d.tx.Head == d.tx.Accepted() {
		return
	}
	d.tx.Stats.Drop(ring.DropClosed, frames(d.tx, d.tx.Accepted(), d.tx.Head))
	d.tx.Head = d.tx.Accepted()
	d.tx.Cur = d.tx.Head
}

// frames returns the number of whole frames in slots [from, to) of r.
func frames(r *ring.Ring, from, to uint32) (n uint64) {
	for k := from; k != to; k++ {
		if r.Slot(k).Flags&ring.SlotMoreFrag == 0 {
			n++
		}
	}
	return n
}
