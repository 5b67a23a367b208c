package lagg

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Group is a set of links that act as one. SetLink and Tick are called by
// whoever watches the links; workers read an immutable snapshot.
type Group struct {
	opt   Options
	names []string
	hash  Hasher
	all   pool
	snap  atomic.Pointer[snapshot]

	_   [64]byte // the sequence is written by all workers, the above is read by them
	seq Sequence
	_   [60]byte

	mu       sync.Mutex // guards the rest
	links    []link
	egresses []*Egress
}

// pool is members to choose among, in order.
type pool struct {
	members []int
	shares  [MaxMembers]uint32 // weights, of these and others
	total   uint64             // sum of those of members
}

func (p *pool) add(m int) {
	p.members = append(p.members, m)
	p.total += uint64(p.shares[m])
}

// snapshot is the group as workers see it. It is never changed.
type snapshot struct {
	live   []int            // members in use, in order
	active [MaxMembers]bool // the same by member
	pool   pool             // the same to choose among
	all    *pool            // all members
	sender int              // of failover: who sends, -1 if nobody can
	accept [MaxMembers]bool // who may deliver
}

// New makes a group of the named members, in this order; all links are down
// until SetLink says otherwise.
func New(names []string, o Options) (*Group, error) {
	if err := o.Validate(len(names)); err != nil {
		return nil, fmt.Errorf("lagg: %w", err)
	}
	for i, n := range names {
		if slices.Contains(names[:i], n) {
			return nil, fmt.Errorf("lagg: member %s twice: name each interface once", n)
		}
	}
	if err := o.defaults(); err != nil {
		return nil, fmt.Errorf("lagg: %w", err)
	}
	g := &Group{opt: o, names: slices.Clone(names), links: make([]link, len(names)),
		hash: Hasher{Fields: o.Hash, Seed: o.Seed, Symmetric: o.Symmetric, Inner: o.Inner}}
	for i := range names {
		g.all.shares[i] = 1
		if o.Weights != nil {
			g.all.shares[i] = o.Weights[i]
		}
		g.all.add(i)
	}
	g.publish(0)
	return g, nil
}

func (o *Options) defaults() error {
	if o.Hash == 0 {
		o.Hash = L2 | L3 | L4
	}
	if o.Stride == 0 {
		o.Stride = 1
	}
	if o.HoldDown == 0 {
		o.HoldDown = DefaultHoldDown
	}
	if o.HoldDownMax == 0 {
		o.HoldDownMax = max(DefaultHoldDownMax, o.HoldDown)
	}
	for o.Seed == 0 {
		var b [8]byte
		if _, err := rand.Read(b[:]); err != nil {
			return fmt.Errorf("random seed: %w", err)
		}
		o.Seed = binary.LittleEndian.Uint64(b[:])
	}
	return nil
}

// Members returns the names in order.
func (g *Group) Members() []string { return slices.Clone(g.names) }

// Options returns what the group works with, defaults filled in.
func (g *Group) Options() Options { return g.opt }

// SetLink notes that member i's link is up or down, at now on any monotonic
// clock. A worker acts on it from its next batch on: on down at once, on up
// after the hold-down. It returns when Tick must be called next for that, 0 if
// not at all. An index that no member has is ignored.
func (g *Group) SetLink(i int, up bool, now time.Duration) (next time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i >= 0 && i < len(g.links) {
		g.links[i].set(up, now, g.opt.HoldDown, g.opt.HoldDownMax)
	}
	return g.tick(now)
}

// Tick lets members whose hold-down is over join in again and returns when it
// must be called next, 0 if not before the next SetLink. More often does no
// harm.
func (g *Group) Tick(now time.Duration) (next time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tick(now)
}

func (g *Group) tick(now time.Duration) (next time.Duration) {
	for i := range g.links {
		if l := &g.links[i]; l.held(now) && (next == 0 || l.holdEnd < next) {
			next = l.holdEnd
		}
	}
	g.publish(now)
	return next
}

// publish makes the snapshot of now, if it is not as it was. With mu held, or
// before anybody else has the group.
func (g *Group) publish(now time.Duration) {
	s := &snapshot{all: &g.all, pool: pool{shares: g.all.shares}}
	for _, held := range []bool{false, true} {
		// A member that is held is better than none.
		for i := range g.links {
			if l := &g.links[i]; l.up && (held || !l.held(now)) {
				s.active[i] = true
				s.pool.add(i)
			}
		}
		if len(s.pool.members) != 0 {
			break
		}
	}
	s.live = s.pool.members
	if old := g.snap.Load(); old != nil && old.active == s.active {
		return
	}
	n := len(g.links)
	s.sender = LinkActive(s.active[:n], g.opt.Primary)
	for i := range n {
		s.accept[i] = g.accepts(s, i)
	}
	g.snap.Store(s)
}

// accepts is lagg(4)'s rule of who may deliver: in failover the primary, and
// who stands in for it; else everybody.
func (g *Group) accepts(s *snapshot, i int) bool {
	if g.opt.Proto != Failover || g.opt.RxAll || i == g.opt.Primary {
		return true
	}
	return !s.active[g.opt.Primary] && (s.sender == i || s.sender < 0)
}

// Accepts reports whether frames that arrive on member i are taken; ask once
// per batch. What is not taken is dropped as ring.DropFilter. Any goroutine.
func (g *Group) Accepts(i int) bool { return g.snap.Load().accept[i] }

// Live returns the members in use, by index. Any goroutine.
func (g *Group) Live() []int { return slices.Clone(g.snap.Load().live) }

// Up reports whether any member can send. Any goroutine.
func (g *Group) Up() bool { return len(g.snap.Load().live) != 0 }
