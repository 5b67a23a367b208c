package main

import (
	"testing"
	"time"

	"github.com/netring/netring/internal/netlab"
)

// flowFrames are udp frames of n flows, each several times.
func flowFrames(n, times int) (frames [][]byte) {
	for range times {
		for i := range n {
			f := demoFrame(80)
			putUint16(f[34:], uint16(1024+i)) // source port; the checksum is off
			frames = append(frames, f)
		}
	}
	return frames
}

// drainTap counts what a tap has got.
func drainTap(t *testing.T, w *tap) (n int) {
	for w.recv(t, silence) != nil {
		n++
	}
	return n
}

// A group of two links shares out what goes to it, each protocol in its way,
// moves all to one link when the other goes down, and adds up.
func TestLagg(t *testing.T) {
	const flows, times = 200, 5
	for _, tc := range []struct {
		opts     string
		both     bool // links carry traffic
		copies   int  // of each frame
		min, max int  // of 1000 frames on the first link
	}{
		{"proto=loadbalance,hash=l3+l4", true, 1, 400, 600},
		{"proto=roundrobin,stride=8", true, 1, 480, 520},
		{"proto=failover", false, 1, 1000, 1000},
		{"proto=broadcast", true, 2, 1000, 1000},
	} {
		t.Run(tc.opts, func(t *testing.T) {
			r := newRig(t, 3, netlab.VethOpts{})
			p := r.startArgs("--json", "-i", "p1", "-i", "lagg:p2+p3@lagg:"+tc.opts)
			taps := r.taps()
			frames := flowFrames(flows, times)
			for _, f := range frames {
				taps[0].send(t, f)
			}
			first, second := drainTap(t, taps[1]), drainTap(t, taps[2])
			if first+second != tc.copies*len(frames) || first < tc.min || first > tc.max {
				t.Errorf("%d frames went out as %d and %d", len(frames), first, second)
			}
			r.ok(r.NS("dut").Down("p2"))
			p.await("link is down")
			for _, f := range frames {
				taps[0].send(t, f)
			}
			if first, second = drainTap(t, taps[1]), drainTap(t, taps[2]); first != 0 || second != len(frames) {
				t.Errorf("with one link down, %d frames went out as %d and %d", len(frames), first, second)
			}
			final := p.stop()
			if final.Received+final.Copied != final.Forwarded+final.Dropped || final.Pending != 0 {
				t.Errorf("totals do not add up: %+v", final)
			}
			if want := uint64((tc.copies - 1) * len(frames)); final.Copied != want {
				t.Errorf("copied %d, want %d", final.Copied, want)
			}
		})
	}
}

// Under failover only the link in use delivers, unless all may.
func TestLaggReceive(t *testing.T) {
	for _, tc := range []struct {
		opts string
		want int
	}{{"proto=failover", 0}, {"proto=failover,rx-all=on", 1}, {"proto=loadbalance", 1}} {
		t.Run(tc.opts, func(t *testing.T) {
			r := newRig(t, 3, netlab.VethOpts{})
			p := r.startArgs("--json", "-i", "p1", "-i", "lagg:p2+p3@lagg:"+tc.opts)
			taps := r.taps()
			for i, w := range taps[1:] {
				w.send(t, frame(macB, macA, untagged, 60, i))
			}
			if got := drainTap(t, taps[0]); got != 1+tc.want {
				t.Errorf("%d frames delivered, want %d", got, 1+tc.want)
			}
			final := p.stop()
			if final.Drops["filter"] != uint64(1-tc.want) || final.Received != 2 || final.Pending != 0 {
				t.Errorf("totals %+v", final)
			}
		})
	}
}

// All links down: nothing is lost without a count.
func TestLaggNoLink(t *testing.T) {
	r := newRig(t, 3, netlab.VethOpts{})
	p := r.startArgs("--json", "-i", "p1", "-i", "lagg:p2+p3")
	taps := r.taps()
	r.ok(r.NS("dut").Down("p2"))
	p.await("port=p2")
	r.ok(r.NS("dut").Down("p3"))
	p.await("port=p3")
	for i := range 10 {
		taps[0].send(t, frame(macB, macA, untagged, 60, i))
	}
	time.Sleep(silence)
	final := p.stop()
	if final.Received != 10 || final.Drops["link"] != 10 || final.Pending != 0 {
		t.Errorf("totals %+v", final)
	}
}
