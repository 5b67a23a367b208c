package nm

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/netring/netring/poll"
	"github.com/netring/netring/ring"
)

// ErrNoRoom: no transmit ring has room for the frame. Sync or Poll for Out, then
// try again.
var ErrNoRoom = errors.New("no room in the transmit rings")

// Desc is an open port. See the package comment for who may use it.
type Desc struct {
	spec   PortSpec
	port   ring.Port
	rx, tx []*ring.Ring
	nextRx int // ring that NextPkt looks at first
	nextTx int // ring that Inject tries first
	taken  *ring.Ring
	upto   uint32 // head of taken once its packet is passed
	joined []byte // for frames of several slots
	both   []*ring.Ring

	sw       *Switch
	attached bool // an interface is on the switch; the program has no rings
	extra    []uint32
	lagg     *laggPort

	polling sync.Mutex // held while waiter is in use
	waiter  *poll.Waiter
	closed  bool // there will be no waiter any more

	once     sync.Once
	closeErr error
	undo     []func() error // in the order of opening
}

// Packet is a received frame.
type Packet struct {
	Frame []byte     // valid until the next call of a method of the Desc
	Ring  *ring.Ring // it came from
	Slot  uint32     // its first slot in the ring
	Slots uint32     // how many slots it takes
}

// Meta tells what the driver knows about the packet.
func (p *Packet) Meta(m *ring.Meta) bool { return p.Ring.Meta(p.Slot, m) }

// Spec returns the port's name taken apart.
func (d *Desc) Spec() PortSpec { return d.spec }

// Port returns the driver's port, for what only that driver can do. The rings of
// an interface on a switch are the switch's.
func (d *Desc) Port() ring.Port { return d.port }

// Switch returns the switch that the port is on, nil if it is on none.
func (d *Desc) Switch() *Switch { return d.sw }

// ExtraBufs returns the buffers that Options.ExtraBufs asked for, or as many as
// there were: indexes into the region of the port's rings, which are the
// program's. It may exchange them for the buffer of any slot that it owns
// ([ring.Slot].Buf), writing the one that it gets in exchange into the list.
// What is in the list is given back when the Desc is closed.
func (d *Desc) ExtraBufs() []uint32 { return d.extra }

// RxRings and TxRings return the rings that the port's name selects.
func (d *Desc) RxRings() []*ring.Ring { return d.rx }
func (d *Desc) TxRings() []*ring.Ring { return d.tx }

// Sync syncs all rings; the errors of all of them are returned.
func (d *Desc) Sync() error { return errors.Join(d.SyncTx(), d.SyncRx()) }

// SyncTx hands filled slots over and takes finished ones back.
func (d *Desc) SyncTx() error { return d.explain(syncAll(d.tx)) }

// SyncRx gives passed slots back and brings what has arrived.
func (d *Desc) SyncRx() error {
	d.pass()
	return d.explain(syncAll(d.rx))
}

func syncAll(rings []*ring.Ring) error {
	var errs []error
	for _, r := range rings {
		if err := r.Sync(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Inject copies one frame, complete and unsegmented, into a transmit ring with
// room, trying them in turn. It is not sent before the next SyncTx, Poll or
// Flush. The error Is ErrNoRoom, or ring.ErrTooLarge.
func (d *Desc) Inject(frame []byte) error {
	if len(frame) == 0 {
		return fmt.Errorf("inject: %w: frame is empty", ring.ErrSlot)
	}
	tooLarge := len(d.tx) != 0
	for i := range d.tx {
		r := d.tx[(d.nextTx+i)%len(d.tx)]
		switch err := inject(r, frame); {
		case err == nil:
			d.nextTx = (d.nextTx + i + 1) % len(d.tx)
			return nil
		case !errors.Is(err, ring.ErrTooLarge):
			tooLarge = false
		}
	}
	if tooLarge {
		return fmt.Errorf("inject %d bytes: %w: %s sends up to %d", len(frame), ring.ErrTooLarge, d.spec.Name, d.tx[0].MaxFrame())
	}
	return ErrNoRoom
}

// inject copies a frame into r: into one slot, or into several where r takes
// that.
func inject(r *ring.Ring, frame []byte) error {
	if len(frame) > r.MaxFrame() {
		return ring.ErrTooLarge
	}
	for rest, k := frame, r.Head; ; k++ {
		if k == r.Tail() {
			return ErrNoRoom
		}
		b := r.Buf(k)
		n := copy(b, rest)
		if n < len(rest) && !r.MultiSlot() {
			return ring.ErrTooLarge
		}
		s := r.Slot(k)
		s.Len, s.Flags = uint32(n), 0
		if rest = rest[n:]; len(rest) == 0 {
			r.Head = k + 1
			r.Cur = r.Head
			return nil
		}
		s.Flags = ring.SlotMoreFrag
	}
}

// pass gives up the packet that NextPkt returned last.
func (d *Desc) pass() {
	if d.taken != nil {
		d.taken.Head = d.upto
		if d.taken.Cur-d.taken.Head > d.taken.Tail()-d.taken.Head {
			d.taken.Cur = d.taken.Head
		}
		d.taken = nil
	}
}

// NextPkt returns the next packet that the last sync brought, taking the rings
// in turn, and gives up the one before; false if there is none. A frame of
// several slots is put together.
func (d *Desc) NextPkt() (p Packet, ok bool) {
	d.pass()
	for range d.rx {
		r := d.rx[d.nextRx]
		frame, slots := Reassemble(d.joined[:0], r, r.Head)
		if slots != 0 {
			if slots > 1 {
				d.joined = frame
			}
			d.taken, d.upto = r, r.Head+slots
			r.Cur = d.upto
			return Packet{Frame: frame, Ring: r, Slot: r.Head, Slots: slots}, true
		}
		d.nextRx = (d.nextRx + 1) % len(d.rx)
	}
	return Packet{}, false
}

// Reassemble returns the whole frame that starts at slot k of r, and how many
// slots it takes; 0 slots if its end has not arrived. A frame of one slot is
// returned where it lies, others are appended to buf.
func Reassemble(buf []byte, r *ring.Ring, k uint32) (frame []byte, slots uint32) {
	for i := uint32(0); k+i != r.Tail(); i++ {
		b := r.Frame(k + i)
		last := r.Slot(k+i).Flags&ring.SlotMoreFrag == 0
		if i == 0 && last {
			return b, 1
		}
		buf = append(buf, b...)
		if last {
			return buf, i + 1
		}
	}
	return nil, 0
}

// Packets ranges over the packets that the last sync brought:
//
//	for p := range d.Packets() { ... }
//
// Each is given up when the loop goes on; breaking off gives up the last one
// seen and keeps the rest.
func (d *Desc) Packets() iter.Seq[Packet] {
	return func(yield func(Packet) bool) {
		for {
			p, ok := d.NextPkt()
			if !ok {
				return
			}
			if !yield(p) {
				d.pass()
				return
			}
		}
	}
}

// FreeSlots ranges over the free slots of the transmit rings, ring by ring. The
// program fills the buffer of each (Ring.Buf) and sets Len and Flags; the slot
// is handed over, at the next sync, when the loop goes on. Breaking off leaves
// the last slot free.
func (d *Desc) FreeSlots() iter.Seq2[*ring.Ring, uint32] {
	return func(yield func(*ring.Ring, uint32) bool) {
		for _, r := range d.tx {
			for r.Space() > 0 {
				if !yield(r, r.Head) {
					return
				}
				r.Head++
				r.Cur = r.Head
			}
		}
	}
}

// Dispatch calls f for each of up to n packets (any number if n is 0 or less),
// waiting for them as necessary, and returns how many it has had. It ends with
// n, with an error of f, with ctx, or with an error of the port.
func (d *Desc) Dispatch(ctx context.Context, n int, f func(Packet) error) (int, error) {
	done := 0
	for n <= 0 || done < n {
		p, ok := d.NextPkt()
		if !ok {
			if _, err := d.Poll(ctx, -1, In); err != nil {
				return done, err
			}
			continue
		}
		done++
		if err := f(p); err != nil {
			d.pass()
			return done, err
		}
	}
	d.pass()
	return done, nil
}

// Events that [Desc.Poll] waits for.
type Events uint8

const (
	In  Events = 1 << iota // a receive ring has slots not looked at
	Out                    // a transmit ring has free slots
)

// Poll syncs the rings and waits until one of them is ready (Cur != Tail) for
// one of the events, at most for timeout (0 not at all, negative for ever). It
// returns those that are. Filled transmit slots are handed over in any case.
// Traffic that flowed before is never missed: readiness is a state, not an
// edge. Ask for Out only with something to send, else it does not wait at all.
//
// It fails when ctx ends, and with the errors of the rings, ring.ErrGone and
// ring.ErrClosed among them.
func (d *Desc) Poll(ctx context.Context, timeout time.Duration, want Events) (Events, error) {
	d.polling.Lock()
	defer d.polling.Unlock()
	if d.closed {
		return 0, fmt.Errorf("poll %s: %w", d.spec.Name, ring.ErrClosed)
	}
	d.pass()
	if d.waiter == nil {
		w, err := poll.NewWaiter()
		if err != nil {
			return 0, err
		}
		d.waiter = w
	}
	d.both = d.both[:0]
	if want&In != 0 {
		d.both = append(d.both, d.rx...)
	}
	if want&Out != 0 {
		d.both = append(d.both, d.tx...)
	} else if err := d.push(); err != nil {
		return 0, d.explain(err)
	}
	if len(d.both) == 0 {
		return 0, errors.New("poll: the port has no ring for what is waited for")
	}
	if _, err := d.waiter.Wait(ctx, timeout, d.both...); err != nil {
		return 0, d.explain(err)
	}
	var got Events
	for _, r := range d.both {
		switch {
		case !r.Ready():
		case r.Dir() == ring.RX:
			got |= In
		default:
			got |= Out
		}
	}
	return got, nil
}

// push syncs the transmit rings that have filled slots.
func (d *Desc) push() error {
	var errs []error
	for _, r := range d.tx {
		if r.Head != r.Accepted() {
			errs = append(errs, r.Sync())
		}
	}
	return errors.Join(errs...)
}

// Flush returns when everything that was injected has been sent, or with an
// error, also when ctx ends.
func (d *Desc) Flush(ctx context.Context) error {
	for {
		if err := d.SyncTx(); err != nil {
			return err
		}
		left := 0
		for _, r := range d.tx {
			left += r.Pending()
		}
		if left == 0 {
			return nil
		}
		// A transmit ring with free slots is ready at once, so there is
		// nothing to sleep on; what is in flight takes microseconds.
		select {
		case <-ctx.Done():
			return fmt.Errorf("flush: %d frames not sent: %w", left, ctx.Err())
		case <-time.After(50 * time.Microsecond):
		}
	}
}

// Close closes the port. Any goroutine may call it; a second call returns what
// the first one did. One that is in Poll or Sync gets ring.ErrClosed.
func (d *Desc) Close() error {
	d.once.Do(func() {
		var errs []error
		for i := len(d.undo) - 1; i >= 0; i-- {
			errs = append(errs, d.undo[i]())
		}
		// The port is closed: a Poll that was waiting is on its way out.
		d.polling.Lock()
		defer d.polling.Unlock()
		d.closed = true
		if d.waiter != nil {
			errs = append(errs, d.waiter.Close())
		}
		d.closeErr = errors.Join(errs...)
	})
	return d.closeErr
}
