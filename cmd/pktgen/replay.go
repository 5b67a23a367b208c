package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/netring/netring/internal/capture"
	"github.com/netring/netring/internal/gen"
	"github.com/netring/netring/nm"
)

// replayConfig is what only -f replay takes.
type replayConfig struct {
	file  string
	speed float64 // times the original; 0 for as fast as possible
	loop  int     // passes; 0 until stopped
}

func defaultReplay() replayConfig { return replayConfig{speed: 1, loop: 1} }

func (c *replayConfig) flags(f *pflag.FlagSet) {
	*c = defaultReplay()
	f.StringVar(&c.file, "file", "", "capture to replay: pcap or pcapng, also with gzip")
	f.Float64Var(&c.speed, "speed", c.speed, "speed of the replay, times the original; 0 for as fast as possible")
	f.IntVar(&c.loop, "loop", c.loop, "passes of the replay; 0 until stopped")
}

func (c *replayConfig) validate(all *config) error {
	if all.function != "replay" {
		if *c != defaultReplay() {
			return errors.New("--file, --speed and --loop go with -f replay")
		}
		return nil
	}
	switch {
	case c.file == "":
		return errors.New("-f replay needs a capture: --file x.pcap")
	case !(c.speed >= 0 && c.speed <= 1e6):
		return fmt.Errorf("speed %v: must be 0 to 1000000", c.speed)
	case all.rate != "" && c.speed != 1:
		return errors.New("-R and --speed: choose one")
	case c.loop < 0:
		return fmt.Errorf("loop %d: must be 0 or more", c.loop)
	}
	return nil
}

// replayer sends the packets of a capture.
type replayer struct {
	sender
	file  *os.File
	src   *capture.Reader
	pass  int
	next  capture.Packet
	most  [3]int // bytes of a frame that is sent, by its VLAN tags
	fits  uint64 // packets of a pass that are sent
	first int64  // time of the first packet
	span  int64  // from the first packet to one mean distance after the last

	start time.Duration // of this pass, or what is left of the plan
	last  time.Duration // when the packet before was due
}

func (j *job) replayers(d *nm.Desc) (w []worker, err error) {
	t := &replayer{sender: sender{j: j, r: d.TxRings()[0], left: j.count, bound: j.count != 0, n: &counts{}}}
	for tags := range t.most {
		t.most[tags] = largest(t.r, tags)
	}
	if t.file, err = os.Open(j.replay.file); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			t.file.Close()
		}
	}()
	if t.src, err = capture.NewReader(t.file); err == nil {
		err = t.survey()
	}
	if err != nil {
		return nil, fmt.Errorf("replay %s: %w", j.replay.file, err)
	}
	j.counts = append(j.counts, t.n)
	return []worker{t}, nil
}

// survey reads the capture once, so that what is wrong with it shows before
// anything is sent.
func (t *replayer) survey() error {
	var p capture.Packet
	var skipped uint64
	var end int64
	for n := 0; ; n++ {
		err := t.src.Next(&p)
		if err == io.EOF {
			break
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("packet %d: the file ends within it: leave it out (editcap -r FILE NEW 1-%d)", n+1, n)
		}
		if err != nil {
			return fmt.Errorf("packet %d: %w", n+1, err)
		}
		if !t.sendable(&p) {
			skipped++
			continue
		}
		if t.fits == 0 {
			t.first, end = p.Time, p.Time
		}
		end = max(end, p.Time)
		t.fits++
	}
	switch {
	case t.fits == 0 && skipped == 0:
		return errors.New("it has no packets")
	case t.fits == 0:
		return fmt.Errorf("none of its %d packets can be sent through %s: they are no Ethernet frames, cut off, or larger than %d bytes", skipped, t.r.Port(), t.most[0])
	}
	t.span = end - t.first
	t.span += t.span / int64(max(t.fits-1, 1))
	if skipped != 0 {
		t.j.log.Warn("packets are left out of the replay: no Ethernet frames, cut off in the capture, or larger than the port sends",
			"packets", skipped, "sent", t.fits, "largest", t.most[0])
	}
	return t.src.Rewind()
}

// sendable reports whether a packet can be sent as it was.
func (t *replayer) sendable(p *capture.Packet) bool {
	return p.Ethernet && p.Length == len(p.Frame) && len(p.Frame) >= 14 && len(p.Frame) <= t.most[tags(p.Frame)]
}

// tags counts the VLAN tags of a frame, up to two.
func tags(frame []byte) (n int) {
	for at := 12; n < 2 && len(frame) >= at+6; at += 4 {
		if t := binary.BigEndian.Uint16(frame[at:]); t != 0x8100 && t != 0x88a8 {
			break
		}
		n++
	}
	return n
}

// advance reads the next packet that is sent; false at the end of the replay.
func (t *replayer) advance() (bool, error) {
	for {
		switch err := t.src.Next(&t.next); {
		case err == nil && t.sendable(&t.next):
			return true, nil
		case err == nil:
			t.n.skipped.Add(1)
		case err != io.EOF:
			return false, fmt.Errorf("replay %s: %w", t.j.replay.file, err)
		default:
			if t.pass++; t.j.replay.loop != 0 && t.pass == t.j.replay.loop {
				return false, nil
			}
			t.start += t.scaled(t.span)
			if err := t.src.Rewind(); err != nil {
				return false, fmt.Errorf("replay %s: %w", t.j.replay.file, err)
			}
		}
	}
}

// scaled is a time of the capture at the replay's speed.
func (t *replayer) scaled(ns int64) time.Duration {
	if s := t.j.replay.speed; s != 1 {
		return time.Duration(float64(ns) / s)
	}
	return time.Duration(ns)
}

// due is when the next packet is due: never before the one before it, though
// captures of several queues may say so.
func (t *replayer) due() time.Duration {
	switch {
	case t.s != nil:
		return t.s.Next(t.j.rates.cost(len(t.next.Frame)))
	case t.j.replay.speed == 0:
		return 0
	}
	return max(t.last, t.start+t.scaled(t.next.Time-t.first))
}

func (t *replayer) run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, t.file.Close()) }()
	t.start = t.j.clock.now()
	t.last = t.start
	if rate := t.j.rates.per; rate != 0 {
		t.s = gen.NewSchedule(rate, t.j.rates.cost(t.r.MaxFrame()), t.start)
	}
	more, err := t.advance()
	for more && err == nil && ctx.Err() == nil && (!t.bound || t.left > 0) {
		now := t.j.clock.now()
		if due := t.due(); due > now {
			t.sleep(due-now, ctx.Done())
			continue
		}
		if more, err = t.batch(now); err == nil {
			err = t.push()
		}
	}
	return errors.Join(err, t.drain())
}

// batch puts what is due into the ring, at most a burst.
func (t *replayer) batch(now time.Duration) (more bool, err error) {
	r, budget := t.r, ^uint64(0)
	if t.s != nil {
		budget = t.s.Due(now)
	}
	room := min(t.j.burst, r.Space())
	if t.bound {
		room = int(min(uint64(room), t.left))
	}
	for more = true; more && room > 0; room-- {
		cost := t.j.rates.cost(len(t.next.Frame))
		due := t.due()
		if t.s == nil && due > now || t.s != nil && cost > budget {
			break
		}
		if late := now - due; t.s == nil && due != 0 {
			if late > gen.Slack { // all that follows moves: no burst to catch up
				t.start += late
				due = now
				t.n.late.Add(1)
			}
			t.last = due
		}
		s := r.Slot(r.Head)
		s.Len, s.Flags = uint32(copy(r.Buf(r.Head), t.next.Frame)), 0
		r.Head++
		if t.s != nil {
			budget -= cost
			t.s.Sent(cost)
		}
		if t.bound {
			t.left--
		}
		more, err = t.advance()
	}
	r.Cur = r.Head
	return more, err
}
