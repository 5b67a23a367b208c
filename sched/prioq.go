package sched

import "fmt"

// Rule says what a full [PriorityQueue] does with one more entry.
type Rule uint8

const (
	// Refuse: an entry without priority is refused. One with priority takes
	// the place of the oldest without, as long as priority entries hold less
	// than half of each limit; otherwise it is refused too. (DragonFly's
	// first version.)
	Refuse Rule = iota
	// Evict: the oldest entry without priority gives way, as often as needed.
	// Once priority entries hold half of a limit, or there are no others, the
	// oldest of them gives way to a new one. An entry without priority is
	// refused only if none like it is left. (DragonFly today.)
	Evict
)

func (r Rule) String() string {
	switch r {
	case Refuse:
		return "refuse"
	case Evict:
		return "evict"
	}
	return fmt.Sprintf("rule %d", uint8(r))
}

// ParseRule is the inverse of [Rule.String].
func ParseRule(s string) (Rule, error) {
	for _, r := range []Rule{Refuse, Evict} {
		if s == r.String() {
			return r, nil
		}
	}
	return 0, fmt.Errorf("queue rule %q: must be refuse or evict", s)
}

// Eviction is why an entry that had been accepted was taken out again.
type Eviction uint8

const (
	// EvictForPriority: an entry without priority gave way to one with it.
	EvictForPriority Eviction = iota
	// EvictForNewer: the oldest without priority gave way to a newer such one.
	EvictForNewer
	// EvictPriority: the oldest with priority gave way to a newer such one.
	EvictPriority
	NumEvictions
)

func (e Eviction) String() string {
	return [...]string{"for-priority", "for-newer", "priority", "unknown"}[min(e, NumEvictions)]
}

// PriorityQueue holds entries that wait, in two lists: those with priority
// leave first, in order, then the others in order. Its limits count packets
// and bytes; it is full when either is reached, so the bytes may be over their
// limit by almost one packet. It allocates nothing after it was made. One
// goroutine.
type PriorityQueue[T any] struct {
	rule       Rule
	maxPackets int
	maxBytes   int64
	nodes      []node[T]
	free       int32 // chain of unused nodes
	lists      [2]list
}

type node[T any] struct {
	v     T
	bytes uint32
	next  int32
}

// list is a chain of nodes, -1 where there is none.
type list struct {
	head, tail int32
	packets    int
	bytes      int64
}

const (
	normal   = 0
	priority = 1
)

// NewPriorityQueue makes a queue for at most maxPackets entries.
func NewPriorityQueue[T any](maxPackets, maxBytes int, rule Rule) (*PriorityQueue[T], error) {
	switch {
	case maxPackets < 1 || maxPackets > 1<<24:
		return nil, fmt.Errorf("priority queue: %d packets: must be between 1 and %d", maxPackets, 1<<24)
	case maxBytes < 1:
		return nil, fmt.Errorf("priority queue: %d bytes: must be at least 1", maxBytes)
	case rule > Evict:
		return nil, fmt.Errorf("priority queue: %v: must be refuse or evict", rule)
	}
	q := &PriorityQueue[T]{rule: rule, maxPackets: maxPackets, maxBytes: int64(maxBytes), nodes: make([]node[T], maxPackets)}
	for i := range q.nodes {
		q.nodes[i].next = int32(i) + 1
	}
	q.nodes[maxPackets-1].next = -1
	for i := range q.lists {
		q.lists[i].head, q.lists[i].tail = -1, -1
	}
	return q, nil
}

// Len and Bytes count all entries, PriorityLen and PriorityBytes those with
// priority.
func (q *PriorityQueue[T]) Len() int             { return q.lists[normal].packets + q.lists[priority].packets }
func (q *PriorityQueue[T]) Bytes() int64         { return q.lists[normal].bytes + q.lists[priority].bytes }
func (q *PriorityQueue[T]) PriorityLen() int     { return q.lists[priority].packets }
func (q *PriorityQueue[T]) PriorityBytes() int64 { return q.lists[priority].bytes }

// Full reports whether a limit is reached.
func (q *PriorityQueue[T]) Full() bool {
	return q.Len() >= q.maxPackets || q.Bytes() >= q.maxBytes
}

// Room makes room for one entry by the queue's rule and reports whether it may
// be pushed. It calls evicted for each entry that has to give way, before the
// next one.
func (q *PriorityQueue[T]) Room(prio bool, evicted func(v T, bytes uint32, why Eviction)) bool {
	for q.Full() {
		from, why, ok := q.victim(prio)
		if !ok {
			return false
		}
		v, bytes := q.take(from)
		evicted(v, bytes, why)
		if q.rule == Refuse {
			// One place for one entry; the bytes are not looked at again.
			return true
		}
	}
	return true
}

// victim chooses the list whose head gives way to an entry, if one may.
func (q *PriorityQueue[T]) victim(prio bool) (from int, why Eviction, ok bool) {
	p := &q.lists[priority]
	half := p.packets < q.maxPackets/2 && p.bytes < q.maxBytes/2
	switch {
	case q.rule == Refuse && (!prio || !half):
		return 0, 0, false
	case !prio:
		from, why = normal, EvictForNewer
	case q.rule == Evict && (!half || q.lists[normal].packets == 0):
		from, why = priority, EvictPriority
	default:
		from, why = normal, EvictForPriority
	}
	return from, why, q.lists[from].packets != 0
}

// Push appends an entry for which [PriorityQueue.Room] has answered true.
func (q *PriorityQueue[T]) Push(v T, bytes uint32, prio bool) {
	l := &q.lists[normal]
	if prio {
		l = &q.lists[priority]
	}
	i := q.free
	n := &q.nodes[i]
	q.free = n.next
	*n = node[T]{v: v, bytes: bytes, next: -1}
	if l.tail < 0 {
		l.head = i
	} else {
		q.nodes[l.tail].next = i
	}
	l.tail = i
	l.packets++
	l.bytes += int64(bytes)
}

// Peek returns the entry that leaves next.
func (q *PriorityQueue[T]) Peek() (v T, bytes uint32, ok bool) {
	l := &q.lists[q.first()]
	if l.packets == 0 {
		return v, 0, false
	}
	n := &q.nodes[l.head]
	return n.v, n.bytes, true
}

// Pop takes out the entry that leaves next.
func (q *PriorityQueue[T]) Pop() (v T, bytes uint32, ok bool) {
	from := q.first()
	if q.lists[from].packets == 0 {
		return v, 0, false
	}
	v, bytes = q.take(from)
	return v, bytes, true
}

// first is the list that is served next.
func (q *PriorityQueue[T]) first() int {
	if q.lists[priority].packets != 0 {
		return priority
	}
	return normal
}

// take removes the head of a list that is not empty.
func (q *PriorityQueue[T]) take(from int) (T, uint32) {
	l := &q.lists[from]
	i := l.head
	n := &q.nodes[i]
	l.head = n.next
	if l.head < 0 {
		l.tail = -1
	}
	l.packets--
	l.bytes -= int64(n.bytes)
	v, bytes := n.v, n.bytes
	*n = node[T]{next: q.free}
	q.free = i
	return v, bytes
}
