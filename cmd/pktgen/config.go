package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/netring/netring/internal/cli"
	"github.com/netring/netring/internal/gen"
	"github.com/netring/netring/nm"
	"github.com/netring/netring/ring"
)

// config is the command line as given.
type config struct {
	port, function, engine string
	count                  uint64
	length                 string
	imix                   bool
	burst, threads         int
	src, dst               string
	srcMAC, dstMAC         string
	rate                   string
	cpus                   []int
	report                 time.Duration
	wait                   time.Duration
	exitIdle               time.Duration
	randomSrc, randomDst   bool
	v4, v6                 bool
	raw, average           bool
	proto, pattern         string
	vlans                  []string
	ttl                    int
	seconds                time.Duration
	warmup                 time.Duration
	histogram              string
	vnet                   int // bytes of the virtio-net header, -1 for the driver's choice
	replay                 replayConfig
	bench                  benchConfig
	json, verbose          bool
	log                    *slog.Logger
	out                    io.Writer
}

func (c *config) flags(f *pflag.FlagSet) {
	f.SortFlags = false
	f.StringVarP(&c.port, "interface", "i", "", "port: eth0, netmap:eth0, xdp:eth0-1, ...")
	f.StringVarP(&c.function, "function", "f", "rx", "tx, rx, txseq, rxseq, ping, pong or replay")
	f.StringVar(&c.engine, "engine", "ring", "how to send: ring (a frame a slot), gso (UDP super-frames, cut by the kernel or device), xdp (BPF live frames)")
	f.Uint64VarP(&c.count, "count", "n", 0, "packets to send or receive, exactly; 0 until stopped")
	f.StringVarP(&c.length, "length", "l", "60", "frame size without checksum: N, N-M in turn, random:N-M")
	f.BoolVar(&c.imix, "imix", false, "sizes of the simple Internet mix")
	f.IntVarP(&c.burst, "burst", "b", defaultBurst, "frames per doorbell, at most")
	f.StringVarP(&c.src, "src", "s", "", "source addresses and ports: ADDR[:PORT][-ADDR[:PORT]]")
	f.StringVarP(&c.dst, "dst", "d", "", "destination addresses and ports")
	f.StringVarP(&c.srcMAC, "src-mac", "S", "", "source MAC address (default the interface's)")
	f.StringVarP(&c.dstMAC, "dst-mac", "D", "ff:ff:ff:ff:ff:ff", "destination MAC address")
	f.StringVarP(&c.rate, "rate", "R", "", "rate: 1000, 1.5M (packets/s), 1Gbit (layer 1), 1Gbit/l2; none for the most")
	f.IntVarP(&c.threads, "threads", "p", 1, "threads, each with a ring of its own")
	f.IntSliceVarP(&c.cpus, "cpus", "a", nil, "CPUs to pin the threads to, in order (-c is the same)")
	f.IntSliceVarP(&c.cpus, "cores", "c", nil, "CPUs to pin the threads to")
	f.DurationVarP(&c.report, "interval", "T", time.Second, "time between reports")
	f.DurationVarP(&c.wait, "wait-link", "w", 2*time.Second, "how long to wait for the link to come up")
	f.DurationVarP(&c.exitIdle, "exit-idle", "W", 0, "stop receiving when nothing has come for so long")
	f.BoolVarP(&c.randomSrc, "random-src", "z", false, "source addresses and ports at random within their ranges")
	f.BoolVarP(&c.randomDst, "random-dst", "Z", false, "destination addresses and ports at random within their ranges")
	f.BoolVarP(&c.v4, "ipv4", "4", false, "IPv4 (the default)")
	f.BoolVarP(&c.v6, "ipv6", "6", false, "IPv6")
	f.BoolVarP(&c.raw, "no-units", "N", false, "print numbers without unit prefixes")
	f.BoolVarP(&c.average, "average", "A", false, "add mean and deviation over the last 10 intervals")
	f.StringVar(&c.proto, "proto", "udp", "udp, tcp or icmp")
	f.StringArrayVar(&c.vlans, "vlan", nil, "VLAN tag [TPID/]ID[:PRIORITY]; twice for QinQ, the outer one first")
	f.StringVar(&c.pattern, "payload", "00", "payload pattern in hexadecimal, repeated")
	f.IntVar(&c.ttl, "ttl", 64, "time to live")
	f.DurationVar(&c.seconds, "time", 0, "stop after so long; 0 until stopped")
	f.DurationVar(&c.warmup, "warmup", 0, "leave the first so long out of the rates")
	f.StringVar(&c.histogram, "histogram-file", "", "write the latency distribution there (rxseq, ping)")
	f.IntVarP(&c.vnet, "vnet-header", "H", -1, "bytes of the virtio-net header between kernel and program: 0, 10 or 12 (default the driver's)")
	c.replay.flags(f)
	c.bench.flags(f)
	f.BoolVar(&c.json, "json", false, "one JSON object per interval and a final one")
	f.BoolVarP(&c.verbose, "verbose", "v", false, "say more on stderr")
}

// defaultBurst is where more frames a doorbell stop to gain anything.
const defaultBurst = 512

// plan is a checked command line.
type plan struct {
	config
	spec   nm.PortSpec
	frames gen.Config
	rates  rate

	maxSegments int    // of a super-frame, with engine gso
	segmentedBy string // who cuts them
	started     func() // called when the port is open, unless nil
}

// rate is what -R asks for.
type rate struct {
	per   uint64 // packets or bits a second; 0 for the most
	bits  bool
	extra int // bytes beyond the frame that count, in bits
}

var functions = []string{"tx", "rx", "txseq", "rxseq", "ping", "pong", "replay"}

func (c *config) plan() (*plan, error) {
	p := &plan{config: *c}
	var err error
	if c.port == "" {
		return nil, errors.New("no port: give one with -i (ip link shows the interfaces)")
	}
	if p.spec, err = nm.ParsePort(c.port); err != nil {
		return nil, err
	}
	if err = c.reachable(&p.spec); err != nil {
		return nil, err
	}
	switch {
	case !slices.Contains(functions, c.function):
		return nil, fmt.Errorf("function %q: must be one of %s", c.function, strings.Join(functions, ", "))
	case !slices.Contains([]string{"ring", "gso", "xdp"}, c.engine):
		return nil, fmt.Errorf("engine %q: must be ring, gso or xdp", c.engine)
	case c.engine != "ring" && c.function != "tx" && !(c.engine == "xdp" && c.function == "txseq"):
		return nil, fmt.Errorf("engine %s only goes with -f tx", c.engine)
	case c.engine != "ring" && p.spec.Kind != nm.KindNetmap:
		return nil, fmt.Errorf("engine %s takes an interface by its bare name, not %s", c.engine, c.port)
	case c.burst < 1 || c.burst > 4096:
		return nil, fmt.Errorf("burst %d: must be 1 to 4096", c.burst)
	case c.threads < 1 || c.threads > 256:
		return nil, fmt.Errorf("threads %d: must be 1 to 256", c.threads)
	case c.threads > 1 && c.function != "tx" && c.function != "rx":
		return nil, fmt.Errorf("-f %s counts one stream: leave -p out", c.function)
	case c.threads > 1 && p.spec.Kind != nm.KindNetmap:
		return nil, errors.New("several threads need an interface by its bare name")
	case c.v4 && c.v6:
		return nil, errors.New("-4 and -6: choose one")
	case c.report < 10*time.Millisecond:
		return nil, fmt.Errorf("interval %v: must be at least 10ms", c.report)
	case c.warmup < 0 || c.seconds < 0 || c.seconds != 0 && c.warmup >= c.seconds:
		return nil, fmt.Errorf("warm-up of %v in a run of %v: must be shorter", c.warmup, c.seconds)
	case c.ttl < 1 || c.ttl > 255:
		return nil, fmt.Errorf("ttl %d: must be 1 to 255", c.ttl)
	case c.vnet != -1 && c.vnet != 0 && c.vnet != ring.VnetLen && c.vnet != ring.VnetLenMrg:
		return nil, fmt.Errorf("-H %d: must be 0, %d or %d", c.vnet, ring.VnetLen, ring.VnetLenMrg)
	case c.vnet > 0 && p.spec.Kind != nm.KindNetmap:
		return nil, fmt.Errorf("-H %d: only interfaces through netmap: have the virtio-net header", c.vnet)
	case c.vnet == 0 && c.engine == "gso":
		return nil, errors.New("engine gso needs the virtio-net header: leave -H 0 out")
	case c.histogram != "" && c.function != "ping" && c.function != "rxseq":
		return nil, fmt.Errorf("--histogram-file goes with ping and rxseq, not with %s", c.function)
	}
	if p.rates, err = parseRate(c.rate); err != nil {
		return nil, err
	}
	if err := cli.CheckCPUs(c.cpus); err != nil {
		return nil, err
	}
	if err := errors.Join(c.replay.validate(c), c.bench.validate(p)); err != nil {
		return nil, err
	}
	if c.function == "ping" && p.rates.per == 0 {
		p.rates.per = 1
	}
	return p, p.build()
}

// build checks what the frames are made of.
func (p *plan) build() (err error) {
	f := &p.frames
	f.RandomSrc, f.RandomDst, f.TTL = p.randomSrc, p.randomDst, uint8(p.ttl)
	f.Probe = p.function == "txseq" || p.function == "ping"
	proto := slices.Index([]string{"udp", "tcp", "icmp"}, p.proto)
	if proto < 0 {
		return fmt.Errorf("protocol %q: must be udp, tcp or icmp", p.proto)
	}
	f.Proto = gen.Proto(proto)
	src, dst := "10.0.0.1", "10.1.0.1"
	if p.v6 {
		src, dst = "fd00::1", "fd00::1:1"
	}
	for _, r := range []struct {
		to          *gen.Range
		given, deft string
	}{{&f.Src, p.src, src}, {&f.Dst, p.dst, dst}} {
		if r.given == "" {
			r.given = r.deft
		}
		if *r.to, err = gen.ParseRange(r.given, 1234); err != nil {
			return err
		}
		if r.to.First.Is6() && p.v4 || r.to.First.Is4() && p.v6 {
			return fmt.Errorf("%s is of the other family than -4 or -6 says", r.given)
		}
	}
	if f.Src.First.Is4() != f.Dst.First.Is4() {
		return fmt.Errorf("-s and -d must be both IPv4 or both IPv6: give both, or -6")
	}
	for i, to := range []*[6]byte{&f.DstMAC, &f.SrcMAC} {
		s := [...]string{p.dstMAC, p.srcMAC}[i]
		if s == "" {
			continue
		}
		mac, err := net.ParseMAC(s)
		if err != nil || len(mac) != 6 {
			return fmt.Errorf("MAC address %q: must be six bytes as 02:00:00:00:00:01", s)
		}
		copy(to[:], mac)
	}
	if f.Pattern, err = hex.DecodeString(p.pattern); err != nil || len(f.Pattern) == 0 {
		return fmt.Errorf("payload %q: must be bytes in hexadecimal, as 00ff", p.pattern)
	}
	for _, v := range p.vlans {
		tag, err := parseTag(v)
		if err != nil {
			return err
		}
		f.Tags = append(f.Tags, tag)
	}
	return p.sizes()
}

func (p *plan) sizes() (err error) {
	f := &p.frames
	if p.imix {
		if p.length != "60" {
			return errors.New("-l and --imix: choose one")
		}
		p.length = "imix"
	}
	if f.Probe && p.length == "60" { // the default, and too small for a probe
		p.length = strconv.Itoa(max(60, f.MinSize()))
	}
	if f.Sizes, err = gen.ParseSizes(p.length, 14, 65000); err != nil {
		return err
	}
	if p.engine == "gso" && (!f.Sizes.Fixed() || f.Proto != gen.UDP) {
		return errors.New("engine gso cuts super-frames of UDP into frames of one size: leave ranges of sizes and --proto out")
	}
	_, err = gen.New(*f, 0, 1)
	return err
}

// parseRate reads NUMBER[k|M|G][pps|bit[/l1|/l2]].
func parseRate(s string) (r rate, err error) {
	if s == "" || s == "0" {
		return r, nil
	}
	t := s
	if u, ok := strings.CutSuffix(t, "/l2"); ok {
		t = u
		if !strings.HasSuffix(t, "bit") {
			return r, fmt.Errorf("rate %q: /l2 goes with bits, as 1Gbit/l2", s)
		}
	} else {
		t = strings.TrimSuffix(t, "/l1")
		r.extra = gen.WireOverhead
	}
	if u, ok := strings.CutSuffix(t, "bit"); ok {
		t, r.bits = u, true
	} else {
		t = strings.TrimSuffix(t, "pps")
	}
	scale := 1.0
	for unit, x := range map[string]float64{"k": 1e3, "M": 1e6, "G": 1e9} {
		if u, ok := strings.CutSuffix(t, unit); ok {
			t, scale = u, x
			break
		}
	}
	n, err := strconv.ParseFloat(t, 64)
	if err != nil || n*scale < 1 || n*scale > 1e15 {
		return r, fmt.Errorf("rate %q: must be like 1000, 1.5M, 10Gbit or 1Gbit/l2, at least 1 a second", s)
	}
	r.per = uint64(n*scale + 0.5)
	return r, nil
}

// parseTag reads [TPID/]ID[:PRIORITY].
func parseTag(s string) (uint32, error) {
	tpid, id := uint64(0x8100), s
	if a, b, ok := strings.Cut(s, "/"); ok {
		var err error
		if tpid, err = strconv.ParseUint(a, 0, 16); err != nil || tpid != 0x8100 && tpid != 0x88a8 && tpid != 0x9100 {
			return 0, fmt.Errorf("vlan %q: TPID must be 0x8100, 0x88a8 or 0x9100", s)
		}
		id = b
	}
	id, pri, hasPri := strings.Cut(id, ":")
	n, err := strconv.ParseUint(id, 10, 12)
	if err != nil || n == 4095 {
		return 0, fmt.Errorf("vlan %q: identifier must be 0 to 4094", s)
	}
	var pcp uint64
	if hasPri {
		if pcp, err = strconv.ParseUint(pri, 10, 3); err != nil {
			return 0, fmt.Errorf("vlan %q: priority must be 0 to 7", s)
		}
	}
	return uint32(tpid<<16 | pcp<<13 | n), nil
}
