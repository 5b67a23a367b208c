package lagg

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// vectors runs f on every case of a file of testdata/vectors.
func vectors[T any](t *testing.T, file string, f func(t *testing.T, c T)) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "vectors", file+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []json.RawMessage
	if err := json.Unmarshal(raw, &cases); err != nil || len(cases) == 0 {
		t.Fatalf("%s: %d cases, %v", file, len(cases), err)
	}
	for _, one := range cases {
		var c T
		var name struct{ Name string }
		dec := json.NewDecoder(strings.NewReader(string(one)))
		if err := dec.Decode(&c); err != nil {
			t.Fatalf("%s: %v in %s", file, err, one)
		}
		if err := json.Unmarshal(one, &name); err != nil || name.Name == "" {
			t.Fatalf("%s: a case without a name: %s", file, one)
		}
		t.Run(name.Name, func(t *testing.T) { f(t, c) })
	}
}

func bits(s string) []bool {
	b := make([]bool, len(s))
	for i := range b {
		b[i] = s[i] == '1'
	}
	return b
}

func indexes(b []bool) (is []int) {
	for i, x := range b {
		if x {
			is = append(is, i)
		}
	}
	return is
}

func TestLinkActive(t *testing.T) {
	type vector struct {
		Active string
		Want   []int
	}
	vectors(t, "linkactive", func(t *testing.T, c vector) {
		for asked, want := range c.Want {
			if got := LinkActive(bits(c.Active), asked); got != want {
				t.Errorf("asked for %d: got %d, want %d", asked, got, want)
			}
		}
	})
	if got := LinkActive([]bool{false, true}, -1); got != 1 {
		t.Errorf("none asked for: got %d", got)
	}
}

// TestRoundRobin: by the rule of this package (live members only), and, as a
// check of LinkActive, by lagg(4)'s, which counts all members.
func TestRoundRobin(t *testing.T) {
	type vector struct {
		Active, Rule  string
		Stride, Start uint32
		Want          []int
	}
	vectors(t, "roundrobin", func(t *testing.T, c vector) {
		active := bits(c.Active)
		live := indexes(active)
		var s Sequence
		s.Take(c.Start)
		for i, want := range c.Want {
			seq := s.Take(1)
			var got int
			if c.Rule == "lagg" {
				got, _ = At(seq, c.Stride, len(active))
				got = LinkActive(active, got)
			} else {
				got, _ = At(seq, c.Stride, len(live))
				got = live[got]
			}
			if got != want {
				t.Errorf("packet %d: member %d, want %d", i, got, want)
			}
		}
	})
}

func TestMix(t *testing.T) {
	type vector struct{ X, Want string }
	vectors(t, "mix", func(t *testing.T, c vector) {
		if got := Mix(hex(t, c.X)); got != hex(t, c.Want) {
			t.Errorf("mix(%s) = %x, want %s", c.X, got, c.Want)
		}
	})
}

func hex(t *testing.T, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestRendezvous(t *testing.T) {
	type vector struct{ Live, Want []int }
	vectors(t, "rendezvous", func(t *testing.T, c vector) {
		for flow, want := range c.Want {
			if got := Rendezvous(uint64(flow), c.Live, nil); got != want {
				t.Errorf("flow %d: member %d, want %d", flow, got, want)
			}
			if got := Rendezvous(uint64(flow), c.Live, []uint32{7, 7, 7, 7}); got != want {
				t.Errorf("flow %d, equal weights: member %d, want %d", flow, got, want)
			}
		}
	})
	if Rendezvous(1, nil, nil) != -1 {
		t.Error("a member out of none")
	}
}

func TestFailover(t *testing.T) {
	type vector struct {
		Primary, Sender int
		Active, Accept  string
	}
	vectors(t, "failover", func(t *testing.T, c vector) {
		for _, rxAll := range []bool{false, true} {
			g := group(t, 3, Options{Primary: c.Primary, RxAll: rxAll, HoldDown: -1})
			for i, up := range bits(c.Active) {
				g.SetLink(i, up, 1)
			}
			if got := g.snap.Load().sender; got != c.Sender {
				t.Errorf("sender %d, want %d", got, c.Sender)
			}
			for i, want := range bits(c.Accept) {
				if g.Accepts(i) != (want || rxAll) {
					t.Errorf("rx-all %v: input of %d accepted: %v", rxAll, i, g.Accepts(i))
				}
			}
		}
	})
	for _, p := range []Proto{RoundRobin, LoadBalance, Broadcast} {
		g := group(t, 3, Options{Proto: p})
		g.SetLink(1, true, 1)
		for i := range 3 {
			if !g.Accepts(i) {
				t.Errorf("%v: input of %d is not accepted", p, i)
			}
		}
	}
}
