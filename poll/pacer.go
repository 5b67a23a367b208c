package poll

import "time"

// pacer decides for the adaptive mode whether to sleep in poll(2), and how
// long to let a batch gather when not. It has no clock.
//
// Asleep, every packet may wake the worker: best latency, and under load a
// waste, above all for the sender's core, which does the waking. So when wakes
// come fast or work piles up, it gives up on poll(2) and paces itself: a round
// each time that a batch should be there, or after the longest delay that it
// may add. Where that does not gather batches (one request and its answer
// going back and forth, which waits for us), it goes back to sleep, and waits
// longer each time before it tries again.
type pacer struct {
	batch int           // packets worth a round
	delay time.Duration // longest gap between rounds while pacing

	pacing bool
	since  time.Duration // of the last change
	hold   time.Duration // not to pace before since+hold

	winStart time.Duration // window of the counts below
	wakes    int           // asleep: ends of a wait
	fulls    int           // asleep: rounds that left something
	rounds   int
	packets  int
	rate     float64 // packets a second, smoothed
}

const (
	paceWindow   = 2 * time.Millisecond
	paceWakes    = 30                    // wakes in a window that are too many
	paceFulls    = 4                     // full rounds in a window likewise
	paceMinBatch = 4                     // packets a round that pacing must bring
	paceRounds   = 16                    // rounds to judge that by
	paceHoldMin  = 10 * time.Millisecond // doubled by each pacing that brought nothing
	paceHoldMax  = 640 * time.Millisecond
	paceGood     = 100 * time.Millisecond // pacing that lasted was right
	paceMinGap   = 8 * time.Microsecond   // shorter is not worth a sleep
)

func newPacer(batch int, delay time.Duration) pacer {
	return pacer{batch: batch, delay: delay, hold: paceHoldMin, since: -paceHoldMin}
}

// woke counts the end of a wait that brought something.
func (p *pacer) woke() { p.wakes++ }

// round takes the outcome of a round that started at now.
func (p *pacer) round(now time.Duration, done int, full bool) {
	if p.winStart == 0 {
		p.winStart = now
	}
	p.rounds++
	p.packets += done
	if full {
		p.fulls++
	}
	if p.pacing {
		p.judge(now)
		return
	}
	d := now - p.winStart
	// Rounds that are all full are full load, however long they take.
	saturated := p.fulls >= paceFulls && (d < paceWindow || p.fulls == p.rounds)
	if p.wakes >= paceWakes || p.fulls >= paceFulls {
		if saturated || d < paceWindow && now-p.since >= p.hold {
			p.pacing, p.since = true, now
			p.rate = float64(p.packets) / max(d, 100*time.Microsecond).Seconds()
			p.restart(now)
			return
		}
		p.restart(now)
	} else if d >= paceWindow && p.fulls < p.rounds {
		p.restart(now)
	}
}

// judge goes back to sleep when rounds bring too little.
func (p *pacer) judge(now time.Duration) {
	if now-p.since > paceGood {
		p.hold = paceHoldMin
	}
	if p.rounds < paceRounds {
		return
	}
	if d := now - p.winStart; d > 0 {
		p.rate += (float64(p.packets)/d.Seconds() - p.rate) / 2
	}
	if p.packets < paceMinBatch*p.rounds {
		if now-p.since <= paceGood {
			p.hold = min(2*p.hold, paceHoldMax)
		}
		p.pacing, p.since = false, now
	}
	p.restart(now)
}

func (p *pacer) restart(now time.Duration) {
	p.winStart, p.wakes, p.fulls, p.rounds, p.packets = now, 0, 0, 0, 0
}

// gap is the time from the start of one round to the next while pacing; 0 is
// none.
func (p *pacer) gap() time.Duration {
	if p.rate*p.delay.Seconds() <= float64(p.batch) {
		return p.delay
	}
	return time.Duration(float64(p.batch) / p.rate * float64(time.Second))
}
