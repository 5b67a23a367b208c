package poll

import (
	"strings"
	"testing"
	"time"
)

// receiver is a machine whose core receives and forwards: each packet that the
// kernel receives costs recv, each one that the worker takes on costs fwd, and
// receiving goes first. Refusing at the gate costs the sender's core.
type receiver struct {
	recv, fwd time.Duration
	here      bool // the kernel receives on the worker's core
	stolen    int  // percent of the core that somebody else has

	now     time.Duration
	s       GateSample
	queue   float64 // in the ring
	on      bool
	budget  float64
	actions []GateVerdict
	super   bool
}

const receiverSlots = 8192

// window lets a window of the gate pass, with so many packets offered.
func (r *receiver) window(p *GatePolicy, in float64) {
	if r.on {
		pass := min(in, r.budget)
		r.s.Passed += uint64(pass)
		r.s.Refused += uint64(in - pass)
		in = pass
	}
	left := p.Window() * time.Duration(100-r.stolen) / 100
	if r.here {
		left -= time.Duration(float64(r.recv) * in)
	}
	stored := min(in, receiverSlots-r.queue)
	r.queue += stored
	done := min(r.queue, max(float64(left)/float64(r.fwd), 0))
	r.queue -= done
	r.s.Waiting = min(r.s.Waiting, int(r.queue))
	r.s.Delivered += uint64(done)
	r.s.Sent += uint64(done)
	r.s.Drops += uint64(in - stored)
	r.s.OnCore += uint64(done)
	if r.here {
		r.s.OnCore += uint64(in)
	}
}

// step lets d pass with an offered rate.
func (r *receiver) step(t *testing.T, p *GatePolicy, offered float64, d time.Duration) {
	t.Helper()
	r.s.Waiting, r.s.Slots = receiverSlots, receiverSlots
	for end := r.now + d; r.now < end; r.now += p.Window() {
		r.window(p, offered*p.Window().Seconds())
	}
	if r.super {
		r.s.Super++
	}
	r.s.Now = r.now
	v := p.Step(r.s)
	switch v.Action {
	case GateAttach:
		r.on = true
		r.actions = append(r.actions, v)
	case GateDetach:
		r.on = false
		r.actions = append(r.actions, v)
	}
	if v.Action != GateKeep && v.Why == "" {
		t.Error("an action without a reason")
	}
	if r.on != p.On() {
		t.Fatalf("the policy says on is %v, its verdicts %v", p.On(), r.on)
	}
	r.budget = float64(v.Budget)
}

func (r *receiver) run(t *testing.T, p *GatePolicy, offered float64, d time.Duration) (delivered float64) {
	t.Helper()
	before := r.s.Delivered
	for end := r.now + d; r.now < end; {
		r.step(t, p, offered, 20*time.Millisecond)
	}
	return float64(r.s.Delivered-before) / d.Seconds()
}

func mustPolicy(t *testing.T, c GateConfig) *GatePolicy {
	t.Helper()
	p, err := NewGatePolicy(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// With the gate goodput stays at its peak whatever is offered; without it, it
// falls to nothing.
func TestGateLivelock(t *testing.T) {
	const capacity = 1e9 / (500 + 1500)
	for _, times := range []float64{1.15, 1.3, 2, 4, 10} {
		r := &receiver{recv: 500, fwd: 1500, here: true}
		p := mustPolicy(t, GateConfig{})
		r.run(t, p, times*capacity, time.Second)
		drops := r.s.Drops
		got := r.run(t, p, times*capacity, 10*time.Second)
		if !r.on {
			t.Fatalf("%v times the capacity: no gate", times)
		}
		if got < 0.98*capacity {
			t.Errorf("%v times the capacity: delivered %.0f of %.0f", times, got, capacity)
		}
		if n := r.s.Drops - drops; n != 0 {
			t.Errorf("%v times the capacity: %d packets dropped behind the gate", times, n)
		}
		if most := int(capacity * 0.005); r.s.Waiting > most {
			t.Errorf("%v times the capacity: %d packets wait all the time, want at most %d", times, r.s.Waiting, most)
		}
		if len(r.actions) != 1 || !strings.Contains(r.actions[0].Why, "livelock") {
			t.Errorf("%v times the capacity: actions %+v, want one attach", times, r.actions)
		}
	}
}

// The capacity changes under way: the budget follows.
func TestGateFollows(t *testing.T) {
	r := &receiver{recv: 500, fwd: 1500, here: true}
	p := mustPolicy(t, GateConfig{})
	r.run(t, p, 2e6, 5*time.Second)
	for _, fwd := range []time.Duration{4500, 1000, 2000} {
		r.fwd = fwd
		capacity := 1e9 / float64(500+fwd)
		r.run(t, p, 2e6, 4*time.Second)
		if got := r.run(t, p, 2e6, 5*time.Second); got < 0.93*capacity || !r.on {
			t.Errorf("forwarding at %d ns: delivered %.0f of %.0f, gate %v", fwd, got, capacity, r.on)
		}
	}
}

// Somebody takes the core for a moment: soon after all is as before.
func TestGateDisturbed(t *testing.T) {
	const capacity = 1e9 / (500 + 1500)
	r := &receiver{recv: 500, fwd: 1500, here: true}
	p := mustPolicy(t, GateConfig{})
	r.run(t, p, 4*capacity, 3*time.Second)
	for range 5 {
		r.stolen = 80
		r.run(t, p, 4*capacity, 40*time.Millisecond)
		r.stolen = 0
		r.run(t, p, 4*capacity, 200*time.Millisecond)
		if got := r.run(t, p, 4*capacity, time.Second); got < 0.95*capacity || !r.on {
			t.Errorf("delivered %.0f of %.0f after a disturbance, gate %v", got, capacity, r.on)
		}
	}
}

func TestGateCalm(t *testing.T) {
	r := &receiver{recv: 500, fwd: 1500, here: true}
	p := mustPolicy(t, GateConfig{})
	r.run(t, p, 1e6, 3*time.Second)
	if !r.on {
		t.Fatal("no gate")
	}
	r.run(t, p, 1e5, 1900*time.Millisecond)
	if !r.on {
		t.Error("came off before the calm time")
	}
	r.run(t, p, 1e5, 200*time.Millisecond)
	if r.on || r.actions[len(r.actions)-1].Action != GateDetach {
		t.Error("did not come off after the calm time")
	}
	// Load that comes in waves: it stays on for longer each time.
	changes := len(r.actions)
	for range 30 {
		r.run(t, p, 1e6, 500*time.Millisecond)
		r.run(t, p, 1e5, 2500*time.Millisecond)
	}
	if n := len(r.actions) - changes; n > 8 {
		t.Errorf("%d changes in 90 s of waves", n)
	}
}

// A sender that keeps to what the gate lets through, and loses a frame now and
// then as TCP does, does not keep it up.
func TestGateFewRefused(t *testing.T) {
	const capacity = 1e9 / (500 + 1500)
	r := &receiver{recv: 500, fwd: 1500, here: true}
	p := mustPolicy(t, GateConfig{})
	r.run(t, p, 2*capacity, 3*time.Second)
	if !r.on {
		t.Fatal("no gate")
	}
	r.run(t, p, 1.03*capacity, 4*time.Second)
	if !r.on {
		t.Error("came off while 3 % were refused")
	}
	before := r.s.Refused
	r.run(t, p, 1.005*capacity, 5*time.Second)
	if r.s.Refused == before {
		t.Error("nothing was refused: the test shows nothing")
	}
	if r.on {
		t.Error("stays on while half a percent is refused")
	}
}

func TestGateNotNeeded(t *testing.T) {
	for _, v := range []struct {
		name    string
		r       receiver
		offered float64
	}{
		{"no load", receiver{recv: 500, fwd: 1500, here: true}, 0},
		{"load within the capacity", receiver{recv: 500, fwd: 1500, here: true}, 4.5e5},
		{"received on another core", receiver{recv: 500, fwd: 1500}, 3e6},
		{"TCP with offloads", receiver{recv: 500, fwd: 1500, here: true, super: true}, 2e6},
	} {
		p := mustPolicy(t, GateConfig{})
		if v.r.run(t, p, v.offered, 30*time.Second); len(v.r.actions) != 0 {
			t.Errorf("%s: %+v", v.name, v.r.actions)
		}
	}
}

// TCP that starts while the gate is on gets its super-frames back.
func TestGateYieldsToTCP(t *testing.T) {
	r := &receiver{recv: 500, fwd: 1500, here: true}
	p := mustPolicy(t, GateConfig{})
	r.run(t, p, 1e6, 3*time.Second)
	r.super = true
	r.run(t, p, 1e6, 3*time.Second)
	if r.on {
		t.Error("gate on while there are super-frames")
	}
}

// A gate that does not help comes off, and is tried ever less often.
func TestGateTrial(t *testing.T) {
	r := &receiver{recv: 1, fwd: 2000, here: true} // receiving costs nothing
	p := mustPolicy(t, GateConfig{})
	r.run(t, p, 1e6, 10*time.Minute)
	on, off := 0, 0
	for _, a := range r.actions {
		if a.Action == GateAttach {
			on++
		} else {
			off++
		}
	}
	if on == 0 || on != off || on > 8 {
		t.Errorf("%d attaches and %d detaches in ten minutes of a gate that does not help", on, off)
	}
}

func TestGateFailed(t *testing.T) {
	r := &receiver{recv: 500, fwd: 1500, here: true}
	p := mustPolicy(t, GateConfig{})
	tries := 0
	for range 5 * 60 * 50 {
		r.step(t, p, 1e6, 20*time.Millisecond)
		if r.on {
			tries++
			r.on = false
			p.Failed(r.now)
		}
	}
	if tries < 2 || tries > 8 {
		t.Errorf("tried %d times in five minutes", tries)
	}
}

// Counters that start anew and samples of no duration are no reason for
// anything.
func TestGateOddSamples(t *testing.T) {
	p := mustPolicy(t, GateConfig{})
	s := GateSample{Now: time.Second, Delivered: 1e6, Drops: 1e9, OnCore: 1e9}
	for i := range 20 {
		if v := p.Step(s); v.Action != GateKeep {
			t.Fatalf("sample %d of no duration: %+v", i, v)
		}
	}
	for i := range 20 {
		s.Now += 20 * time.Millisecond
		s.Drops /= 2
		s.OnCore /= 2
		if v := p.Step(s); v.Action != GateKeep {
			t.Fatalf("sample %d with counters that go back: %+v", i, v)
		}
	}
}

func TestGateConfigRefused(t *testing.T) {
	for _, c := range []GateConfig{{Window: time.Microsecond}, {Window: time.Second}, {Floor: -1}, {Calm: -1}, {Calm: 2 * time.Hour}} {
		if _, err := NewGatePolicy(c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}

func FuzzGatePolicy(f *testing.F) {
	f.Add([]byte{10, 200, 0, 0, 50, 10, 200, 0, 0, 50})
	f.Fuzz(func(t *testing.T, b []byte) {
		p := mustPolicy(t, GateConfig{})
		var s GateSample
		on := false
		for ; len(b) >= 5; b = b[5:] {
			s.Now += time.Duration(b[0]) * time.Millisecond
			s.Drops += uint64(b[1]) << 8
			s.Delivered += uint64(b[2]) << 8
			s.OnCore += uint64(b[3]) << 10
			s.Refused += uint64(b[4])
			s.Waiting, s.Slots = int(b[0])<<4, int(b[4])<<4
			s.Backlog += uint64(b[0])
			s.Passed += uint64(b[2]) << 8
			v := p.Step(s)
			if v.Action == GateAttach && on || v.Action == GateDetach && !on {
				t.Fatalf("%+v while on is %v", v, on)
			}
			on = p.On()
			if on && (v.Budget < 16 || v.Budget > maxBurst) {
				t.Fatalf("budget %d", v.Budget)
			}
		}
	})
}
