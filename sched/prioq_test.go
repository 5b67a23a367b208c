package sched

import (
	"slices"
	"testing"
)

// slowItem and slowQueue are the queue's rule on two slices.
type slowItem struct {
	id    int
	bytes int
}

type slowQueue struct {
	rule                 Rule
	maxPackets, maxBytes int
	prio, norm           []slowItem
	gone                 []slowItem
	why                  []Eviction
}

func sumOf(l []slowItem) (n int) {
	for _, i := range l {
		n += i.bytes
	}
	return n
}

func (q *slowQueue) full() bool {
	return len(q.prio)+len(q.norm) >= q.maxPackets || sumOf(q.prio)+sumOf(q.norm) >= q.maxBytes
}

func (q *slowQueue) evict(l *[]slowItem, why Eviction) {
	q.gone, q.why = append(q.gone, (*l)[0]), append(q.why, why)
	*l = (*l)[1:]
}

func (q *slowQueue) enqueue(it slowItem, prio bool) bool {
	q.gone, q.why = nil, nil
	few := func() bool { return len(q.prio) < q.maxPackets/2 && sumOf(q.prio) < q.maxBytes/2 }
	if q.rule == Refuse && q.full() {
		if !prio || !few() || len(q.norm) == 0 {
			return false
		}
		q.evict(&q.norm, EvictForPriority)
	}
	for q.rule == Evict && q.full() {
		switch {
		case prio && few() && len(q.norm) > 0:
			q.evict(&q.norm, EvictForPriority)
		case prio && len(q.prio) > 0:
			q.evict(&q.prio, EvictPriority)
		case !prio && len(q.norm) > 0:
			q.evict(&q.norm, EvictForNewer)
		default:
			return false
		}
	}
	if prio {
		q.prio = append(q.prio, it)
	} else {
		q.norm = append(q.norm, it)
	}
	return true
}

func (q *slowQueue) dequeue() (it slowItem, ok bool) {
	l := &q.prio
	if len(*l) == 0 {
		l = &q.norm
	}
	if len(*l) == 0 {
		return it, false
	}
	it = (*l)[0]
	*l = (*l)[1:]
	return it, true
}

// FuzzPriorityQueue compares with the slow implementation. A byte of steps is
// one step.
func FuzzPriorityQueue(f *testing.F) {
	f.Add(uint8(8), uint16(12112), true, []byte("\x10\x11\x12\x13\x90\x91\x80\x10\x10\x10\x90\x90\x90\x90\x90\x00\x40\x40\x40"))
	f.Add(uint8(3), uint16(300), false, []byte("\x90\x90\x90\x10\x90\x40\x10\x11\x90\x40\x40\x40\x40"))
	f.Add(uint8(16), uint16(100), true, []byte("\x01\x01\x3f\x01\xbf\x81\x3f\x3f\x81\x81\x81\x40"))
	f.Fuzz(func(t *testing.T, packets uint8, bytes uint16, evict bool, steps []byte) {
		if packets == 0 || bytes == 0 {
			return
		}
		rule := Refuse
		if evict {
			rule = Evict
		}
		q, err := NewPriorityQueue[int](int(packets), int(bytes), rule)
		if err != nil {
			t.Fatal(err)
		}
		s := &slowQueue{rule: rule, maxPackets: int(packets), maxBytes: int(bytes)}
		for i, op := range steps {
			if op&0x40 != 0 {
				if v, _, peeked := q.Peek(); peeked != (q.Len() != 0) || peeked && v == 0 {
					t.Fatalf("step %d: peek %d, %v", i, v, peeked)
				}
				id, n, ok := q.Pop()
				it, wantOK := s.dequeue()
				if id != it.id || int(n) != it.bytes || ok != wantOK {
					t.Fatalf("step %d: popped %d (%d bytes) %v, want %+v %v", i, id, n, ok, it, wantOK)
				}
			} else {
				it, prio := slowItem{i + 1, int(op&0x3f) * 40}, op&0x80 != 0
				var gone []slowItem
				var why []Eviction
				ok := q.Room(prio, func(id int, n uint32, w Eviction) {
					gone, why = append(gone, slowItem{id, int(n)}), append(why, w)
				})
				if ok {
					q.Push(it.id, uint32(it.bytes), prio)
				}
				if want := s.enqueue(it, prio); ok != want || !slices.Equal(gone, s.gone) || !slices.Equal(why, s.why) {
					t.Fatalf("step %d: %v, evicted %v %v; want %v, %v %v", i, ok, gone, why, want, s.gone, s.why)
				}
			}
			if q.Len() != len(s.prio)+len(s.norm) || q.Bytes() != int64(sumOf(s.prio)+sumOf(s.norm)) ||
				q.PriorityLen() != len(s.prio) || q.PriorityBytes() != int64(sumOf(s.prio)) {
				t.Fatalf("step %d: len %d bytes %d", i, q.Len(), q.Bytes())
			}
		}
	})
}

func TestPriorityQueueBounds(t *testing.T) {
	for _, c := range []struct {
		packets, bytes int
		rule           Rule
	}{{0, 1, Evict}, {1, 0, Evict}, {1<<24 + 1, 1, Evict}, {1, 1, 2}} {
		if _, err := NewPriorityQueue[int](c.packets, c.bytes, c.rule); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
	for _, name := range []string{"refuse", "evict"} {
		if r, err := ParseRule(name); err != nil || r.String() != name {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
	for _, name := range []string{"drop", "backpressure"} {
		if p, err := ParseFull(name); err != nil || p.String() != name {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
	if _, err := ParseRule("x"); err == nil {
		t.Error("a rule that does not exist was accepted")
	}
	if _, err := ParseFull("x"); err == nil {
		t.Error("a policy that does not exist was accepted")
	}
}

// FuzzStager compares with counting by hand over a list of what waits.
func FuzzStager(f *testing.F) {
	f.Add(4, 300, []byte{60, 60, 60, 60, 255, 10, 0, 10})
	f.Add(0, 0, []byte{60, 60, 0})
	f.Add(16, 0, []byte{60, 60, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17})
	f.Fuzz(func(t *testing.T, packets, bytes int, steps []byte) {
		s := NewStager(packets, bytes)
		var waiting []int
		for i, n := range steps {
			var got int
			if n == 0 {
				got = s.Rollup()
			} else {
				waiting = append(waiting, int(n))
				got = s.Packet(uint32(n))
			}
			sum := 0
			for _, w := range waiting {
				sum += w
			}
			want := 0
			if n == 0 || packets <= 1 || len(waiting) >= packets || bytes > 0 && sum >= bytes {
				want, waiting = len(waiting), nil
			}
			if got != want || s.Waiting() != len(waiting) {
				t.Fatalf("step %d: handed %d, waiting %d; want %d, %d", i, got, s.Waiting(), want, len(waiting))
			}
		}
	})
}
