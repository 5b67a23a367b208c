package poll

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

// vector is one case of testdata/vectors: see the rule at the type under test.
type vector struct {
	Name      string
	HZ        int
	Burst     int
	BurstMin  int `json:"burst_min"`
	BurstMax  int `json:"burst_max"`
	EachBurst int `json:"each_burst"`
	UserFrac  int `json:"user_frac"`
	RegFrac   int `json:"reg_frac"`
	Steps     []struct {
		Op        string
		AtUs      int64 `json:"at_us"`
		ChunkCost int64 `json:"chunk_cost_us"`
		Want      map[string]any
	}
}

// runPass works off everything that is scheduled; each chunk costs cost.
func runPass(c *Controller, now, cost time.Duration) (chunks []any) {
	for {
		n, check := c.Begin(now)
		if n == 0 {
			return chunks
		}
		chunks = append(chunks, []any{float64(n), check})
		now += cost
		c.End(now)
	}
}

func TestControllerVectors(t *testing.T) {
	files, err := filepath.Glob("testdata/vectors/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors: %v", err)
	}
	cases := 0
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var vs []vector
		if err := json.Unmarshal(b, &vs); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		for _, v := range vs {
			cases++
			t.Run(v.Name, func(t *testing.T) { v.run(t) })
		}
	}
	if cases == 0 {
		t.Fatal("no cases")
	}
}

func (v *vector) run(t *testing.T) {
	c, err := NewController(ControllerConfig{HZ: v.HZ, Burst: v.Burst, BurstMin: v.BurstMin, BurstMax: v.BurstMax,
		EachBurst: v.EachBurst, UserFrac: v.UserFrac, RegFrac: v.RegFrac})
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range v.Steps {
		at := time.Duration(s.AtUs) * time.Microsecond
		var chunks []any
		switch s.Op {
		case "tick":
			c.Tick(at)
		case "run":
			chunks = runPass(c, at, time.Duration(s.ChunkCost)*time.Microsecond)
		default:
			t.Fatalf("step %d: unknown op %q", i, s.Op)
		}
		n := c.Counts()
		state := map[string]any{"pending": float64(n.Pending), "lost": float64(n.Lost), "suspect": float64(n.Suspect),
			"stalled": float64(n.Stalled), "short": float64(n.Short), "burst": float64(n.Burst), "chunks": chunks}
		for k, want := range s.Want {
			got, ok := state[k]
			if !ok {
				t.Fatalf("step %d: no %q in the state", i, k)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("step %d (%s at %d us): %s is %v, want %v\nstate %v\nwant  %v", i, s.Op, s.AtUs, k, got, want, state, s.Want)
			}
		}
	}
}

func mustController(t testing.TB, cfg ControllerConfig) *Controller {
	t.Helper()
	c, err := NewController(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The tables of the original: a ramp of one packet a tick, the threshold, the
// cut by an eighth, ticks that nobody works off.
func TestControllerRamp(t *testing.T) {
	c := mustController(t, ControllerConfig{HZ: 1000, Burst: 5, BurstMin: 1, BurstMax: 150, EachBurst: 5, UserFrac: 50})
	at := map[int]int{1: 6, 2: 7, 9: 14, 144: 149, 145: 150, 200: 150}
	for i := 1; i <= 200; i++ {
		now := time.Duration(i) * time.Millisecond
		c.Tick(now)
		runPass(c, now, 0)
		if want, ok := at[i]; ok && c.Counts().Burst != want {
			t.Errorf("burst after tick %d is %d, want %d", i, c.Counts().Burst, want)
		}
	}
}

func TestControllerThreshold(t *testing.T) {
	for _, v := range []struct{ frac, us, want int }{
		{50, 0, 21}, {50, 499, 21}, {50, 509, 21}, {50, 510, 19}, {50, 1010, 19}, {0, 1009, 21}, {0, 1010, 19}, {99, 10, 21}, {99, 499, 19},
		// 2.2 s and more: 32-bit products turn over here and raise the burst.
		{50, 2_200_000, 19}, {50, 2_100_000_000, 19},
	} {
		c := mustController(t, ControllerConfig{HZ: 1000, Burst: 20, BurstMin: 1, EachBurst: 20, UserFrac: v.frac})
		c.Tick(time.Millisecond)
		runPass(c, 0, time.Duration(v.us)*time.Microsecond)
		if got := c.Counts().Burst; got != v.want {
			t.Errorf("user_frac %d, %d us: burst %d, want %d", v.frac, v.us, got, v.want)
		}
	}
}

func TestControllerBacklog(t *testing.T) {
	for _, v := range []struct{ before, min, after int }{
		{150, 1, 131}, {64, 1, 56}, {16, 1, 14}, {9, 1, 7}, {8, 1, 7}, {2, 1, 1}, {1, 1, 1}, {64, 60, 60},
	} {
		c := mustController(t, ControllerConfig{HZ: 1000, Burst: v.before, BurstMin: v.min, BurstMax: 150, EachBurst: v.before, UserFrac: 50})
		c.Tick(time.Millisecond)
		c.Begin(0)
		c.Ticks(4*time.Millisecond, 3)
		c.End(4 * time.Millisecond)
		if n := c.Counts(); n.Burst != v.after || n.Pending != 3 || n.Lost != 3 || n.Suspect != 0 {
			t.Errorf("burst %d, floor %d: %+v, want burst %d, 3 pending and lost", v.before, v.min, n, v.after)
		}
	}
}

func TestControllerStall(t *testing.T) {
	c := mustController(t, ControllerConfig{HZ: 1000})
	want := map[int]ControllerCounts{1: {Pending: 1}, 3: {Pending: 3, Lost: 2, Suspect: 2}, 101: {Pending: 101, Lost: 100, Suspect: 100},
		102: {Pending: 1, Lost: 100, Suspect: 100, Stalled: 1}, 203: {Pending: 1, Lost: 200, Suspect: 200, Stalled: 2}}
	for i := 1; i <= 203; i++ {
		c.Tick(time.Duration(i) * time.Millisecond)
		if w, ok := want[i]; ok {
			w.Burst = c.Counts().Burst
			if got := c.Counts(); got != w {
				t.Errorf("tick %d: %+v, want %+v", i, got, w)
			}
		}
	}
}

// A pause, however long, leaves one pass to do.
func TestControllerPause(t *testing.T) {
	for _, n := range []uint64{101, 1000, 1 << 40, math.MaxUint64} {
		c := mustController(t, ControllerConfig{HZ: 1000, EachBurst: 16, BurstMin: 16})
		c.Tick(time.Millisecond)
		c.Begin(0)
		c.Ticks(time.Hour, n)
		c.End(0)
		if got := c.Counts(); got.Stalled != 1 || got.Pending != 0 || got.Lost != 0 {
			t.Errorf("pause of %d ticks: %+v, want one stall and nothing left", n, got)
		}
		c.Tick(time.Hour + time.Millisecond)
		if got := len(runPass(c, 0, 0)); got != 2 { // 17 packets
			t.Errorf("pause of %d ticks: %d chunks on the next tick, want 2", n, got)
		}
	}
}

func TestControllerShort(t *testing.T) {
	c := mustController(t, ControllerConfig{HZ: 1000})
	for _, v := range []struct {
		us   int
		want uint64
	}{{1000, 0}, {1400, 1}, {2000, 1}, {2499, 2}, {2500, 2}, {3000, 2}, {3400, 3}, {3499, 4}, {3600, 4}} {
		c.Tick(time.Duration(v.us) * time.Microsecond)
		if got := c.Counts().Short; got != v.want {
			t.Errorf("at %d us: %d short, want %d", v.us, got, v.want)
		}
	}
}

func TestControllerConfigRefused(t *testing.T) {
	for _, c := range []ControllerConfig{
		{HZ: -1}, {HZ: maxHZ + 1}, {BurstMax: maxBurst + 1}, {BurstMin: 20, BurstMax: 10}, {Burst: 5, BurstMin: 10}, {Burst: 20, BurstMax: 10},
		{EachBurst: 11, BurstMax: 10}, {EachBurst: -1}, {UserFrac: 100}, {UserFrac: -1}, {RegFrac: -1}, {RegFrac: 101, HZ: 100},
	} {
		if _, err := NewController(c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
	if _, err := NewController(ControllerConfig{}); err != nil {
		t.Errorf("the zero value was refused: %v", err)
	}
}

// slow is the rule written down once more, differently: an explicit list of
// outstanding ticks, big steps, no shared arithmetic.
type slow struct {
	cfg                     ControllerConfig
	burst, reg, left        int
	outstanding             []bool // for each tick: has its pass begun
	accepted, began         float64
	short, lost, susp, stal uint64
}

func (s *slow) tick(ns float64) {
	if (ns-s.accepted)/1e9*float64(s.cfg.HZ) < 0.5 {
		s.short++
	} else {
		s.accepted = ns
	}
	if len(s.outstanding) > 100 {
		s.stal++
		s.outstanding = nil
	}
	if len(s.outstanding) > 0 {
		s.lost++
		if !s.outstanding[0] {
			s.susp++
		}
	}
	s.outstanding = append(s.outstanding, false)
}

func (s *slow) begin(ns float64) (int, bool) {
	if len(s.outstanding) == 0 {
		return 0, false
	}
	check := false
	if s.left == 0 {
		s.began, s.left = ns, s.burst
		s.reg++
		if s.reg%s.cfg.RegFrac == 0 {
			check = true
		}
	}
	s.outstanding[0] = true
	n := s.left
	if n > s.cfg.EachBurst {
		n = s.cfg.EachBurst
	}
	s.left -= n
	return n, check
}

func (s *slow) end(ns float64) {
	if s.left > 0 {
		return
	}
	percent := math.Floor((ns - s.began) * float64(s.cfg.HZ) / 1e7)
	steps := []int{1}
	if percent > float64(100-s.cfg.UserFrac) {
		steps[0] = -1
	}
	began := false
	if len(s.outstanding) > 0 {
		began = s.outstanding[0]
		s.outstanding = s.outstanding[1:]
	}
	if len(s.outstanding) > 0 {
		s.outstanding[0] = began // a restart is no new schedule
		steps = append(steps, 0)
	}
	for i, d := range steps {
		if i == 1 {
			d = -(s.burst / 8)
		}
		s.burst += d
		if s.burst < s.cfg.BurstMin {
			s.burst = s.cfg.BurstMin
		}
		if s.burst > s.cfg.BurstMax {
			s.burst = s.cfg.BurstMax
		}
	}
}

func FuzzController(f *testing.F) {
	f.Add(uint16(1000), uint16(1), uint16(150), uint16(5), uint8(50), uint8(20), []byte{0, 0, 1, 1, 2, 9, 0, 7, 1, 200, 2, 255})
	f.Add(uint16(100), uint16(10), uint16(20), uint16(20), uint8(0), uint8(1), []byte{0, 255, 0, 255, 0, 255, 1, 0, 2, 0})
	f.Add(uint16(2000), uint16(5), uint16(5), uint16(3), uint8(99), uint8(3), []byte{3, 0, 1, 1, 2, 1})
	f.Fuzz(func(t *testing.T, hz, low, high, each uint16, user, reg uint8, ops []byte) {
		cfg := ControllerConfig{HZ: int(hz), BurstMin: int(low), BurstMax: int(high), EachBurst: int(each), UserFrac: int(user), RegFrac: int(reg)}
		c, err := NewController(cfg)
		if err != nil {
			return
		}
		s := &slow{cfg: c.Config(), burst: c.Config().Burst}
		var now time.Duration
		open := false
		for i := 0; i+1 < len(ops); i += 2 {
			// Quarters of a tick, a whole number of microseconds.
			now += time.Duration(ops[i+1]) * (c.Period() / 4).Truncate(time.Microsecond)
			switch op := ops[i] % 4; {
			case op == 0:
				c.Tick(now)
				s.tick(float64(now))
			case op == 3: // a hundred and more ticks that nobody worked off
				for range int(ops[i+1]) {
					now += c.Period()
					c.Tick(now)
					s.tick(float64(now))
				}
			case !open:
				n, check := c.Begin(now)
				m, check2 := s.begin(float64(now))
				if n != m || check != check2 {
					t.Fatalf("op %d: chunk %d %v, want %d %v", i/2, n, check, m, check2)
				}
				open = n > 0
			default:
				open = false
				c.End(now)
				s.end(float64(now))
			}
			want := ControllerCounts{Short: s.short, Lost: s.lost, Suspect: s.susp, Stalled: s.stal, Pending: uint64(len(s.outstanding)), Burst: s.burst}
			if got := c.Counts(); got != want {
				t.Fatalf("op %d at %v: %+v, want %+v", i/2, now, got, want)
			}
		}
	})
}

func BenchmarkController(b *testing.B) {
	c := mustController(b, ControllerConfig{UserFrac: 50})
	b.ReportAllocs()
	var at time.Duration
	for b.Loop() {
		at += time.Millisecond
		c.Tick(at)
		for {
			if n, _ := c.Begin(at); n == 0 {
				break
			}
			c.End(at)
		}
	}
	b.ReportMetric(float64(c.Counts().Burst)/64, "chunks/op")
}

func ExampleController() {
	c, err := NewController(ControllerConfig{HZ: 1000, Burst: 12, BurstMin: 5, EachBurst: 5, UserFrac: 50})
	if err != nil {
		fmt.Println(err)
		return
	}
	c.Tick(time.Millisecond)
	for {
		budget, _ := c.Begin(0)
		if budget == 0 {
			break
		}
		fmt.Println(budget) // every handler may move this many packets
		c.End(200 * time.Microsecond)
	}
	fmt.Println("next:", c.Counts().Burst)
	// Output:
	// 5
	// 5
	// 2
	// next: 13
}
