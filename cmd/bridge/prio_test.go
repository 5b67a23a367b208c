package main

import (
	"encoding/binary"
	"fmt"
	"os/exec"
	"slices"
	"testing"

	"github.com/netring/netring/internal/netlab"
)

// segment is an IPv4 packet of the protocol and type of service between ports,
// with n bytes of payload.
func segment(proto, tos byte, src, dst uint16, flags byte, n int) []byte {
	l4 := make([]byte, 8)
	if proto == 6 {
		l4 = make([]byte, 20)
		l4[12], l4[13] = 5<<4, flags
	}
	binary.BigEndian.PutUint16(l4, src)
	binary.BigEndian.PutUint16(l4[2:], dst)
	ip := make([]byte, 20)
	ip[0], ip[1], ip[8], ip[9] = 0x45, tos, 64, proto
	binary.BigEndian.PutUint16(ip[2:], uint16(20+len(l4)+n))
	copy(ip[12:], []byte{192, 0, 2, 1, 192, 0, 2, 2})
	return append(append(append([]byte{0x08, 0x00}, ip...), l4...), make([]byte, n)...)
}

// ofType is the start of a frame of an EtherType.
func ofType(t uint16) []byte { return binary.BigEndian.AppendUint16(nil, t) }

// dam holds up what the bridge sends through the second port, until it is
// broken.
type dam struct {
	r   *rig
	tap *tap
}

func newDam(r *rig) *dam {
	if _, err := exec.LookPath("tc"); err != nil {
		netlab.Skip(r.t, "tc is not installed: apt-get install iproute2")
	}
	d := &dam{r: r, tap: openTap(r.t, r.NS("dut"), "p2")}
	d.rate("add", "8bit")
	return d
}

func (d *dam) rate(verb, rate string) {
	d.r.t.Helper()
	_, err := d.r.NS("dut").Exec("tc", "qdisc", verb, "dev", "p2", "root", "tbf", "rate", rate, "burst", "1600", "limit", "16mb")
	d.r.ok(err)
}

// open lets everything through; a frame of the dam's own sets it going.
func (d *dam) open() []byte {
	d.rate("change", "1gbit")
	kick := frame(macB, macA, untagged, 60, 99)
	d.tap.send(d.r.t, kick)
	return kick
}

// Frames that a rule matches leave before those that have waited longer; each
// level is counted.
func TestPriority(t *testing.T) {
	t.Parallel()
	const bulk, wait = 30, 0x88b6
	first := map[string][]byte{
		"pure ack":  segment(6, 0, 40000, 80, 0x10, 0),
		"syn":       segment(6, 0, 40001, 80, 0x02, 0),
		"dscp":      segment(17, 46<<2, 5000, 5000, 0, 20),
		"udp":       segment(17, 0, 53, 40000, 0, 20),
		"tcp":       segment(6, 0, 40000, 22, 0x18, 20),
		"ethertype": ofType(0x8809),
		"tagged":    append([]byte{0x81, 0x00, 0x00, 0x05}, segment(17, 46<<2, 1, 2, 0, 20)...),
	}
	later := map[string][]byte{
		"ack with data": segment(6, 0, 40000, 80, 0x10, 20),
		"another dscp":  segment(17, 40<<2, 5000, 5000, 0, 20),
		"another type":  ofType(wait),
	}
	r := newRig(t, 2, netlab.VethOpts{Offloads: map[string]bool{"tx-vlan-hw-insert": false}})
	d := newDam(r)
	p := r.start("--json", often, "--prio", "dscp=46", "--prio", "ethertype=lacp", "--prio", "udp=53", "--prio", "tcp=22")
	taps := r.taps()
	for i := range bulk {
		taps[0].send(t, frame(macB, macA, untagged, 1000, i))
	}
	// A host may send something of its own: only what the test made counts.
	made := map[string]string{}
	for _, m := range []map[string][]byte{later, first} { // those with priority come last
		for name, head := range m {
			f := frame(macB, macA, head, max(60, 12+len(head)), 7)
			made[string(f)] = name
			taps[0].send(t, f)
		}
	}
	all := p.until("all frames, waiting", func(r *report) bool {
		return r.Received == uint64(bulk+len(made)) && r.Ports[1].Queue.Waiting > bulk/2
	})
	if q := all.Ports[1].Queue; q.Priority != uint64(len(first)) || q.WaitingPriority != uint64(len(first)) || q.WaitingPriorityBytes == 0 {
		t.Errorf("counted with priority %+v, want %d", q, len(first))
	}
	kick := d.open()
	var order []string
	for range bulk + len(made) + 1 {
		f := taps[1].recv(t, patience)
		if name := made[string(f)]; name != "" {
			order = append(order, name)
		} else if !slices.Equal(f, kick) {
			order = append(order, "bulk")
		}
	}
	checkOrder(t, order, bulk, first, later)
	final := p.stop()
	if q := final.Ports[1].Queue; q.WaitingPriority != 0 || q.Priority != uint64(len(first)) || final.Dropped != 0 {
		t.Errorf("totals %+v", final)
	}
}

// checkOrder wants the bulk before which nothing waited, then all of first,
// then the rest of the bulk, then all of later.
func checkOrder(t *testing.T, order []string, bulk int, first, later map[string][]byte) {
	t.Helper()
	isFirst := func(name string) bool { return first[name] != nil }
	from := slices.IndexFunc(order, isFirst)
	if from < 0 || from > bulk/2 || from+len(first) > len(order) {
		t.Fatalf("frames with priority from place %d of %v", from, order)
	}
	for _, name := range order[from : from+len(first)] {
		if !isFirst(name) {
			t.Errorf("%q between frames with priority: %v", name, order)
		}
	}
	tail := order[len(order)-len(later):]
	for _, name := range tail {
		if later[name] == nil {
			t.Errorf("%q at the end, want frames without priority: %v", name, order)
		}
	}
}

// Without rules nothing overtakes anything.
func TestNoPriority(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, netlab.VethOpts{})
	d := newDam(r)
	p := r.start("--json", often, "--prio-synack=false")
	taps := r.taps()
	frames := [][]byte{}
	for i := range 20 {
		frames = append(frames, frame(macB, macA, untagged, 1000, i))
	}
	frames = append(frames, frame(macB, macA, segment(6, 0, 40000, 80, 0x10, 0), 66, 0))
	for _, f := range frames {
		taps[0].send(t, f)
	}
	p.received(uint64(len(frames)))
	kick := d.open()
	for i := 0; i < len(frames); {
		f := taps[1].recv(t, patience)
		if slices.Equal(f, kick) {
			continue
		}
		if !slices.Equal(f, frames[i]) {
			t.Fatalf("frame %d is %s", i, fmt.Sprintf("%d bytes %x", len(f), f[:min(len(f), 40)]))
		}
		i++
	}
	if final := p.stop(); final.Ports[1].Queue.Priority != 0 {
		t.Errorf("totals %+v", final)
	}
}
