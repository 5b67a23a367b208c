package gen

// Tracker keeps the books of a numbered stream: what was lost, doubled,
// overtaken. It remembers the last window numbers; one that is older counts as
// stale, as it can no longer be told whether it had been seen.
type Tracker struct {
	Received   uint64 // all probes
	Duplicates uint64
	Reordered  uint64 // came after a higher number
	Stale      uint64 // too old to tell

	any    bool
	first  uint64
	next   uint64 // one past the highest number
	unique uint64
	bits   [window / 64]uint64
}

const window = 1 << 16

// Observe notes the arrival of number seq.
func (t *Tracker) Observe(seq uint64) {
	t.Received++
	if !t.any {
		t.any, t.first, t.next = true, seq, seq
	}
	switch {
	case seq >= t.next:
		if seq-t.next >= window {
			t.bits = [window / 64]uint64{}
		} else {
			for n := t.next; n != seq; n++ {
				t.bits[n/64%(window/64)] &^= 1 << (n % 64)
			}
		}
		t.next = seq + 1
	case t.next-seq > window:
		t.Stale++
		return
	default:
		if t.bits[seq/64%(window/64)]&(1<<(seq%64)) != 0 {
			t.Duplicates++
			return
		}
		t.Reordered++
		if seq < t.first {
			t.first = seq
		}
	}
	t.bits[seq/64%(window/64)] |= 1 << (seq % 64)
	t.unique++
}

// Lost is the numbers missing between the lowest and the highest seen.
func (t *Tracker) Lost() uint64 {
	if !t.any {
		return 0
	}
	return t.next - t.first - t.unique - min(t.Stale, t.next-t.first-t.unique)
}

// Highest is one past the highest number seen.
func (t *Tracker) Highest() uint64 { return t.next }
