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
// whoever watches the links; everything else reads an immutable snapshot.
type Group struct {
	opt   Options
	names []string
	hash  Hasher
	seq   Sequence
	snap  atomic.Pointer[snapshot]

	mu      sync.Mutex // guards members
	members []member
}

// member is one link's history.
type member struct {
	up      bool
	flaps   uint
	changed time.Duration // when it last went up or down
	holdEnd time.Duration // not used before
}

// snapshot is the group as workers see it. It is never changed.
type snapshot struct {
	live   []int              // usable members in order
	active [MaxMembers]bool   // the same by member
	sender int                // of failover: who sends, -1 if nobody can
	accept [MaxMembers]bool   // who may deliver
	shares [MaxMembers]uint64 // weight of each live member, 0 of others
	total  uint64             // sum of shares
}

// New makes a group of the named members, in this order; all links are down
// until SetLink says otherwise.
func New(names []string, o Options) (*Group, error) {
	if err := o.Validate(len(names)); err != nil {
		return nil, fmt.Errorf("lagg: %w", err)
	}
	for i, n := range names {
		if slices.Contains(names[:i], n) {
			return nil, fmt.Errorf("lagg: member %s twice", n)
		}
	}
	if o.Hash == 0 {
		o.Hash = L2 | L3 | L4
	}
	if o.Stride == 0 {
		o.Stride = DefaultStride
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
			return nil, fmt.Errorf("lagg: random seed: %w", err)
		}
		o.Seed = binary.LittleEndian.Uint64(b[:])
	}
	g := &Group{opt: o, names: slices.Clone(names), members: make([]member, len(names)),
		hash: Hasher{Fields: o.Hash, Seed: o.Seed, Symmetric: o.Symmetric, Inner: o.Inner}}
	g.publish(0)
	return g, nil
}

// Members returns the names in order.
func (g *Group) Members() []string { return slices.Clone(g.names) }

// Options returns what the group works with, defaults filled in.
func (g *Group) Options() Options { return g.opt }

// SetLink notes that member i's link is up or down, at now on any monotonic
// clock. Down takes effect at once; up after the hold-down. It returns when
// Tick must be called next for that, 0 if not at all.
func (g *Group) SetLink(i int, up bool, now time.Duration) time.Duration {
	g.mu.Lock()
	m := &g.members[i]
	first := m.changed == 0 && !m.up
	if m.up != up {
		if calm := now - m.changed; calm > 2*g.opt.HoldDownMax && !first {
			m.flaps = 0
		}
		m.up = up
		switch {
		case !up:
			m.flaps++
		case !first && m.flaps != 0 && g.opt.HoldDown > 0:
			m.holdEnd = now + min(g.opt.HoldDown<<min(m.flaps-1, 20), g.opt.HoldDownMax)
		}
		m.changed = max(now, 1)
	}
	g.mu.Unlock()
	return g.Tick(now)
}

// Tick lets members whose hold-down is over join in again and returns when it
// must be called next, 0 if not before the next SetLink.
func (g *Group) Tick(now time.Duration) (next time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.members {
		if m := &g.members[i]; m.up && m.holdEnd > now && (next == 0 || m.holdEnd < next) {
			next = m.holdEnd
		}
	}
	g.publish(now)
	return next
}

// publish makes the snapshot of now. With mu held, or before anybody else has
// the group.
func (g *Group) publish(now time.Duration) {
	s := &snapshot{sender: -1}
	n := len(g.members)
	for i := range g.members {
		m := &g.members[i]
		if !m.up || m.holdEnd > now {
			continue
		}
		s.active[i] = true
		s.live = append(s.live, i)
		s.shares[i] = 1
		if g.opt.Weights != nil {
			s.shares[i] = uint64(g.opt.Weights[i])
		}
		s.total += s.shares[i]
	}
	s.sender = LinkActive(s.active[:n], g.opt.Primary)
	for i := range n {
		s.accept[i] = g.accepts(s, i)
	}
	g.snap.Store(s)
}

// accepts is lagg(4)'s rule of who may deliver.
func (g *Group) accepts(s *snapshot, i int) bool {
	if g.opt.Proto != Failover || g.opt.RxAll || i == g.opt.Primary {
		return true
	}
	return !s.active[g.opt.Primary] && (s.sender == i || s.sender < 0)
}

// Accepts reports whether frames that arrive on member i are taken.
func (g *Group) Accepts(i int) bool { return g.snap.Load().accept[i] }

// Live returns the members in use, by index.
func (g *Group) Live() []int { return slices.Clone(g.snap.Load().live) }

// Up reports whether any member can send.
func (g *Group) Up() bool { return len(g.snap.Load().live) != 0 }
