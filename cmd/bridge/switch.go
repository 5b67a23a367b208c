package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/netring/netring/internal/cli"
	"github.com/netring/netring/nm/vale"
)

func (c *config) switchFlags(f *pflag.FlagSet) {
	f.BoolVar(&c.fdb, "fdb", false, "print the switch's address table at the end and on SIGUSR1")
	f.DurationVar(&c.table.Ageing, "ageing", vale.DefaultAgeing, "how long the switch keeps an address that is not seen any more")
	f.IntVar(&c.table.Addresses, "addresses", vale.DefaultAddresses, "most addresses that the switch keeps; frames to others are flooded")
}

// validateSwitch looks at the flags that are for three or more ports.
func (c *config) validateSwitch() error {
	switch {
	case c.fdb && len(c.ports) < 3:
		return cli.Usagef("--fdb: two ports are a wire, which has no address table; name three or more")
	case c.table.Ageing <= 0:
		return cli.Usagef("--ageing %v: must be above 0", c.table.Ageing)
	case c.table.Addresses < 1:
		return cli.Usagef("--addresses %d: must be at least 1", c.table.Addresses)
	}
	if err := c.table.Validate(); err != nil {
		return &cli.UsageError{Err: err}
	}
	return nil
}

// fdbSignal delivers the requests to print the address table, of a bridge that
// has one, until stop is called.
func fdbSignal(t *vale.Table) (requests <-chan os.Signal, stop func()) {
	if t == nil {
		return nil, func() {}
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR1)
	return c, func() { signal.Stop(c) }
}

// fdbReport is the address table as --json prints it.
type fdbReport struct {
	Type      string     `json:"type"` // "fdb"
	Time      string     `json:"time"`
	Learned   uint64     `json:"learned"`
	Moved     uint64     `json:"moved"`
	Aged      uint64     `json:"aged"`
	Refused   uint64     `json:"refused"`
	Addresses []fdbEntry `json:"addresses"`
}

type fdbEntry struct {
	MAC  string  `json:"mac"`
	Port string  `json:"port"`
	Age  float64 `json:"age_seconds"`
}

// switchReport is what a switch did with the frames of one port.
type switchReport struct {
	Flooded uint64            `json:"flooded_packets"`
	Dropped map[string]uint64 `json:"dropped"` // by the switch's own causes
}

// addSwitch enters what a switch dropped under the causes of all drops, and by
// its own.
func (r *portReport) addSwitch(s *vale.PortStats) {
	if s == nil {
		return
	}
	r.Switch = &switchReport{Flooded: s.Flooded, Dropped: map[string]uint64{}}
	for c, n := range s.Drops {
		if n != 0 {
			r.RXDrops[vale.Cause(c).Ring().String()] += n
			r.Switch.Dropped[strings.ReplaceAll(vale.Cause(c).String(), " ", "_")] += n
		}
	}
}

// newFDBReport reads the table; ports are the names by number.
func newFDBReport(t *vale.Table, ports []string, now time.Time) *fdbReport {
	st := t.Stats()
	r := &fdbReport{
		Type: "fdb", Time: now.UTC().Format(time.RFC3339Nano), Addresses: []fdbEntry{},
		Learned: st.Learned, Moved: st.Moved, Aged: st.Aged, Refused: st.Refused,
	}
	for _, e := range t.Entries() {
		if int(e.Port) >= len(ports) {
			continue
		}
		r.Addresses = append(r.Addresses, fdbEntry{MAC: e.MAC.String(), Port: ports[e.Port], Age: math.Round(e.Age.Seconds()*10) / 10})
	}
	return r
}

func (r *fdbReport) json(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// text prints one line per address and a sum.
func (r *fdbReport) text(w io.Writer) error {
	var b strings.Builder
	for _, e := range r.Addresses {
		fmt.Fprintf(&b, "fdb %s  %s  seen %.1f s ago\n", e.MAC, e.Port, e.Age)
	}
	fmt.Fprintf(&b, "fdb %d addresses; learned %d, moved %d, aged %d, refused %d\n", len(r.Addresses), r.Learned, r.Moved, r.Aged, r.Refused)
	_, err := io.WriteString(w, b.String())
	return err
}

// printFDB prints the address table of a bridge that has one.
func (s *session) printFDB() {
	t := s.b.Table()
	if t == nil {
		return
	}
	st := s.b.Stats()
	names := make([]string, len(st.Ports))
	for i := range st.Ports {
		names[i] = st.Ports[i].Name
	}
	r := newFDBReport(t, names, time.Now())
	if s.json {
		_ = r.json(s.out)
	} else {
		_ = r.text(s.out)
	}
}
