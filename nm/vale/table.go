package vale

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// PortID names a port of a switch. Ids are small and are used again after a
// port is removed.
type PortID uint16

// MaxPorts bounds the ports of a switch.
const MaxPorts = 0xff00

// Defaults of [TableOptions]. The ageing time is what IEEE 802.1D recommends.
const (
	DefaultAddresses = 8192
	DefaultAgeing    = 300 * time.Second
	NoAgeing         = time.Duration(-1)
)

// Bounds of [TableOptions].
const (
	maxAddresses = 1 << 24
	maxAgeing    = 365 * 24 * time.Hour
)

// tick is the resolution of the table's clock.
const tick = 100 * time.Millisecond

// TableOptions of a [Table]. The zero value is valid.
type TableOptions struct {
	// Addresses is how many addresses the table holds at most; 0 for
	// [DefaultAddresses].
	Addresses int
	// Ageing is how long a learned address is kept after it was last seen; 0
	// for [DefaultAgeing], [NoAgeing] for as long as there is the table.
	Ageing time.Duration
}

// Validate reports the first value that is out of range.
func (o TableOptions) Validate() error {
	switch {
	case o.Addresses < 0 || o.Addresses > maxAddresses:
		return fmt.Errorf("table of %d addresses: must be between 1 and %d", o.Addresses, maxAddresses)
	case o.Ageing != 0 && o.Ageing != NoAgeing && (o.Ageing < tick || o.Ageing > maxAgeing):
		return fmt.Errorf("ageing time %v: must be between %v and %v", o.Ageing, tick, maxAgeing)
	}
	return nil
}

// Table knows behind which port an address is. Any number of goroutines may
// use it at once. Looking up takes no lock and writes nothing; learning takes
// one only for what is new: an address, or its port.
//
// An address lies in one of two buckets, which its hash names; a bucket is one
// cache line. The hash is seeded, so that nobody can choose addresses that
// collide. If both are full the address is refused, as it is when the table
// has as many as it may have: frames to it are flooded.
type Table struct {
	buckets []bucket
	mask    uint64
	seed    uint64
	limit   int64
	age     int32 // in ticks

	// version is the time in ticks, in the lower half, and in the upper a
	// count of all changes that make an address unknown or known elsewhere.
	// Whoever remembers what was learned does so for one version.
	version atomic.Uint64
	count   atomic.Int64 // addresses that are there, some of them aged

	mu      sync.Mutex // held by whoever adds, moves or takes away
	started bool
	base    time.Duration // when tick 0 was
	hand    int           // the next bucket to look for aged addresses

	learned, moved, aged, refused atomic.Uint64
}

// ways are the addresses of a bucket.
const ways = 5

// bucket is one cache line. A word is mac<<16 | port, so both change at once;
// it is 0 where there is none, as no address is zero.
type bucket struct {
	words [ways]atomic.Uint64
	seen  [ways]atomic.Uint32 // time in ticks
	fixed atomic.Uint32       // a bit for each static address
}

// TableStats are the table's counters since it was made.
type TableStats struct {
	Addresses                     int // that are there now, some of them aged
	Learned, Moved, Aged, Refused uint64
}

// Entry is one address of a table.
type Entry struct {
	MAC    MAC
	Port   PortID
	Static bool
	Age    time.Duration // since it was last seen, in tenths of a second; 0 if static
}

// NewTable makes an empty table.
func NewTable(o TableOptions) (*Table, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Addresses == 0 {
		o.Addresses = DefaultAddresses
	}
	if o.Ageing == 0 {
		o.Ageing = DefaultAgeing
	}
	// Half full at most, so that both buckets of an address are practically
	// never full before the table is.
	n := 1 << bits.Len(uint(o.Addresses)*2/ways)
	t := &Table{buckets: make([]bucket, n), mask: uint64(n - 1), seed: rand.Uint64(), limit: int64(o.Addresses), age: math.MaxInt32}
	t.version.Store(1 << 32) // so that it is not what nobody has remembered yet
	if o.Ageing != NoAgeing {
		t.age = int32(o.Ageing / tick)
	}
	return t, nil
}

// Tick tells the table the time, since any moment but always the same. Call it
// a few times a second: it decides which addresses are too old, and takes a
// part of those away. Time that goes back is ignored.
func (t *Table) Tick(now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.started {
		t.started, t.base = true, now
	}
	v := t.version.Load()
	before, after := uint32(v), uint32((now-t.base)/tick)
	if int32(after-before) <= 0 {
		return
	}
	t.version.Store(v&^math.MaxUint32 | uint64(after))
	// All of the table in 16 ticks.
	steps := (int(min(after-before, 16))*len(t.buckets) + 15) / 16
	for range steps {
		t.sweep(&t.buckets[t.hand], after)
		t.hand = (t.hand + 1) & int(t.mask)
	}
}

func (t *Table) now() uint32 { return uint32(t.version.Load()) }

// changed makes everybody forget what they remember. The lock is held.
func (t *Table) changed() { t.version.Add(1 << 32) }

// pair returns the buckets that m may be in.
func (t *Table) pair(m MAC) (a, b *bucket) {
	hi, lo := bits.Mul64(uint64(m)^t.seed, 0x9e3779b97f4a7c15)
	h := hi ^ lo
	return &t.buckets[h&t.mask], &t.buckets[h>>32&t.mask]
}

// find returns m's bucket, place in it and word; nil and word 0 if it is not
// there. Zero, which is no address, may find a free place.
func (t *Table) find(m MAC) (b *bucket, i int, w uint64) {
	first, second := t.pair(m)
	for i := range first.words {
		if w := first.words[i].Load(); w>>16 == uint64(m) {
			return first, i, w
		}
	}
	for i := range second.words {
		if w := second.words[i].Load(); w>>16 == uint64(m) {
			return second, i, w
		}
	}
	return nil, 0, 0
}

// old reports whether the address in place i, which is not static, is too old.
func (t *Table) old(b *bucket, i int, now uint32) bool {
	return int32(now-b.seen[i].Load()) > t.age && b.fixed.Load()>>i&1 == 0
}

// Lookup returns the port that m is behind.
func (t *Table) Lookup(m MAC) (PortID, bool) { return t.lookup(m, t.now()) }

func (t *Table) lookup(m MAC, now uint32) (PortID, bool) {
	b, i, w := t.find(m)
	// The word is read again, as the place may have gone to another address
	// before its age was looked at.
	if w == 0 || t.old(b, i, now) || b.words[i].Load()>>16 != uint64(m) {
		return 0, false
	}
	return PortID(w), true
}

// Learn notes that a frame from m came in by port p. It reports false if the
// table does not take that: m is a group address, zero, static elsewhere, or
// there is no room.
func (t *Table) Learn(m MAC, p PortID) bool {
	return m != 0 && m <= macMask && !m.Group() && t.learn(m, p, t.now())
}

// learn is Learn of an address that can be a station's.
func (t *Table) learn(m MAC, p PortID, now uint32) bool {
	b, i, w := t.find(m)
	if b != nil && PortID(w) == p {
		if b.seen[i].Load() != now {
			b.seen[i].Store(now)
		}
		return true
	}
	switch {
	case b != nil && b.fixed.Load()>>i&1 != 0:
		return false
	case b == nil && t.count.Load() >= t.limit:
		t.refused.Add(1)
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.add(m, p, now)
}

// add is learn with the lock held.
func (t *Table) add(m MAC, p PortID, now uint32) bool {
	b, i, w := t.find(m)
	switch {
	case b == nil:
		if b, i = t.room(m, now); b == nil || t.count.Load() >= t.limit {
			t.refused.Add(1)
			return false
		}
		t.count.Add(1)
		t.learned.Add(1)
	case PortID(w) == p:
		b.seen[i].Store(now)
		return true
	case b.fixed.Load()>>i&1 != 0:
		return false
	case t.old(b, i, now):
		t.aged.Add(1)
		t.learned.Add(1)
	default:
		t.moved.Add(1)
	}
	b.seen[i].Store(now)
	b.words[i].Store(uint64(m)<<16 | uint64(p))
	t.changed()
	return true
}

// room returns a free place for m in the emptier of its buckets, nil if there
// is none.
func (t *Table) room(m MAC, now uint32) (*bucket, int) {
	var to *bucket
	place, most := 0, 0
	first, second := t.pair(m)
	for _, b := range [2]*bucket{first, second} {
		t.sweep(b, now)
		free, at := 0, 0
		for i := range b.words {
			if b.words[i].Load() == 0 {
				free, at = free+1, i
			}
		}
		if free > most {
			to, place, most = b, at, free
		}
	}
	return to, place
}

// sweep takes aged addresses out of b. The lock is held.
func (t *Table) sweep(b *bucket, now uint32) {
	for i := range b.words {
		if b.words[i].Load() != 0 && t.old(b, i, now) {
			t.take(b, i)
			t.aged.Add(1)
		}
	}
}

// take removes the address in place i. The lock is held.
func (t *Table) take(b *bucket, i int) {
	b.words[i].Store(0)
	b.fixed.And(^(uint32(1) << i))
	t.count.Add(-1)
	t.changed()
}

// ErrNoRoom: the table is full.
var ErrNoRoom = errors.New("no room in the address table")

// SetStatic puts m behind port p for good: it neither ages nor moves until
// [Table.Delete] or [Table.Forget] takes it away.
func (t *Table) SetStatic(m MAC, p PortID) error {
	if m == 0 || m.Group() || m > macMask {
		return fmt.Errorf("set static address %v: must be the address of one station", m)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	b, i, _ := t.find(m)
	if b == nil {
		if b, i = t.room(m, now); b == nil || t.count.Load() >= t.limit {
			return fmt.Errorf("set static address %v: %w of %d", m, ErrNoRoom, t.limit)
		}
		t.count.Add(1)
	}
	b.seen[i].Store(now)
	b.fixed.Or(1 << i)
	b.words[i].Store(uint64(m)<<16 | uint64(p))
	t.changed()
	return nil
}

// Delete takes an address away and reports whether it was there.
func (t *Table) Delete(m MAC) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, i, _ := t.find(m)
	if b == nil || m == 0 {
		return false
	}
	alive := !t.old(b, i, t.now())
	t.take(b, i)
	return alive
}

// Forget takes away all addresses behind port p, static ones too, as when the
// port is gone or its link is down, and returns how many there were.
func (t *Table) Forget(p PortID) int {
	return t.drop(func(b *bucket, i int) bool { return PortID(b.words[i].Load()) == p })
}

// Flush takes away all addresses that are not static and returns how many
// there were.
func (t *Table) Flush() int {
	return t.drop(func(b *bucket, i int) bool { return b.fixed.Load()>>i&1 == 0 })
}

func (t *Table) drop(which func(b *bucket, i int) bool) (n int) {
	t.each(func(b *bucket, i int, _ uint32) {
		if which(b, i) {
			t.take(b, i)
			n++
		}
	})
	return n
}

// each calls f for every place that is taken, with the lock held, which it
// gives up now and then so that learning need not wait for the whole table.
func (t *Table) each(f func(b *bucket, i int, now uint32)) {
	for part := range slices.Chunk(t.buckets, 1024) {
		t.mu.Lock()
		now := t.now()
		for k := range part {
			b := &part[k]
			for i := range b.words {
				if b.words[i].Load() != 0 {
					f(b, i, now)
				}
			}
		}
		t.mu.Unlock()
	}
}

// Entries returns all addresses that are not too old, in their order.
func (t *Table) Entries() []Entry {
	list := make([]Entry, 0, t.count.Load())
	t.each(func(b *bucket, i int, now uint32) {
		if t.old(b, i, now) {
			return
		}
		w := b.words[i].Load()
		e := Entry{MAC: MAC(w >> 16), Port: PortID(w), Static: b.fixed.Load()>>i&1 != 0}
		if !e.Static {
			e.Age = time.Duration(max(int32(now-b.seen[i].Load()), 0)) * tick
		}
		list = append(list, e)
	})
	slices.SortFunc(list, func(a, b Entry) int { return cmp.Compare(a.MAC, b.MAC) })
	return list
}

// Stats returns the counters.
func (t *Table) Stats() TableStats {
	return TableStats{
		Addresses: int(t.count.Load()), Learned: t.learned.Load(), Moved: t.moved.Load(),
		Aged: t.aged.Load(), Refused: t.refused.Load(),
	}
}
