package main

import (
	"testing"

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
			t.Parallel()
			r := newRig(t, 3, netlab.VethOpts{})
			p := r.startArgs("--json", "-i", "p1", "-i", "lagg:p2+p3@lagg:"+tc.opts)
			taps := r.taps()
			frames := flowFrames(flows, times)
			for _, f := range frames {
				taps[0].send(t, f)
			}
			got := gather(t, tc.copies*len(frames), taps[1:]...)
			if got[0] < tc.min || got[0] > tc.max {
				t.Errorf("%d frames went out as %d", len(frames), got)
			}
			r.ok(r.NS("dut").Down("p2"))
			p.await("link is down")
			for _, f := range frames {
				taps[0].send(t, f)
			}
			if got := gather(t, len(frames), taps[1:]...); got[0] != 0 {
				t.Errorf("with one link down, %d frames went out as %d", len(frames), got)
			}
			final := p.stop()
			empty(t, taps...)
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
			t.Parallel()
			r := newRig(t, 3, netlab.VethOpts{})
			p := r.startArgs("--json", often, "-i", "p1", "-i", "lagg:p2+p3@lagg:"+tc.opts)
			taps := r.taps()
			for i, w := range taps[1:] {
				w.send(t, frame(macB, macA, untagged, 60, i))
			}
			gather(t, 1+tc.want, taps[0])
			p.until("both frames", func(r *report) bool { return r.Received == 2 && r.Pending == 0 })
			final := p.stop()
			empty(t, taps...)
			if final.Drops["filter"] != uint64(1-tc.want) || final.Received != 2 || final.Pending != 0 {
				t.Errorf("totals %+v", final)
			}
		})
	}
}

// All links down: nothing is lost without a count.
func TestLaggNoLink(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, netlab.VethOpts{})
	p := r.startArgs("--json", often, "-i", "p1", "-i", "lagg:p2+p3")
	taps := r.taps()
	r.ok(r.NS("dut").Down("p2"))
	p.await("port=p2")
	r.ok(r.NS("dut").Down("p3"))
	p.await("port=p3")
	for i := range 10 {
		taps[0].send(t, frame(macB, macA, untagged, 60, i))
	}
	p.received(10)
	final := p.stop()
	if final.Received != 10 || final.Drops["link"] != 10 || final.Pending != 0 {
		t.Errorf("totals %+v", final)
	}
}
