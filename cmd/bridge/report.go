package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/netring/netring/internal/forward"
	"github.com/netring/netring/internal/gate"
	"github.com/netring/netring/lagg"
	"github.com/netring/netring/poll"
	"github.com/netring/netring/ring"
	"github.com/netring/netring/sched"
)

// report is what --json prints once per interval and at the end. Counts are
// sums since the start; rates are over the interval, in the final object over
// the whole run. docs/bridge.md documents the keys; they are stable.
type report struct {
	Type      string  `json:"type"` // "interval" or "final"
	Time      string  `json:"time"`
	Elapsed   float64 `json:"elapsed_seconds"`
	Received  uint64  `json:"received_packets"`
	Forwarded uint64  `json:"forwarded_packets"`
	Copied    uint64  `json:"copied_packets"`
	Dropped   uint64  `json:"dropped_packets"`
	Pending   int64   `json:"pending_packets"`
	// Drops are the dropped by cause; causes without drops are left out.
	Drops        map[string]uint64 `json:"drops"`
	ReceivedPPS  float64           `json:"received_pps"`
	ForwardedPPS float64           `json:"forwarded_pps"`
	Bits         float64           `json:"bits_per_second"`
	Ports        []portReport      `json:"ports"`
	Workers      []workerReport    `json:"workers"`
}

type portReport struct {
	Name     string            `json:"name"`
	Driver   string            `json:"driver"` // "tpacket" or "xdp"
	Mode     string            `json:"mode"`   // how the driver works: docs/bridge.md
	Up       bool              `json:"up"`
	RX       uint64            `json:"rx_packets"`
	RXBytes  uint64            `json:"rx_bytes"`
	TX       uint64            `json:"tx_packets"`
	TXBytes  uint64            `json:"tx_bytes"`
	RXDrops  map[string]uint64 `json:"rx_drops"`
	TXDrops  map[string]uint64 `json:"tx_drops"`
	Freezes  uint64            `json:"rx_freezes"`
	Doorbell uint64            `json:"tx_doorbells"`
	Retries  uint64            `json:"tx_retries"`
	Queue    sched.Counts      `json:"queue"` // sum over its transmit rings
	Gate     *gateReport       `json:"gate,omitempty"`
	Switch   *switchReport     `json:"switch,omitempty"`
	Group    *lagg.Status      `json:"group,omitempty"`
}

// gateReport sums up the gates before a port's interfaces.
type gateReport struct {
	On       bool   `json:"on"`
	Mode     string `json:"mode"`
	Budget   int    `json:"budget_packets"`
	Passed   uint64 `json:"passed_packets"`
	Dropped  uint64 `json:"dropped_packets"`
	Control  uint64 `json:"control_packets"`
	Backlog  uint64 `json:"backlog_drops"`
	Attaches uint64 `json:"attaches"`
	Refusals uint64 `json:"refused_attaches"`
}

func (r *portReport) addGate(g *gate.GuardCounts) {
	if g == nil {
		return
	}
	if r.Gate == nil {
		r.Gate = &gateReport{Mode: g.Mode}
	}
	t := r.Gate
	t.On = t.On || g.On
	t.Budget += g.Budget
	t.Passed += g.Passed
	t.Dropped += g.Dropped
	t.Control += g.Control
	t.Backlog = max(t.Backlog, g.Backlog) // of the workers' cores, not the port's
	t.Attaches += g.Attaches
	t.Refusals += g.Refusals
}

// workerReport is what one worker's scheduler did.
type workerReport struct {
	Rounds  uint64 `json:"rounds"`
	Empty   uint64 `json:"empty_rounds"`
	Packets uint64 `json:"packets"`
	Ticks   uint64 `json:"ticks"`
	Held    uint64 `json:"held_ticks"`
	Naps    uint64 `json:"naps"`
	Waits   uint64 `json:"waits"`
	Wakes   uint64 `json:"wakes"`
	Caught  uint64 `json:"wakes_spared"`
	Errors  uint64 `json:"poll_errors"`
	Load    uint64 `json:"load_percent"`
	Burst   int    `json:"burst"`
	Pending uint64 `json:"pending_ticks"`
	Lost    uint64 `json:"lost_ticks"`
	Short   uint64 `json:"short_ticks"`
	Suspect uint64 `json:"suspect_ticks"`
	Stalled uint64 `json:"stalled_ticks"`
}

func newWorkerReport(w *poll.WorkerStats) workerReport {
	c := &w.Controller
	return workerReport{
		Rounds: w.Rounds, Empty: w.Empty, Packets: w.Packets, Ticks: w.Ticks, Held: w.Held, Naps: w.Naps,
		Waits: w.Waits, Wakes: w.Wakes, Caught: w.Caught, Errors: w.Errors, Load: w.Load,
		Burst: c.Burst, Pending: c.Pending, Lost: c.Lost, Short: c.Short, Suspect: c.Suspect, Stalled: c.Stalled,
	}
}

// addDrops adds the non-zero counts of drops to m.
func addDrops(m map[string]uint64, drops *[ring.NumCauses]uint64) {
	for c, n := range drops {
		if n != 0 {
			m[ring.Cause(c).String()] += n
		}
	}
}

func newPortReport(p *forward.PortStats) portReport {
	r := portReport{Name: p.Name, RX: p.Received(), TX: p.Sent(), Queue: p.Queue, Group: p.Group, RXDrops: map[string]uint64{}, TXDrops: map[string]uint64{}}
	for i := range p.Links {
		l := &p.Links[i]
		r.Up = r.Up || !l.Down
		r.RXBytes += l.Rx.Bytes
		r.TXBytes += l.Tx.Bytes
		r.Freezes += l.Rx.KernelFreezes
		r.Doorbell += l.Tx.Doorbells
		r.Retries += l.Tx.Retries
		r.addGate(l.Gate)
		addDrops(r.RXDrops, &l.Rx.Drops)
		addDrops(r.TXDrops, &l.Tx.Drops)
		if l.Gate != nil && l.Gate.Dropped != 0 {
			r.RX += l.Gate.Dropped // they came, if not as far as a socket
			r.RXDrops["gate"] += l.Gate.Dropped
		}
		if l.Rx.KernelDrops != 0 {
			r.RXDrops["kernel"] += l.Rx.KernelDrops
		}
	}
	if n := p.Untaken + p.Abandoned; n != 0 {
		r.RXDrops["closed"] += n
	}
	if p.Filtered != 0 {
		r.RXDrops["filter"] += p.Filtered
	}
	r.addSwitch(p.Switch)
	if p.NoLink != 0 {
		r.TXDrops["link"] += p.NoLink
	}
	return r
}

// newReport sums up s.
func newReport(s *forward.Stats, kind string, now time.Time, elapsed time.Duration) *report {
	r := &report{Type: kind, Time: now.UTC().Format(time.RFC3339Nano), Elapsed: elapsed.Seconds(), Copied: s.Copied, Drops: map[string]uint64{}}
	for i := range s.Ports {
		p := newPortReport(&s.Ports[i])
		r.Received += p.RX
		r.Forwarded += p.TX
		for _, m := range []map[string]uint64{p.RXDrops, p.TXDrops} {
			for c, n := range m {
				r.Drops[c] += n
				r.Dropped += n
			}
		}
		r.Ports = append(r.Ports, p)
	}
	for i := range s.Workers {
		r.Workers = append(r.Workers, newWorkerReport(&s.Workers[i]))
	}
	r.Pending = int64(r.Received + r.Copied - r.Forwarded - r.Dropped)
	return r
}

// rates fills in the rates since old, which was d earlier.
func (r *report) rates(old *report, d time.Duration) {
	s := d.Seconds()
	if s <= 0 {
		return
	}
	r.ReceivedPPS = float64(r.Received-old.Received) / s
	r.ForwardedPPS = float64(r.Forwarded-old.Forwarded) / s
	r.Bits = 8 * float64(r.txBytes()-old.txBytes()) / s
}

func (r *report) txBytes() (n uint64) {
	for i := range r.Ports {
		n += r.Ports[i].TXBytes
	}
	return n
}

func (r *report) json(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// text prints one line per direction of a wire, or per port of a switch.
func (r *report) text(w io.Writer, old *report, d time.Duration) error {
	var b strings.Builder
	for i := range r.Ports {
		if len(r.Ports) == 2 {
			r.direction(&b, old, i, d)
		} else {
			r.port(&b, old, i, d)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *report) direction(b *strings.Builder, old *report, i int, d time.Duration) {
	rx, tx := &r.Ports[i], &r.Ports[1-i]
	orx, otx := &old.Ports[i], &old.Ports[1-i]
	fmt.Fprintf(b, "%s > %s  %s  %s%s\n", rx.Name, tx.Name,
		rate(tx.TX-otx.TX, d, "pps"), rate(8*(tx.TXBytes-otx.TXBytes), d, "bit/s"),
		drops([]map[string]uint64{rx.RXDrops, tx.TXDrops}, []map[string]uint64{orx.RXDrops, otx.TXDrops}))
}

func (r *report) port(b *strings.Builder, old *report, i int, d time.Duration) {
	p, o := &r.Ports[i], &old.Ports[i]
	fmt.Fprintf(b, "%s  rx %s %s  tx %s %s%s\n", p.Name,
		rate(p.RX-o.RX, d, "pps"), rate(8*(p.RXBytes-o.RXBytes), d, "bit/s"),
		rate(p.TX-o.TX, d, "pps"), rate(8*(p.TXBytes-o.TXBytes), d, "bit/s"),
		drops([]map[string]uint64{p.RXDrops, p.TXDrops}, []map[string]uint64{o.RXDrops, o.TXDrops}))
}

// drops lists what the maps of now have more than those of old, by cause;
// nothing if there is none.
func drops(now, old []map[string]uint64) string {
	var parts []string
	causes := append([]string{"kernel", "gate"}, causeNames()...)
	for _, c := range causes {
		var n uint64
		for i := range now {
			n += now[i][c] - old[i][c]
		}
		if n != 0 {
			parts = append(parts, fmt.Sprintf("%s %d", c, n))
		}
	}
	if parts == nil {
		return ""
	}
	return "  dropped: " + strings.Join(parts, ", ")
}

func causeNames() []string {
	names := make([]string, 0, ring.NumCauses)
	for c := range ring.NumCauses {
		names = append(names, c.String())
	}
	return names
}

// rate writes n per d with a metric prefix.
func rate(n uint64, d time.Duration, unit string) string {
	v := float64(n) / max(d.Seconds(), 1e-9)
	for _, p := range []struct {
		scale float64
		name  string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= p.scale {
			return fmt.Sprintf("%7.2f %s%s", v/p.scale, p.name, unit)
		}
	}
	return fmt.Sprintf("%7.0f %s", v, unit)
}
