package poll

import "time"

// contend finds out if another program wants the core while we take more than
// our share, and holds us to it if so.
func (w *worker) contend(now time.Duration) {
	if now-w.censusAt >= censusWindow {
		w.census(now)
	}
	if now < w.held {
		w.stats.held.Add(1)
		w.tickAt = 0
		return
	}
	cpu := w.sys.cpu()
	if w.tickAt != 0 && (cpu-w.tickCPU)*100 > (now-w.tickAt)*time.Duration(w.share) {
		// Whoever waits gets on now. Else they would go without until the
		// kernel finds that we had enough, which at a low nice value is long.
		w.sys.yield()
		after := w.sys.now()
		if after-now >= contendTime {
			w.strike(after)
		}
		now = after
	}
	w.tickAt, w.tickCPU = now, cpu
}

// census finds out from who had the core if somebody else wants it. It sees
// what yielding does not: programs that run while we nap, and no longer than
// that because we go first.
func (w *worker) census(now time.Duration) {
	idle, kern, ok := w.sys.others()
	if !ok {
		return
	}
	cpu := w.sys.cpu()
	// A window far longer than it should be has a sleep in it.
	if d := now - w.censusAt; w.censusAt != 0 && d < 2*censusWindow {
		ours := cpu - w.censusCPU
		theirs := d - ours - (idle - w.censusIdle) - (kern - w.censusKern)
		if w.rivals.want(d, ours, theirs, now < w.held) {
			w.held = max(w.held, now+censusHold)
		}
	}
	w.censusAt, w.censusCPU, w.censusIdle, w.censusKern = now, cpu, idle, kern
}

// rivals decides if the other programs on the core want more of it than they
// get from a worker that takes what it can. It has no clock.
//
// What they get then says little: at a low nice value the worker leaves a
// program that never sleeps no more than one that seldom runs would take. What
// tells is whether they leave anything of what the worker left. If not, they
// are given the worker's share of the core, and show what they want of it;
// if that is no more than they had before, they have it.
type rivals struct {
	share  int           // percent of the core that is the worker's
	demand time.Duration // percent of the core that they took when they could; 0 is not known
	held   bool          // the worker kept to its share at the last count
}

// want takes who had the core for a time of d, and if the worker keeps to its
// share now. It reports whether it must.
func (r *rivals) want(d, ours, theirs time.Duration, held bool) bool {
	percent, left := 100*theirs/d, d-ours
	was := r.held
	r.held = held
	all := percent >= rivalsFew && 2*theirs > left
	if held {
		if was {
			r.demand = percent
		}
		return percent > rivalsMany || all
	}
	switch {
	case ours*100 <= d*time.Duration(r.share):
		return false
	case percent < rivalsFew:
		r.demand = 0
		return false
	case percent > rivalsMany:
		return true
	}
	content := percent >= r.demand*3/4 && percent <= r.demand+2
	return all && !content
}

// strike notes that somebody took the core.
func (w *worker) strike(now time.Duration) {
	waited := w.sys.waited()
	if now-w.strikeAt < contendWindow && waited-w.strikeWait >= contendTime {
		w.strikes++
	} else {
		w.strikes = 1
	}
	if w.strikes >= contendStrikes {
		w.held = max(w.held, now+strikeHold)
	}
	w.strikeAt, w.strikeWait = now, waited
}
