package nm_test

import (
	"testing"
	"time"

	"github.com/netring/netring/nm"
	"github.com/netring/netring/ring/xdp"
)

// What a port's name says of rings reaches the driver; the rest stays as given.
func TestXDPOptions(t *testing.T) {
	for name, want := range map[string][3]int{ // receive slots, transmit slots, queues
		"xdp:a":                                             {512, 0, 0},
		"xdp:a@conf:slots=64":                               {64, 64, 0},
		"xdp:a@conf:rx-slots=64":                            {64, 0, 0},
		"xdp:a@conf:tx-slots=32":                            {512, 32, 0},
		"xdp:a@conf:slots=64,tx-slots=32":                   {64, 32, 0},
		"xdp:a@conf:rings=2":                                {512, 0, 2},
		"xdp:a-3":                                           {512, 0, 1},
		"xdp:a@conf:rx-rings=2":                             {},
		"xdp:a@conf:tx-rings=2":                             {},
		"xdp:a-3@conf:rings=2":                              {},
		"xdp:a@conf:rings=2,tx-rings=3":                     {},
		"xdp:a@conf:rx-rings=2,tx-rings=2":                  {512, 0, 2},
		"xdp:a@conf:rx-slots=8,tx-slots=4@xdp:mode=generic": {8, 4, 0},
	} {
		p, err := nm.ParsePort(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		x, err := p.XDPOptions(xdp.Options{Slots: 512})
		if got := [3]int{x.Slots, x.TxSlots, len(x.Queues)}; err == nil && got != want || (err != nil) != (want == [3]int{}) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, want)
		}
	}
	for name, want := range map[string]time.Duration{
		"xdp:a": 0, "xdp:a@xdp:coalesce=off": -1, "xdp:a@xdp:mode=auto,coalesce=50us": 50 * time.Microsecond,
	} {
		p, err := nm.ParsePort(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if x, err := p.XDPOptions(xdp.Options{}); err != nil || x.Coalesce != want {
			t.Errorf("%s: gathers for %v, %v; want %v", name, x.Coalesce, err, want)
		}
	}
}
