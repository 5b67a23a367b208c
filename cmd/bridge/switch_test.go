package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/netring/netring/internal/cli"
	"github.com/netring/netring/internal/netlab"
)

// wantAt checks what arrives next at each tap. A frame too many shows at the
// next call, or at the end with empty.
func wantAt(t *testing.T, taps []*tap, want ...[][]byte) {
	t.Helper()
	for i, w := range taps {
		for _, f := range want[i] {
			expect(t, w, f, w.name)
		}
	}
}

// fdbs are the address tables that a bridge with --json has printed.
func (p *proc) fdbs() (list []fdbReport) {
	p.t.Helper()
	for _, line := range p.out.lines() {
		if !bytes.Contains(line, []byte(`"fdb"`)) {
			continue
		}
		var r fdbReport
		if err := json.Unmarshal(line, &r); err != nil {
			p.t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

// Three ports: unknown destinations are flooded, known ones get the frame
// alone, link-local groups nobody; a station that moves is followed.
func TestSwitch(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, netlab.VethOpts{})
	p := r.start("--json", "--fdb", "--interval", "0")
	taps := r.taps()
	group := []byte{0x01, 0x80, 0xc2, 0, 0, 0x0e}
	everybody := bytes.Repeat([]byte{0xff}, 6)

	first := frame(macB, macA, untagged, 60, 1)
	taps[0].send(t, first)
	wantAt(t, taps, nil, [][]byte{first}, [][]byte{first})
	answer := frame(macA, macB, untagged, 1514, 2)
	taps[1].send(t, answer)
	wantAt(t, taps, [][]byte{answer}, nil, nil)
	next := frame(macB, macA, untagged, 60, 3)
	all := frame(everybody, macA, untagged, 60, 4)
	taps[0].send(t, next)
	taps[0].send(t, frame(group, macA, untagged, 60, 5))
	taps[0].send(t, all)
	wantAt(t, taps, nil, [][]byte{next, all}, [][]byte{all})
	taps[2].send(t, all) // the station is here now
	wantAt(t, taps, [][]byte{all}, [][]byte{all}, nil)
	taps[1].send(t, answer)
	wantAt(t, taps, nil, nil, [][]byte{answer})

	if err := p.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	// A second signal before the first is handled would be lost.
	for end := time.Now().Add(patience); len(p.fdbs()) == 0; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("SIGUSR1 printed no address table")
		}
	}
	final := p.stop()
	empty(t, taps...)
	// 7 frames came in, 3 were flooded to two ports each and 1 was dropped.
	if final.Received != 7 || final.Copied != 3 || final.Forwarded != 9 || final.Dropped != 1 || final.Drops["filter"] != 1 || final.Pending != 0 {
		t.Errorf("totals %+v", final)
	}
	if s := final.Ports[0].Switch; s == nil || s.Dropped["reserved"] != 1 || s.Flooded != 2 {
		t.Errorf("port 0 %+v", s)
	}
	tables := p.fdbs()
	if len(tables) != 2 {
		t.Fatalf("%d address tables printed, want 2", len(tables))
	}
	for _, f := range tables {
		if f.Learned != 2 || f.Moved != 1 || len(f.Addresses) != 2 {
			t.Fatalf("table %+v", f)
		}
		for _, e := range f.Addresses {
			if want := map[string]string{"02:00:00:00:00:0a": "p3", "02:00:00:00:00:0b": "p2"}[e.MAC]; e.Port != want {
				t.Errorf("%s is behind %s, want %q", e.MAC, e.Port, want)
			}
		}
	}
}

// Under full load to a known and from there to an unknown station all adds up.
func TestSwitchConservation(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, netlab.VethOpts{})
	p := r.start("--json", often)
	taps := r.taps()
	f := startFlood(t, taps[0]) // to macB, which nobody has
	p.until("copies", func(r *report) bool { return r.Copied > 10000 })
	taps[1].send(t, frame(macA, macB, untagged, 60, 2)) // now somebody has
	p.until("its station", func(r *report) bool { return r.Ports[1].RX == 1 })
	p.received(f.sent.Load() + 10000)
	f.end()
	final := p.stop()
	if final.Received != f.sent.Load()+1 {
		t.Errorf("sent %d, received %d", f.sent.Load()+1, final.Received)
	}
	if final.Received+final.Copied != final.Forwarded+final.Dropped || final.Pending != 0 || final.Copied == 0 {
		t.Errorf("totals do not add up: %+v", final)
	}
	var sent uint64
	for i := range 3 {
		c, err := r.NS("dut").Counters(r.port(i))
		r.ok(err)
		sent += c.TxPackets
	}
	if sent != final.Forwarded {
		t.Errorf("forwarded %d, the interfaces sent %d", final.Forwarded, sent)
	}
}

// A group of links is one port of a switch, and its stations one port's.
func TestSwitchOfGroup(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4, netlab.VethOpts{})
	p := r.startArgs("--json", "-i", "p1", "-i", "p2", "-i", "lagg:p3+p4@lagg:proto=loadbalance")
	taps := r.taps()
	taps[2].send(t, frame(macA, macB, untagged, 60, 1))
	taps[3].send(t, frame(macA, macB, untagged, 60, 2))
	if got := gather(t, 4, taps[:2]...); got[0] != 2 || got[1] != 2 {
		t.Errorf("flooded %d, want 2 each", got)
	}
	for i := range 10 {
		taps[0].send(t, frame(macB, macA, untagged, 60, i))
	}
	gather(t, 10, taps[2:]...)
	final := p.stop()
	empty(t, taps...)
	if final.Received != 12 || final.Copied != 2 || final.Forwarded != 14 || final.Pending != 0 {
		t.Errorf("totals %+v", final)
	}
}

func TestSwitchUsage(t *testing.T) {
	netlab.NeedNet(t)
	r := newRig(t, 3, netlab.VethOpts{})
	for args, want := range map[string]string{
		"--fdb -i p1 -i p2":                        "two ports are a wire",
		"--ageing 0 -i p1 -i p2 -i p3":             "--ageing",
		"--ageing 10ms -i p1 -i p2 -i p3":          "ageing",
		"--addresses 0 -i p1 -i p2 -i p3":          "--addresses",
		"--addresses 1000000000 -i p1 -i p2 -i p3": "addresses",
	} {
		var errs bytes.Buffer
		code := 0
		r.ok(r.NS("dut").Do(func() error { code = run(strings.Fields(args), new(bytes.Buffer), &errs); return nil }))
		if code != cli.ExitUsage || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: exit %d, %q; want %d and %q", args, code, errs.String(), cli.ExitUsage, want)
		}
	}
}

func TestFDBText(t *testing.T) {
	r := fdbReport{Learned: 2, Moved: 1, Addresses: []fdbEntry{{MAC: "02:00:00:00:00:0a", Port: "eth1", Age: 0.3}}}
	var b strings.Builder
	if err := r.text(&b); err != nil {
		t.Fatal(err)
	}
	want := "fdb 02:00:00:00:00:0a  eth1  seen 0.3 s ago\nfdb 1 addresses; learned 2, moved 1, aged 0, refused 0\n"
	if b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
