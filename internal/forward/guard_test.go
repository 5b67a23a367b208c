package forward

import (
	"testing"

	"github.com/netring/netring/poll"
	"github.com/netring/netring/ring/mem"
)

// What a guard is told: frames count as delivered when they are taken out of
// the ring, and those that wait are the least that any round has left.
func TestObserved(t *testing.T) {
	c := newCable(t, Options{}, mem.Options{})
	s, l := c.workers[0].stations[0], c.links[0][0]
	seq := 0
	for i, step := range []struct {
		send   int
		polls  []int
		taken  uint64
		waited int
	}{
		{send: 10, polls: []int{4}, taken: 4, waited: 0}, // it was empty before
		{send: 10, polls: []int{4, 4}, taken: 12, waited: 6},
		{send: 0, polls: []int{4}, taken: 16, waited: 4},
		{send: 10, polls: []int{12, 1}, taken: 29, waited: 1},
		{send: 10, polls: []int{20}, taken: 40, waited: 0},
		{send: 10, polls: []int{2}, taken: 42, waited: 0},
		{send: 10, polls: nil, taken: 42, waited: 8}, // no round
	} {
		seq += send(t, c.outer[0].TxRings()[0], seq, step.send, 60)
		for _, n := range step.polls {
			if _, err := s.Poll(n); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.workers[0].stations[1].Flush(); err != nil {
			t.Fatal(err)
		}
		s.observe()
		got := c.observed(l)
		want := poll.GateSample{Delivered: step.taken, Waiting: step.waited, Slots: s.rx.Len(), Sent: got.Sent}
		if got != want || got.Sent > step.taken {
			t.Errorf("step %d: %+v, want %+v", i, got, want)
		}
	}
	if got := c.observed(c.links[1][0]); got.Delivered != 0 || got.Waiting != 0 {
		t.Errorf("the other link: %+v", got)
	}
	if n := testing.AllocsPerRun(100, func() { s.observe(); c.observed(l) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
