package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/netring/netring/internal/cli"
	"github.com/netring/netring/internal/forward"
	"github.com/netring/netring/lagg"
	"github.com/netring/netring/nm"
	"github.com/netring/netring/nm/vale"
	"github.com/netring/netring/poll"
	"github.com/netring/netring/sched"
)

// config is the command line.
type config struct {
	interfaces []string
	interval   time.Duration
	drain      time.Duration
	json       bool
	verbose    bool
	fdb        bool

	ports []portSpec // the interfaces, parsed
	poll  poll.Options
	queue sched.Options
	table vale.TableOptions

	mode string
	cpus string
	gate string

	rx          string
	vnet        string
	qdiscBypass bool
	profile     string
	offload     string
	rule        string
	full        string
	prioSynack  bool
	prio        []string
}

func (c *config) flags(f *pflag.FlagSet) {
	f.SortFlags = false
	f.StringArrayVarP(&c.interfaces, "interface", "i", nil, "interface to join, by AF_XDP with xdp:eth1, or several as one: lagg:eth1+eth2@lagg:proto=loadbalance,hash=l3+l4; repeat it, two make a wire, more a switch")
	f.DurationVar(&c.interval, "interval", time.Second, "time between reports; 0 for totals only")
	f.DurationVar(&c.drain, "drain", time.Second, "how long to go on forwarding, when told to stop, what has arrived")
	f.BoolVar(&c.json, "json", false, "report in JSON, one object a line")
	f.BoolVarP(&c.verbose, "verbose", "v", false, "say more on stderr")
	c.switchFlags(f)
	c.portFlags(f)
	c.pollFlags(f)
	c.queueFlags(f)
}

func (c *config) portFlags(f *pflag.FlagSet) {
	f.StringVar(&c.rx, "rx-version", "v2", "receive rings: v2 (single frames, lowest latency) or v3 (packed blocks)")
	f.StringVar(&c.vnet, "vnet", "auto", "carry unfinished checksums and super-frames across: auto or off")
	f.BoolVar(&c.qdiscBypass, "qdisc-bypass", false, "send past the queueing discipline; not faster on devices that have none")
	f.StringVar(&c.profile, "profile", "throughput", "throughput (deep rings), latency (shallow rings, --linger 20ms) or lowmem")
	f.StringVar(&c.offload, "offload", "keep", "what to do about offloads: keep, or off to switch them off while running")
}

func (c *config) pollFlags(f *pflag.FlagSet) {
	f.StringVar(&c.mode, "mode", "adaptive", "when to sleep: interrupt (in poll(2)), tick (between ticks), busy (never) or adaptive")
	f.IntVar(&c.poll.Workers, "workers", 1, "threads; each has its own rings on every interface")
	f.StringVar(&c.cpus, "cpu", "", "CPUs to pin the workers to, such as 1 or 2,3")
	f.IntVar(&c.poll.Nice, "nice", 0, "nice value of the workers, -20 to 19")
	f.IntVar(&c.poll.HZ, "hz", 1000, "ticks a second, in tick mode and under load")
	f.IntVar(&c.poll.BurstMin, "burst-min", 16, "frames that every interface may move in a tick, whatever the load")
	f.IntVar(&c.poll.BurstMax, "burst-max", 4096, "most frames that an interface may move in a tick")
	f.IntVar(&c.poll.EachBurst, "each-burst", 64, "frames from one interface before the next has its turn")
	f.IntVar(&c.poll.UserFrac, "user-frac", 0, "percent of a contended CPU left to other programs, 0 to 99")
	f.StringVar(&c.gate, "gate", "auto", "drop in the interface what cannot be forwarded, while receiving it starves a pinned worker: auto or off")
	f.DurationVar(&c.poll.Linger, "linger", 0, "adaptive mode: longest time to stay awake for a frame that is expected; 20ms spares steady light traffic all wake-ups, and takes a core that nobody else wants")
	f.IntVar(&c.poll.RegFrac, "reg-frac", 20, "ticks between looks at links and kernel counters")
}

func (c *config) queueFlags(f *pflag.FlagSet) {
	d := sched.Defaults()
	c.queue = d
	f.IntVar(&c.queue.StagePackets, "stage-packets", d.StagePackets, "frames sent with one doorbell; 0: one doorbell a round")
	f.IntVar(&c.queue.StageBytes, "stage-bytes", d.StageBytes, "bytes sent with one doorbell; 0: no limit")
	f.BoolVar(&c.queue.Limit, "dql", d.Limit, "keep transmit rings as short as the device allows (dynamic queue limit)")
	f.Uint32Var(&c.queue.LimitMin, "dql-min", d.LimitMin, "lower bound of that limit, in bytes")
	f.Uint32Var(&c.queue.LimitMax, "dql-max", d.LimitMax, "upper bound of that limit, in bytes; 0: none")
	f.DurationVar(&c.queue.LimitHold, "dql-hold", d.LimitHold, "how long slack must last before the limit is lowered")
	f.BoolVar(&c.prioSynack, "prio-synack", true, "send waiting TCP SYN, SYN-ACK and pure ACK frames first")
	f.StringArrayVar(&c.prio, "prio", nil, "send waiting frames first that match dscp=46, ethertype=0x8809 (or arp, eapol, lacp, lldp, ptp), udp=53 or tcp=22 (either port); repeat it for more")
	f.IntVar(&c.queue.QueuePackets, "queue-packets", d.QueuePackets, "frames that may wait for a full transmit ring; 0: none")
	f.IntVar(&c.queue.QueueBytes, "queue-bytes", d.QueueBytes, "bytes that may wait; 0: an Ethernet frame for each packet")
	f.StringVar(&c.rule, "queue-rule", d.Rule.String(), "when a frame with priority finds the queue full: refuse, or evict one without")
	f.StringVar(&c.full, "full", d.Full.String(), "frames that find no room: drop them, or backpressure to leave them where they came from")
}

// validate reports the first value that is out of range, with the remedy, and
// works out what was given as text.
func (c *config) validate() error {
	switch {
	case c.interval < 0 || c.interval > 0 && c.interval < 10*time.Millisecond:
		return cli.Usagef("--interval %v: must be 0 or at least 10ms", c.interval)
	case c.drain <= 0 || c.drain > time.Minute:
		return cli.Usagef("--drain %v: must be above 0 and at most 1m", c.drain)
	case c.poll.Workers < 1 || c.poll.Workers > 64:
		return cli.Usagef("--workers %d: must be between 1 and 64", c.poll.Workers)
	}
	for _, v := range []struct {
		flag  string
		value int
	}{
		{"hz", c.poll.HZ}, {"burst-min", c.poll.BurstMin}, {"burst-max", c.poll.BurstMax},
		{"each-burst", c.poll.EachBurst}, {"reg-frac", c.poll.RegFrac},
	} {
		if v.value < 1 {
			return cli.Usagef("--%s %d: must be at least 1", v.flag, v.value)
		}
	}
	for _, v := range []struct {
		flag, value string
		allowed     []string
	}{
		{"rx-version", c.rx, []string{"v2", "v3"}},
		{"vnet", c.vnet, []string{"auto", "off"}},
		{"profile", c.profile, []string{"throughput", "latency", "lowmem"}},
		{"offload", c.offload, []string{"keep", "off"}},
		{"mode", c.mode, []string{"interrupt", "tick", "busy", "adaptive"}},
		{"gate", c.gate, []string{"auto", "off"}},
		{"queue-rule", c.rule, []string{"refuse", "evict"}},
		{"full", c.full, []string{"drop", "backpressure"}},
	} {
		if !slices.Contains(v.allowed, v.value) {
			return cli.Usagef("--%s %q: must be %s", v.flag, v.value, strings.Join(v.allowed, " or "))
		}
	}
	if err := c.parse(); err != nil {
		return err
	}
	if err := c.validateInterfaces(); err != nil {
		return err
	}
	return c.validateSwitch()
}

// parse fills in what was given as text and lets the packages look at it all.
func (c *config) parse() (err error) {
	c.ports = nil
	for _, arg := range c.interfaces {
		p, err := parsePort(arg)
		if err != nil {
			return err
		}
		c.ports = append(c.ports, p)
	}
	if err := c.settleXDP(); err != nil {
		return err
	}
	if c.poll.CPUs, err = parseCPUs(c.cpus); err != nil {
		return err
	}
	if n := len(c.poll.CPUs); n != 0 && n != c.poll.Workers {
		return cli.Usagef("--cpu names %d CPUs for %d workers: name one for each, or set --workers %d", n, c.poll.Workers, n)
	}
	if c.poll.Mode, err = poll.ParseMode(c.mode); err != nil {
		return &cli.UsageError{Err: err}
	}
	if err := c.poll.Validate(); err != nil {
		return &cli.UsageError{Err: err}
	}
	if c.queue.Full, err = sched.ParseFull(c.full); err != nil {
		return &cli.UsageError{Err: err}
	}
	c.queue.Rule = sched.Refuse
	if c.rule == sched.Evict.String() {
		c.queue.Rule = sched.Evict
	}
	if c.queue.QueuePackets == 0 {
		c.queue.QueueBytes = 0
	}
	if err := c.settlePriority(); err != nil {
		return err
	}
	check := c.queue
	check.Clock = new(sched.Clock) // the bridge has its own
	if err := check.Validate(); err != nil {
		return &cli.UsageError{Err: err}
	}
	return nil
}

// settlePriority makes the classifier of the flags about priority.
func (c *config) settlePriority() (err error) {
	rules := sched.ClassifierOptions{SynAck: c.prioSynack}
	for _, r := range c.prio {
		if err := rules.AddRule(r); err != nil {
			return cli.Usagef("--prio: %w", err)
		}
	}
	if len(c.prio) != 0 && c.queue.QueuePackets == 0 {
		return cli.Usagef("--prio needs frames that wait: set --queue-packets above 0")
	}
	c.queue.Classifier = nil
	if c.prioSynack || len(c.prio) != 0 {
		c.queue.Classifier, err = sched.NewClassifier(rules)
	}
	return err
}

// options are the bridge's, once the config is valid.
func (c *config) options(log *slog.Logger) forward.Options {
	return forward.Options{Poll: c.poll, Queue: c.queue, Table: c.table, Drain: c.drain, Guarded: c.gate == "auto", Log: log}
}

// portSpec is what one -i names.
type portSpec struct {
	name  string         // as given
	links []string       // its interfaces
	group *lagg.Options  // of several
	spec  *nm.PortSpec   // of a name with a prefix
	xdp   *nm.XDPOptions // of an AF_XDP port
}

func parsePort(arg string) (portSpec, error) {
	if !strings.HasPrefix(arg, "lagg:") {
		if strings.ContainsAny(arg, ":@[{}") {
			return parseNamed(arg)
		}
		return portSpec{name: arg, links: []string{arg}}, nil
	}
	spec, err := lagg.ParseSpec(arg)
	if err != nil {
		return portSpec{}, &cli.UsageError{Err: err}
	}
	name, _, _ := strings.Cut(arg, "@")
	return portSpec{name: name, links: spec.Members, group: &spec.Options}, nil
}

func (c *config) validateInterfaces() error {
	if len(c.interfaces) < 2 {
		return cli.Usagef("%d interfaces: name at least two, such as -i eth1 -i eth2 (or try: bridge demo)", len(c.interfaces))
	}
	seen := map[string]bool{}
	for _, p := range c.ports {
		for _, name := range p.links {
			if seen[name] {
				return cli.Usagef("interface %s is given twice: a port joined to itself would loop; name two different ones", name)
			}
			seen[name] = true
		}
	}
	for _, name := range c.links() {
		if err := checkInterface(name); err != nil {
			return err
		}
	}
	return nil
}

// links are all interfaces of all ports.
func (c *config) links() (names []string) {
	for _, p := range c.ports {
		names = append(names, p.links...)
	}
	return names
}

// checkInterface refuses what cannot be a port of a bridge.
func checkInterface(name string) error {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return cli.Usagef("interface %q does not exist: this machine has %s", name, interfaceNames())
	}
	if ifi.Flags&net.FlagLoopback != 0 {
		return cli.Usagef("interface %s is the loopback: what is sent there comes back; use a veth pair or a real port", name)
	}
	return nil
}

func interfaceNames() string {
	all, err := net.Interfaces()
	if err != nil {
		return "none that can be listed: " + err.Error()
	}
	var names []string
	for _, i := range all {
		if i.Flags&net.FlagLoopback == 0 {
			names = append(names, i.Name)
		}
	}
	if names == nil {
		return "none but the loopback"
	}
	return strings.Join(names, ", ")
}

var errCPU = errors.New("must be CPU numbers separated by commas, such as 1 or 2,3")

func parseCPUs(s string) ([]int, error) {
	if s == "" {
		return nil, nil
	}
	var cpus []int
	for _, f := range strings.Split(s, ",") {
		n, err := strconv.Atoi(f)
		if err != nil || n < 0 || n > 1023 {
			return nil, &cli.UsageError{Err: fmt.Errorf("--cpu %q: %w", s, errCPU)}
		}
		if slices.Contains(cpus, n) {
			return nil, cli.Usagef("--cpu %q: CPU %d is named twice", s, n)
		}
		cpus = append(cpus, n)
	}
	if err := cli.CheckCPUs(cpus); err != nil {
		return nil, fmt.Errorf("--cpu: %w", err)
	}
	return cpus, nil
}
