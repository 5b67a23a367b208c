package lagg

// Deficit is a round robin by bytes (surplus round robin, after Shreedhar and
// Varghese, 1995): a turn is worth quantum bytes; a member sends until they are
// used up, and what it sent beyond is taken off its own next turn. However
// sizes are mixed, two members never differ by more than quantum and one frame.
// The zero value starts at index 0. It belongs to one worker.
type Deficit struct {
	turn   int // 1 + index of whose turn it is, 0 at the start
	credit [MaxMembers]int64
}

// Next returns the index, below live, for a frame of n bytes. Reset it when
// the members behind the indexes change.
func (d *Deficit) Next(n int, quantum int64, live int) int {
	for d.turn == 0 || d.credit[d.turn-1] <= 0 {
		d.turn = d.turn%live + 1
		d.credit[d.turn-1] += quantum
	}
	d.credit[d.turn-1] -= int64(n)
	return d.turn - 1
}

// GiveBack undoes Next for a frame that was not sent after all.
func (d *Deficit) GiveBack(index, n int) { d.credit[index] += int64(n) }

// Reset forgets all debts.
func (d *Deficit) Reset() { *d = Deficit{} }
