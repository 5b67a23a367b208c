package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/netring/netring/internal/cli"
	"github.com/netring/netring/internal/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// started is standard error; its channel is closed when pktgen says that it
// has opened its port.
type started struct {
	bytes.Buffer
	ready chan struct{}
	once  sync.Once
}

func (s *started) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("msg=started")) {
		s.once.Do(func() { close(s.ready) })
	}
	return s.Buffer.Write(b)
}

// background runs pktgen inside a namespace and returns once its port is open;
// the channel gives its last JSON object.
func background(t *testing.T, ctx context.Context, ns *netlab.NS, args ...string) <-chan line {
	t.Helper()
	errs := &started{ready: make(chan struct{})}
	done := make(chan line, 1)
	go func() {
		defer close(done)
		if l := runIn(t, ctx, ns, errs, append(args, "-v")...); len(l) != 0 {
			done <- l[len(l)-1]
		}
	}()
	select {
	case <-errs.ready:
	case <-time.After(10 * time.Second):
		t.Fatalf("pktgen %v did not start", args)
	}
	return done
}

// lines runs pktgen inside a namespace and returns its JSON objects.
func lines(t *testing.T, ctx context.Context, ns *netlab.NS, args ...string) []line {
	t.Helper()
	return runIn(t, ctx, ns, &started{ready: make(chan struct{})}, args...)
}

func runIn(t *testing.T, ctx context.Context, ns *netlab.NS, errs *started, args ...string) []line {
	var out bytes.Buffer
	var code int
	if err := ns.Do(func() error {
		root := newRoot(&out, errs)
		root.SetArgs(append(args, "--json"))
		root.SetContext(ctx)
		err := root.ExecuteContext(ctx)
		if err != nil {
			code = 1
			fmt.Fprintln(errs, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if code != 0 {
		t.Errorf("pktgen %v: %s", args, errs.String())
	}
	var all []line
	for d := json.NewDecoder(&out); d.More(); {
		var l line
		if err := d.Decode(&l); err != nil {
			t.Error(err)
			return nil
		}
		all = append(all, l)
	}
	if len(all) == 0 || all[len(all)-1].Type != "final" {
		t.Errorf("pktgen %v: no final object: %s", args, errs.String())
		return []line{{}}
	}
	return all
}

func last(l []line) line { return l[len(l)-1] }

func veth(t *testing.T) (a, b *netlab.NS) {
	t.Helper()
	netlab.NeedNet(t)
	l := netlab.Setup(t, "a", "b")
	l.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	return l.NS("a"), l.NS("b")
}

// TestExact: -n is exact for any number of threads and engine, and sender,
// interface and receiver agree.
func TestExact(t *testing.T) {
	for _, c := range []struct {
		name string
		n    uint64
		args []string
	}{
		{"one thread", 5001, nil},
		{"three threads", 5000, []string{"-p", "3"}},
		{"bursts", 1003, []string{"-b", "7"}},
		{"one", 1, nil},
		{"sizes", 3000, []string{"-l", "random:60-1514"}},
		{"imix, tags", 1200, []string{"--imix", "--vlan", "0x88a8/5", "--vlan", "7:3", "-s", "10.0.0.1-10.0.0.9", "-z"}},
		{"ipv6", 1200, []string{"-6", "-l", "62-90", "-s", "fd00::1-fd00::9", "-d", "fd00::2:1-fd00::2:7"}},
		{"rate", 300, []string{"-R", "10k"}},
		{"no virtio-net header", 1000, []string{"-H", "0"}},
		{"long virtio-net header", 1000, []string{"-H", "12"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := veth(t)
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			before, err := a.Counters("a0")
			if err != nil {
				t.Fatal(err)
			}
			receiver := background(t, ctx, b, "-i", "b0", "-f", "rx", "-W", "3s", "-n", fmt.Sprint(c.n))
			sent := last(lines(t, ctx, a, append([]string{"-i", "a0", "-f", "tx", "-n", fmt.Sprint(c.n)}, c.args...)...))
			after, err := a.Counters("a0")
			if err != nil {
				t.Fatal(err)
			}
			if sent.Packets != c.n || sent.Refused != 0 {
				t.Errorf("sent %d, refused %d, asked for %d", sent.Packets, sent.Refused, c.n)
			}
			if on := after.TxPackets - before.TxPackets; on != c.n {
				t.Errorf("the interface sent %d of %d", on, c.n)
			}
			got := <-receiver
			if got.Packets+got.Dropped != c.n {
				t.Errorf("received %d and dropped %d of %d", got.Packets, got.Dropped, c.n)
			}
		})
	}
}

func TestRate(t *testing.T) {
	a, _ := veth(t)
	for _, c := range []struct {
		rate string
		pps  float64
	}{{"2000", 2000}, {"10k", 10000}, {"5.376Mbit", 8000}, {"4.8Mbit/l2", 10000}} {
		l := last(lines(t, context.Background(), a, "-i", "a0", "-f", "tx", "-R", c.rate, "--time", "1s"))
		if got := float64(l.Packets) + float64(l.Late)/(map[bool]float64{true: 84 * 8, false: 1}[strings.HasSuffix(c.rate, "bit")]); l.Late == 0 && (got < c.pps*0.98 || got > c.pps*1.02) {
			t.Errorf("-R %s: %d packets in a second, want %v", c.rate, l.Packets, c.pps)
		}
		if l.AskedPPS == 0 && l.AskedBPS == 0 {
			t.Errorf("-R %s: the summary does not say what was asked for", c.rate)
		}
	}
}

func TestPingPong(t *testing.T) {
	a, b := veth(t)
	for _, args := range [][]string{nil, {"-6"}, {"--proto", "tcp"}} {
		ctx, cancel := context.WithCancel(context.Background())
		done := background(t, ctx, b, "-i", "b0", "-f", "pong")
		hist := t.TempDir() + "/h"
		l := last(lines(t, context.Background(), a, append([]string{"-i", "a0", "-f", "ping", "-n", "200", "-R", "2k", "--histogram-file", hist}, args...)...))
		cancel()
		answered := <-done
		if l.Latency == nil || l.Latency.Count != 200 || l.Latency.Lost != 0 || answered.Packets != 200 {
			t.Errorf("%v: %+v, answered %d", args, l.Latency, answered.Packets)
		} else if l.Latency.Min <= 0 || l.Latency.P50 < l.Latency.Min || l.Latency.Max < l.Latency.P999 {
			t.Errorf("%v: times out of order: %+v", args, l.Latency)
		}
		if text, err := os.ReadFile(hist); err != nil || !bytes.Contains(text, []byte("0.99")) {
			t.Errorf("histogram file: %v, %d bytes", err, len(text))
		}
	}
}

func TestSequence(t *testing.T) {
	a, b := veth(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := background(t, ctx, b, "-i", "b0", "-f", "rxseq", "-n", "3000", "-W", "5s")
	sent := last(lines(t, context.Background(), a, "-i", "a0", "-f", "txseq", "-n", "3000", "-R", "20k"))
	got := <-done
	s := got.Stream
	if sent.Packets != 3000 || s == nil || s.Numbered != 3000 || s.Lost+s.Duplicates+s.Reordered+s.Stale+s.Other != 0 {
		t.Errorf("sent %d, stream %+v", sent.Packets, s)
	}
}

// TestSuperFrames: the frames of engine gso are cut right where the peer does
// not take super-frames, and counted as the interface counts them there.
func TestSuperFrames(t *testing.T) {
	a, b := veth(t)
	if err := b.Offload("b0", map[string]bool{"tx-udp-segmentation": false}); err != nil {
		t.Skip("cannot switch UDP segmentation off: ", err)
	}
	if err := a.Offload("a0", map[string]bool{"tx-udp-segmentation": false}); err != nil {
		t.Skip("cannot switch UDP segmentation off: ", err)
	}
	for _, args := range [][]string{{"-n", "1000"}, {"-n", "1001", "-l", "1514"}, {"-n", "300", "-6", "-l", "100"}} {
		before, err := b.Counters("b0")
		if err != nil {
			t.Fatal(err)
		}
		l := last(lines(t, context.Background(), a, append([]string{"-i", "a0", "-f", "tx", "--engine", "gso"}, args...)...))
		after, err := b.Counters("b0")
		if err != nil {
			t.Fatal(err)
		}
		if got := after.RxPackets - before.RxPackets + after.RxDropped - before.RxDropped; fmt.Sprint(l.Packets) != args[1] || got != l.Packets {
			t.Errorf("%v: sent %d, the peer has %d", args, l.Packets, got)
		}
	}
}

// TestSuperFramesWhole: where nobody cuts super-frames it is said, and the
// receiver counts the frames that they are on a wire.
func TestSuperFramesWhole(t *testing.T) {
	a, b := veth(t)
	var errs started
	errs.ready = make(chan struct{})
	for _, c := range []struct {
		on    bool
		cutBy string
	}{{true, "peer-sees-super-frames"}, {false, "kernel"}} {
		for _, ns := range []*netlab.NS{a, b} {
			if err := ns.Offload(map[*netlab.NS]string{a: "a0", b: "b0"}[ns], map[string]bool{"tx-udp-segmentation": c.on}); err != nil {
				netlab.Skip(t, "cannot switch UDP segmentation: %v", err)
			}
		}
		for _, args := range [][]string{{"-n", "1000"}, {"-n", "1001", "-l", "1514"}, {"-n", "300", "-6", "-l", "100", "--vlan", "7"}} {
			ctx, cancel := context.WithCancel(context.Background())
			done := background(t, ctx, b, "-i", "b0", "-f", "rx", "-n", args[1], "-W", "5s")
			errs.Reset()
			l := last(runIn(t, ctx, a, &errs, append([]string{"-i", "a0", "-f", "tx", "--engine", "gso", "-R", "50k"}, args...)...))
			got := <-done
			cancel()
			if fmt.Sprint(l.Packets) != args[1] || got.Packets != l.Packets || got.Bytes != l.Bytes {
				t.Errorf("%v: sent %d (%d bytes), received %d (%d bytes)", args, l.Packets, l.Bytes, got.Packets, got.Bytes)
			}
			if l.CutBy != c.cutBy || (got.Supers != 0) != c.on || strings.Contains(errs.String(), "nobody cuts") != c.on {
				t.Errorf("%v: cut by %q, want %q; %d super-frames received; %s", args, l.CutBy, c.cutBy, got.Supers, errs.String())
			}
		}
	}
}

func TestMaxSegments(t *testing.T) {
	for release, want := range map[string]int{"5.15.0-91-generic": 64, "6.8.12": 64, "6.9.0-rc1": 128, "6.18.44-fc": 128, "7.0": 128, "": 64, "x": 64} {
		if got := maxSegments(release); got != want {
			t.Errorf("Linux %q: %d, want %d", release, got, want)
		}
	}
}

// TestLiveFrames: engine xdp is exact, its frames are valid.
func TestLiveFrames(t *testing.T) {
	netlab.NeedRoot(t)
	a, b := veth(t)
	if l := run([]string{}, &bytes.Buffer{}, &bytes.Buffer{}); l != cli.ExitUsage {
		t.Fatal(l)
	}
	var errs bytes.Buffer
	err := a.Do(func() error {
		root := newRoot(&bytes.Buffer{}, &errs)
		root.SetArgs([]string{"-i", "a0", "-f", "tx", "--engine", "xdp", "-n", "1000"})
		return root.ExecuteContext(context.Background())
	})
	if err == nil || !strings.Contains(err.Error(), "gro on") {
		t.Errorf("frames that vanish: %v", err)
	}
	if err := b.Offload("b0", map[string]bool{"rx-gro": true}); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-n", "100000"}, {"-n", "777", "-R", "5k", "-s", "10.0.0.1:5-10.0.0.3:9"}} {
		before, err := a.Counters("a0")
		if err != nil {
			t.Fatal(err)
		}
		l := last(lines(t, context.Background(), a, append([]string{"-i", "a0", "-f", "tx", "--engine", "xdp"}, args...)...))
		after, err := a.Counters("a0")
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(l.Packets) != args[1] || l.Refused != 0 || after.TxPackets-before.TxPackets != l.Packets {
			t.Errorf("%v: sent %d, refused %d, the interface %d", args, l.Packets, l.Refused, after.TxPackets-before.TxPackets)
		}
	}
	for _, args := range [][]string{{"--proto", "udp"}, {"--proto", "tcp", "-6"}, {"--vlan", "5"}} {
		ctx, cancel := context.WithCancel(context.Background())
		done := background(t, ctx, b, "-i", "b0", "-f", "rxseq", "-n", "2000", "-W", "5s")
		lines(t, context.Background(), a, append([]string{"-i", "a0", "-f", "txseq", "--engine", "xdp", "-n", "2000", "-R", "20k"}, args...)...)
		s := (<-done).Stream
		cancel()
		if s == nil || s.Numbered != 2000 || s.Lost+s.Duplicates+s.Reordered+s.Other != 0 {
			t.Errorf("%v: %+v", args, s)
		}
	}
}

func TestUsage(t *testing.T) {
	for args, why := range map[string]string{
		"":                                               "give one with -i",
		"-i eth0 -f nosuch":                              "one of tx",
		"-i eth0 extra":                                  "unexpected argument",
		"-i eth0 -b 0":                                   "burst 0",
		"-i eth0 -a 1023":                                "CPU 1023 cannot be used",
		"-i eth0 -p 0":                                   "threads 0",
		"-i eth0 -f tx -l 10":                            "14 to",
		"-i eth0 -f tx -l 20":                            "too small",
		"-i eth0 -f tx -R fast":                          "rate",
		"-i eth0 -f tx -R 0.1":                           "at least 1",
		"-i eth0 -4 -6":                                  "choose one",
		"-i eth0 -s 10.0.0.1 -6":                         "other family",
		"-i eth0 -f tx -D 00:11":                         "MAC address",
		"-i eth0 -f tx --vlan 4095":                      "vlan",
		"-i eth0 -f tx --payload xy":                     "hexadecimal",
		"-i eth0 -f txseq -p 2":                          "leave -p out",
		"-i eth0 -f rx --engine gso":                     "only goes with",
		"-i xdp:eth0 -f tx --engine gso":                 "bare name",
		"-i eth0 -f tx --engine gso -l 60-90":            "one size",
		"-i netmap:eth0@foo":                             "unknown option",
		"-i eth0 --nosuch":                               "unknown flag",
		"-i eth0 -f tx --time 1s --warmup 2s":            "shorter",
		"-i eth0 -f rx --histogram-file x":               "goes with",
		"-i eth0 -f ping -l 60 --imix":                   "too small",
		"-i eth0 -f tx -H 11":                            "must be 0, 10 or 12",
		"-i eth0 -f tx --engine gso -H 0":                "leave -H 0 out",
		"-i eth0 -f replay":                              "--file",
		"-i eth0 -f tx --file x":                         "go with -f replay",
		"-i eth0 -f replay --file x --speed -1":          "speed",
		"-i eth0 -f replay --file x --speed 2 -R 5":      "choose one",
		"-i eth0 -f replay --file x --loop -1":           "loop",
		"-i eth0 --throughput":                           "--rx-port",
		"-i eth0 --rx-port eth1":                         "go with --throughput",
		"-i eth0 --rx-port eth1 --throughput -f ping":    "leave -f ping out",
		"-i eth0 --rx-port eth1 --throughput -n 5":       "leave --engine",
		"-i eth0 --rx-port eth1 --loss-curve --sizes 60": "64 to",
	} {
		var out, errs bytes.Buffer
		if code := run(strings.Fields(args), &out, &errs); code != cli.ExitUsage || !strings.Contains(errs.String(), why) {
			t.Errorf("pktgen %s: exit %d, %q does not say %q", args, code, errs.String(), why)
		}
	}
	var out, errs bytes.Buffer
	if code := run([]string{"-i", "nosuch0", "-f", "tx"}, &out, &errs); code != cli.ExitFail || !strings.Contains(errs.String(), "no such interface") {
		t.Errorf("unknown interface: exit %d, %q", code, errs.String())
	}
	if code := run([]string{"--help"}, &out, &errs); code != 0 || !strings.Contains(out.String(), "pktgen -i PORT") {
		t.Errorf("help: exit %d", code)
	}
}
