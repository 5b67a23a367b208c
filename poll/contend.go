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
		over := ours*100 > d*time.Duration(w.share) || now < w.held
		if over && theirs*100 > d*censusPercent {
			w.held = max(w.held, now+censusHold)
		}
	}
	w.censusAt, w.censusCPU, w.censusIdle, w.censusKern = now, cpu, idle, kern
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
