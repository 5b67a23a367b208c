package poll

import (
	"testing"
	"time"
)

func TestRhythm(t *testing.T) {
	const ms, us = time.Millisecond, time.Microsecond
	for _, tc := range []struct {
		name   string
		beats  []time.Duration // from one to the next
		ok     bool
		period time.Duration // where the middle of the window is
		within time.Duration // half of it, at most
	}{
		{"none", nil, false, 0, 0},
		{"steady", []time.Duration{16 * ms, 16 * ms, 16 * ms, 16 * ms, 16 * ms}, true, 16 * ms, 160 * us},
		{"too few", []time.Duration{16 * ms, 16 * ms, 16 * ms, 16 * ms}, false, 0, 0},
		{"jitter", []time.Duration{20 * ms, 20*ms + 80*us, 20*ms - 80*us, 20*ms + 80*us, 20*ms - 80*us, 20 * ms}, true, 20 * ms, 400 * us},
		{"one left out", []time.Duration{16 * ms, 16 * ms, 16 * ms, 16 * ms, 16 * ms, 32 * ms}, false, 0, 0},
		{"too fast to be worth it", []time.Duration{4 * ms, 4 * ms, 4 * ms, 4 * ms, 4 * ms, 4 * ms}, false, 0, 0},
		{"a second", []time.Duration{1000 * ms, 1001 * ms, 999 * ms, 1000 * ms, 1000 * ms, 1000 * ms}, true, 1000 * ms, 3 * ms},
		{"no rhythm", []time.Duration{10 * ms, 15 * ms, 11 * ms, 30 * ms, 9 * ms, 14 * ms}, false, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var r rhythm
			now := 5 * time.Second
			r.beat(now)
			for _, d := range tc.beats {
				now += d
				r.beat(now)
			}
			from, to, ok := r.window()
			if ok != tc.ok {
				t.Fatalf("foreseen: %v, want %v", ok, tc.ok)
			}
			if !ok {
				return
			}
			next := now + tc.period
			if mid := (from + to) / 2; (mid - next).Abs() > 100*us {
				t.Errorf("next after %v, want %v", mid-now, tc.period)
			}
			if half := (to - from) / 2; half > tc.within || half < beatLead {
				t.Errorf("awaited for %v each side, want %v to %v", half, beatLead, tc.within)
			}
		})
	}
}

// Whatever comes, the worker is awake for it at most a small part of the time.
func FuzzRhythm(f *testing.F) {
	f.Add([]byte{16, 16, 16, 16, 16, 16, 17, 15, 16})
	f.Add([]byte{1, 200, 1, 200, 1, 200})
	f.Add([]byte{5, 5, 5, 5, 5, 5, 5, 5, 5})
	f.Fuzz(func(t *testing.T, gaps []byte) {
		var r rhythm
		var now, awake time.Duration
		for _, g := range gaps {
			from, to, ok := r.window()
			now += beatGap + time.Duration(g)*250*time.Microsecond
			if ok {
				if from <= r.last {
					t.Fatalf("awaited from %v, before the beat at %v was over", from, r.last)
				}
				awake += max(0, min(to, now)-from)
			}
			r.beat(now)
		}
		if beatShare*awake > now {
			t.Errorf("awake for %v of %v", awake, now)
		}
	})
}
