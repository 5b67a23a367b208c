package vale

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/netring/netring/ring"
)

// worker is the state of one goroutine that forwards.
type worker struct {
	s     *Switch
	id    int
	turns atomic.Uint64 // odd while inside of the switch

	batch Batch
	slots [maxBatch]uint32
	dst   [maxBatch]PortID

	sent  []uint32 // frames given to each port in this batch, by id
	known []PortID // the ports that have some
	_     [64]byte
}

// leave returns once the worker has left the switch since the call, or was not
// inside.
func (w *worker) leave() {
	turn := w.turns.Load()
	if turn&1 == 0 {
		return
	}
	for wait := time.Microsecond; w.turns.Load() == turn; wait = min(2*wait, time.Millisecond) {
		time.Sleep(wait)
	}
}

// Forward passes up to n whole frames from the head of src, a receive ring of
// port in, to where they belong, and returns how many it took: passed on, or
// dropped and counted. If that is fewer than n and src has more, an egress had
// no room: see the package comment. Nothing is synced or flushed.
//
// The worker, from 0 on, owns src; its goroutine alone calls Forward and Flush
// with this number.
func (s *Switch) Forward(worker int, in PortID, src *ring.Ring, n int) (taken int) {
	w := &s.workers[worker]
	w.turns.Add(1)
	v := s.view.Load()
	p := v.get(in)
	switch {
	case p == nil:
		taken = ring.Skip(src, n)
		s.orphans.Add(uint64(taken))
	case len(v.all) == 2 && s.lookup == nil:
		taken = w.wire(v, p, src, n)
	default:
		for more := true; more && taken < n; {
			want := min(n-taken, maxBatch)
			k := w.pass(v, p, src, want)
			taken += k
			more = k == want
		}
	}
	w.turns.Add(1)
	return taken
}

// Flush flushes the worker's egress of every port, for programs that have no
// other turn to do that in.
func (s *Switch) Flush(worker int) error {
	w := &s.workers[worker]
	w.turns.Add(1)
	defer w.turns.Add(1)
	var errs []error // stays nil as long as there is no error
	for _, p := range s.view.Load().all {
		if err := p.egress[worker].Flush(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// wire passes everything to the only other port.
func (w *worker) wire(v *view, p *port, src *ring.Ring, n int) int {
	other := v.all[0]
	if other == p {
		other = v.all[1]
	}
	l := &p.lane[w.id]
	w.learnAll(p, l, src, n)
	taken := other.egress[w.id].Move(src, n)
	if taken != 0 {
		l.rx.Add(uint64(taken))
		other.lane[w.id].tx.Add(uint64(taken))
	}
	return taken
}

// learnAll learns the sources of up to n slots at the head of src.
func (w *worker) learnAll(p *port, l *lane, src *ring.Ring, n int) {
	t := w.s.table
	now := l.refresh(t)
	more := false // the slot goes on with the frame of the one before
	for k, end := src.Head, src.Head+uint32(max(min(n, src.Space()), 0)); k != end; k++ {
		first := !more
		more = src.Slot(k).Flags&ring.SlotMoreFrag != 0
		f := src.Frame(k)
		if !first || len(f) < headerLen {
			continue
		}
		if _, from := addresses(f); from != l.last && from != 0 && !from.Group() {
			t.learn(from, p.id, now)
			l.last = from
		}
	}
}

// noMAC is an address that no frame has.
const noMAC = ^MAC(0)

// refresh returns the table's time and drops what the lane remembers of an
// older version.
func (l *lane) refresh(t *Table) (now uint32) {
	v := t.version.Load()
	if v != l.lastVersion {
		l.last, l.lastVersion = noMAC, v
	}
	return uint32(v)
}

// pass decides about up to n frames, n being at most maxBatch, and passes them
// on.
func (w *worker) pass(v *view, p *port, src *ring.Ring, n int) int {
	b := &w.batch
	*b = Batch{Worker: w.id, In: p.id, Src: src, port: p, table: w.s.table}
	m := 0
	for k, start := src.Head, src.Head; m < n && k != src.Tail(); k++ {
		if src.Slot(k).Flags&ring.SlotMoreFrag == 0 {
			w.slots[m], w.dst[m] = start, Flood
			m, start = m+1, k+1
		}
	}
	b.Slots, b.Dst = w.slots[:m], w.dst[:m]
	if w.s.lookup == nil {
		b.Learning()
	} else {
		w.s.lookup(b)
	}
	return w.deliver(v, p, src, m)
}

// Learning is the lookup of a learning switch, by the rules of the package
// comment. A lookup of the program's own may call it first and change what it
// says.
func (b *Batch) Learning() {
	if b.port == nil {
		return // not a batch of a switch
	}
	t, l := b.table, &b.port.lane[b.Worker]
	now := l.refresh(t)
	to, out := noMAC, Flood // the destination before and its verdict
	dst := b.Dst[:len(b.Slots)]
	for i, k := range b.Slots {
		f := b.Src.Frame(k)
		if len(f) < headerLen {
			dst[i] = Runt.Verdict()
			continue
		}
		d, from := addresses(f)
		if from != l.last {
			if from == 0 || from.Group() {
				dst[i] = BadSource.Verdict()
				continue
			}
			t.learn(from, b.In, now)
			l.last = from
		}
		if d != to {
			to, out = d, t.destination(d, now)
		}
		dst[i] = out
	}
}

// destination is where frames to d go.
func (t *Table) destination(d MAC, now uint32) PortID {
	if d.Group() {
		if d&^0xf == reserved {
			return Reserved.Verdict()
		}
		return Flood
	}
	if p, ok := t.lookup(d, now); ok {
		return p
	}
	return Flood
}

// deliver hands the m frames of the batch out and returns how many it took.
func (w *worker) deliver(v *view, p *port, src *ring.Ring, m int) int {
	if len(w.sent) < len(v.byID) {
		// All of the old one was counted at the end of the last batch.
		w.sent, w.known = make([]uint32, len(v.byID)), make([]PortID, 0, len(v.byID))
	}
	var drops [NumCauses]uint32
	taken, flooded := 0, 0
	for dst := w.dst[:m]; taken < m; {
		run := 1
		for d := dst[taken]; taken+run < m && dst[taken+run] == d; run++ {
		}
		out, cause := w.way(v, p, dst[taken])
		done := run
		switch {
		case out != nil:
			done = out.egress[w.id].Move(src, run)
			w.count(out.id, done)
		case cause < NumCauses:
			done = ring.Skip(src, run)
			drops[cause] += uint32(done)
		default:
			w.flood(v, p, src, w.slots[taken:taken+run])
			done = ring.Skip(src, run)
			flooded += done
		}
		taken += done
		if done < run {
			break
		}
	}
	w.publish(v, p, taken, flooded, &drops)
	return taken
}

// way is the port that a frame from p goes to; without one the cause of the
// drop, or NumCauses for all other ports.
func (w *worker) way(v *view, p *port, dst PortID) (*port, Cause) {
	switch {
	case dst == Flood && len(v.all) > 1:
		return nil, NumCauses
	case dst == Flood:
		return nil, NoPort
	case dst == p.id:
		return nil, SamePort
	case dst < MaxPorts:
		if out := v.get(dst); out != nil {
			return out, 0
		}
		return nil, NoPort
	case dst < MaxPorts+PortID(NumCauses):
		return nil, Cause(dst - MaxPorts)
	}
	return nil, Filtered
}

// flood copies the frames in those slots to all ports but p.
func (w *worker) flood(v *view, p *port, src *ring.Ring, slots []uint32) {
	for _, out := range v.all {
		if out == p {
			continue
		}
		e := out.egress[w.id]
		for _, k := range slots {
			e.Copy(src, k)
		}
		w.count(out.id, len(slots))
	}
}

// count notes that n frames were given to a port.
func (w *worker) count(id PortID, n int) {
	if n == 0 {
		return
	}
	if w.sent[id] == 0 {
		w.known = append(w.known, id)
	}
	w.sent[id] += uint32(n)
}

// publish adds a batch to the counters.
func (w *worker) publish(v *view, p *port, taken, flooded int, drops *[NumCauses]uint32) {
	if taken == 0 {
		return
	}
	l := &p.lane[w.id]
	l.rx.Add(uint64(taken))
	if flooded != 0 {
		l.flooded.Add(uint64(flooded))
	}
	for c, n := range drops {
		if n != 0 {
			l.drops[c].Add(uint64(n))
		}
	}
	for _, id := range w.known {
		v.byID[id].lane[w.id].tx.Add(uint64(w.sent[id]))
		w.sent[id] = 0
	}
	w.known = w.known[:0]
}
