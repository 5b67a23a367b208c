package vale

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netring/netring/ring"
)

// maxBatch bounds the frames that are decided about at once.
const maxBatch = 256

// maxWorkers bounds the workers of a switch.
const maxWorkers = 1024

// Options of a [Switch]. The zero value is valid.
type Options struct {
	// Workers is how many goroutines forward; 0 for 1.
	Workers int
	// Table is the address table's.
	Table TableOptions
	// Lookup decides where frames go; nil for [Batch.Learning].
	Lookup Lookup
}

// Validate reports the first value that is out of range.
func (o Options) Validate() error {
	if o.Workers < 0 || o.Workers > maxWorkers {
		return fmt.Errorf("switch with %d workers: must be between 1 and %d", o.Workers, maxWorkers)
	}
	return o.Table.Validate()
}

// Lookup decides about a batch: it fills b.Dst. It is called by several workers
// at once, must not block, and must not add or remove ports.
type Lookup func(b *Batch)

// Batch is some whole frames at the head of a receive ring. It is valid until
// the lookup returns.
type Batch struct {
	Worker int
	In     PortID // the port that they came from
	Src    *ring.Ring
	Slots  []uint32 // the first slot of each frame
	// Dst is where each frame goes: to one port, [Flood], or nowhere, as
	// [Cause.Verdict] says. All are Flood at first.
	Dst []PortID

	port  *port
	table *Table
}

// Flood as a destination: all ports but the one that the frame came from.
const Flood PortID = 0xffff

// Cause says why the switch dropped a frame.
type Cause uint8

// The causes of drops.
const (
	Runt      Cause = iota // shorter than an Ethernet header
	BadSource              // from a group address, or from zero
	Reserved               // to 01-80-C2-00-00-0x, which no bridge passes on
	SamePort               // for the port that it came from
	NoPort                 // for, or from, a port that the switch does not have
	Filtered               // by the program's own lookup
	NumCauses
)

var causeNames = [NumCauses]string{"runt", "bad source", "reserved", "same port", "no port", "filtered"}

func (c Cause) String() string {
	if c < NumCauses {
		return causeNames[c]
	}
	return "unknown"
}

// Ring is the cause of a ring's counters that c falls under.
func (c Cause) Ring() ring.Cause {
	if c == Runt {
		return ring.DropMalformed
	}
	return ring.DropFilter
}

// Verdict is the destination of a frame that is dropped for this cause.
func (c Cause) Verdict() PortID { return MaxPorts + PortID(c) }

// Switch forwards frames between ports.
type Switch struct {
	table   *Table
	lookup  Lookup // nil: Learning, and a wire of two ports
	workers []worker
	view    atomic.Pointer[view]
	orphans atomic.Uint64 // frames from ports that are gone

	mu sync.Mutex // held while ports are added and removed
}

// view is the ports of a switch. It does not change.
type view struct {
	byID []*port // nil where there is none
	all  []*port
}

// get returns the port of that id, nil if there is none.
func (v *view) get(id PortID) *port {
	if int(id) < len(v.byID) {
		return v.byID[id]
	}
	return nil
}

// port of a switch; everything in it is per worker.
type port struct {
	id     PortID
	name   string
	egress []ring.Egress
	lane   []lane
}

// lane is what one worker keeps of one port. It fills cache lines of its own.
type lane struct {
	last        MAC    // the source that was learned last,
	lastVersion uint64 // as of this version of the table

	rx, tx, flooded atomic.Uint64
	drops           [NumCauses]atomic.Uint64
	_               [128 - 11*8]byte
}

// PortStats are the counters of one port.
type PortStats struct {
	ID   PortID
	Name string
	// Rx counts frames that were taken from the port's receive rings, which
	// were flooded (Flooded), dropped (Drops) or given to one other port.
	Rx, Flooded uint64
	// Tx counts frames that were given to the port's egresses, copies among
	// them. What these drop they count themselves.
	Tx    uint64
	Drops [NumCauses]uint64
}

// New makes a switch without ports.
func New(o Options) (*Switch, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	t, err := NewTable(o.Table)
	if err != nil {
		return nil, err
	}
	s := &Switch{table: t, lookup: o.Lookup, workers: make([]worker, max(o.Workers, 1))}
	for i := range s.workers {
		s.workers[i].s = s
		s.workers[i].id = i
	}
	s.view.Store(&view{})
	return s, nil
}

// Table is the switch's address table.
func (s *Switch) Table() *Table { return s.table }

// Tick tells the switch the time; see [Table.Tick].
func (s *Switch) Tick(now time.Duration) { s.table.Tick(now) }

// Add adds a port with an egress for each worker and returns its id: the
// smallest that is free. Names need only be different. Any goroutine.
func (s *Switch) Add(name string, egress []ring.Egress) (PortID, error) {
	if len(egress) != len(s.workers) {
		return 0, fmt.Errorf("add port %s with %d egresses: must have one for each of %d workers", name, len(egress), len(s.workers))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.view.Load()
	for _, p := range old.all {
		if p.name == name {
			return 0, fmt.Errorf("add port %s: the switch has a port of that name", name)
		}
	}
	id := slices.Index(old.byID, nil)
	if id < 0 {
		id = len(old.byID)
	}
	if id >= MaxPorts {
		return 0, fmt.Errorf("add port %s: a switch has at most %d ports", name, MaxPorts)
	}
	p := &port{id: PortID(id), name: name, egress: slices.Clone(egress), lane: make([]lane, len(s.workers))}
	v := &view{byID: slices.Clone(old.byID), all: append(slices.Clone(old.all), p)}
	if id == len(v.byID) {
		v.byID = append(v.byID, nil)
	}
	v.byID[id] = p
	s.view.Store(v)
	return p.id, nil
}

// Remove removes a port and the addresses behind it, and returns its last
// counters. When it returns no worker uses the port's egresses any more. Any
// goroutine, but not from within a lookup or an egress.
func (s *Switch) Remove(id PortID) (PortStats, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.view.Load()
	p := old.get(id)
	if p == nil {
		return PortStats{}, fmt.Errorf("remove port %d: the switch has no such port", id)
	}
	v := &view{byID: slices.Clone(old.byID), all: slices.DeleteFunc(slices.Clone(old.all), func(q *port) bool { return q == p })}
	v.byID[id] = nil
	s.view.Store(v)
	for i := range s.workers {
		s.workers[i].leave()
	}
	// Nobody learns for the port any more.
	s.table.Forget(id)
	return p.stats(), nil
}

// Ports returns the counters of all ports, in the order that they were added.
// Any goroutine, at any time.
func (s *Switch) Ports() []PortStats {
	v := s.view.Load()
	list := make([]PortStats, len(v.all))
	for i, p := range v.all {
		list[i] = p.stats()
	}
	return list
}

// Orphans is the number of frames that were dropped as the port that they came
// from had been removed.
func (s *Switch) Orphans() uint64 { return s.orphans.Load() }

func (p *port) stats() PortStats {
	st := PortStats{ID: p.id, Name: p.name}
	for i := range p.lane {
		l := &p.lane[i]
		st.Rx += l.rx.Load()
		st.Tx += l.tx.Load()
		st.Flooded += l.flooded.Load()
		for c := range l.drops {
			st.Drops[c] += l.drops[c].Load()
		}
	}
	return st
}
