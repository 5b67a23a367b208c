package lagg

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/netring/netring/ring"
)

// line is a member with a queue that is emptied at its own pace, on a link
// that may be cut: what is queued then is lost.
type line struct {
	queue [][8]byte
	sent  func(frame [8]byte)
}

func (l *line) Move(src *ring.Ring, n int) int {
	took := 0
	for ; took < n && len(l.queue) < 200; took++ {
		l.Copy(src, src.Head)
		ring.Skip(src, 1)
	}
	return took
}

func (l *line) Copy(src *ring.Ring, k uint32) {
	l.queue = append(l.queue, [8]byte(src.Frame(k)))
}
func (l *line) Flush() error { return nil }
func (l *line) Pending() int { return len(l.queue) }

func (l *line) send(n int) {
	for ; n > 0 && len(l.queue) > 0; n-- {
		l.sent(l.queue[0])
		l.queue = l.queue[1:]
	}
}

// TestOrder cuts and restores links at random while members drain at
// different speeds and push back: in loadbalance and failover no frame of a
// flow ever overtakes another one. The first 8 bytes of a frame are its flow
// and its number.
func TestOrder(t *testing.T) {
	for _, o := range []Options{{Proto: LoadBalance, Hash: L3 | L4, Seed: 1}, {Proto: Failover}} {
		t.Run(o.Proto.String(), func(t *testing.T) {
			o.HoldDown = -1
			const n, flows = 3, 40
			g := group(t, n, o)
			r := rand.New(rand.NewPCG(1, 2))
			var seen, next [flows]uint32
			var lines [n]*line
			var out []ring.Egress
			delivered := 0
			for i := range lines {
				g.SetLink(i, true, 1)
				lines[i] = &line{sent: func(f [8]byte) {
					flow, seq := binary.BigEndian.Uint32(f[:]), binary.BigEndian.Uint32(f[4:])
					if seq <= seen[flow] {
						t.Fatalf("flow %d: frame %d after frame %d", flow, seq, seen[flow])
					}
					seen[flow] = seq
					delivered++
				}}
				out = append(out, lines[i])
			}
			e, err := g.Egress(out, func() time.Duration { return 1 })
			if err != nil {
				t.Fatal(err)
			}
			src := frames(t, 64)
			for round := range 20000 {
				for k := src.Cur; k != src.Tail(); k++ {
					flow := r.Uint32N(flows)
					next[flow]++
					f := src.Frame(k)
					copy(f, udp(flow, 2, 3, 4, 0, 0))
					binary.BigEndian.PutUint32(f, flow)
					binary.BigEndian.PutUint32(f[4:], next[flow])
				}
				src.Cur = src.Tail()
				for e.Move(src, src.Space()) == 0 && src.Space() != 0 {
					lines[r.IntN(n)].send(1)
				}
				if src.Space() == 0 {
					src.Cur = src.Head
					if err := src.Sync(); err != nil {
						t.Fatal(err)
					}
				}
				for i, l := range lines {
					l.send(r.IntN(30 * (i + 1)))
				}
				if i := r.IntN(n); round%20 == 0 {
					up := r.IntN(3) != 0
					if g.SetLink(i, up, 1); !up {
						lines[i].queue = nil
					}
				}
			}
			if m, k := e.Stats.Moved.Load(), e.Stats.Kept.Load(); m == 0 || k == 0 || delivered == 0 {
				t.Errorf("nothing shown: %d moved, %d kept, %d delivered", m, k, delivered)
			}
		})
	}
}
