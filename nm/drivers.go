package nm

import (
	"errors"
	"strconv"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/netring/netring/ring/tpacket"
	"github.com/netring/netring/ring/xdp"
)

// conf returns a count of the conf option: the direction's own key, or the
// common one; 0 if neither is there.
func conf(s *PortSpec, dir, what string) int {
	o := s.Option("conf")
	if o == nil {
		return 0
	}
	for _, key := range []string{dir + "-" + what, what} {
		if v, ok := o.Get(key); ok {
			n, _ := strconv.Atoi(v) // the parser has checked it
			return n
		}
	}
	return 0
}

// set overrides *p by n unless n is 0.
func set(p *int, n int) {
	if n != 0 {
		*p = n
	}
}

// TPACKETOptions returns o with what the port's name says instead, for a port
// that [tpacket.Open] opens.
func (p *PortSpec) TPACKETOptions(o tpacket.Options) (tpacket.Options, error) {
	set(&o.RxQueues, conf(p, "rx", "rings"))
	set(&o.TxQueues, conf(p, "tx", "rings"))
	set(&o.RxSlots, conf(p, "rx", "slots"))
	set(&o.TxSlots, conf(p, "tx", "slots"))
	if opt := p.Option("tpacket"); opt != nil {
		tpacketOptions(&o, opt)
	}
	if p.Select == OneRing {
		if o.RxQueues > 1 || o.TxQueues > 1 || o.Filter != nil {
			return o, errors.New("one ring (-N) goes neither with several rings nor with a filter")
		}
		o.Filter = queueFilter(p.Ring)
	}
	switch {
	case p.Flags&(MonitorRX|MonitorTX) != 0:
		o.TxQueues = -1
		o.Outgoing = p.Flags&MonitorTX != 0
		if p.Flags&MonitorRX == 0 {
			o.Filter = outgoingFilter()
		}
	case p.Flags&RXOnly != 0:
		o.TxQueues = -1
	case p.Flags&TXOnly != 0:
		o.RxQueues = -1
	}
	return o, nil
}

// tpacketOptions takes over the values of a tpacket option, which the parser
// has checked.
func tpacketOptions(t *tpacket.Options, opt *Option) {
	for _, kv := range opt.Keys {
		switch kv.Key {
		case "version":
			t.Version = tpacket.Version(kv.Value[0] - '0')
		case "block-size":
			t.BlockSize, _ = strconv.Atoi(kv.Value)
		case "fanout":
			t.Fanout = map[string]tpacket.Fanout{"hash": tpacket.FanoutHash, "lb": tpacket.FanoutLB, "cpu": tpacket.FanoutCPU,
				"qm": tpacket.FanoutQM, "rollover": tpacket.FanoutRollover}[kv.Value]
		case "vnet":
			t.NoVnet = kv.Value == "off"
		case "bypass":
			t.QdiscBypass = kv.Value == "on"
		case "promisc":
			t.NoPromisc = kv.Value == "off"
		case "profile":
			t.Profile = map[string]tpacket.Profile{"throughput": tpacket.Throughput, "latency": tpacket.Latency, "lowmem": tpacket.LowMemory}[kv.Value]
		}
	}
}

// queueFilter admits what arrived on hardware queue n. The kernel records
// queue n as n+1; frames of devices without queues have 0 and are queue 0's.
func queueFilter(n int) []bpf.RawInstruction {
	const keep = 1 << 18
	prog := []bpf.Instruction{bpf.LoadExtension{Num: bpf.ExtQueue}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(n + 1), SkipTrue: 1},
		bpf.RetConstant{Val: 0}, bpf.RetConstant{Val: keep}}
	if n == 0 {
		prog = []bpf.Instruction{bpf.LoadExtension{Num: bpf.ExtQueue}, bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: 1, SkipTrue: 1},
			bpf.RetConstant{Val: keep}, bpf.RetConstant{Val: 0}}
	}
	raw, _ := bpf.Assemble(prog) // constant instructions always assemble
	return raw
}

// outgoingFilter admits what the host sends.
func outgoingFilter() []bpf.RawInstruction {
	raw, _ := bpf.Assemble([]bpf.Instruction{bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PACKET_OUTGOING, SkipTrue: 1}, bpf.RetConstant{Val: 0}, bpf.RetConstant{Val: 1 << 18}})
	return raw
}

// XDPOptions are the options of an AF_XDP port and of memory for it.
type XDPOptions struct {
	xdp.Options
	Frames, FrameSize int // 0 where the name does not say
}

// XDPOptions returns o with what the port's name says instead, for a port that
// [xdp.Open] opens.
func (p *PortSpec) XDPOptions(o xdp.Options) (XDPOptions, error) {
	x := XDPOptions{Options: o}
	n := conf(p, "rx", "rings")
	if n != conf(p, "tx", "rings") {
		return x, errors.New("an AF_XDP port has as many transmit as receive rings: give both with @conf:rings=")
	}
	set(&x.Slots, conf(p, "rx", "slots"))
	set(&x.TxSlots, conf(p, "tx", "slots"))
	switch {
	case p.Select == OneRing && n > 1:
		return x, errors.New("one ring (-N) does not go with several rings")
	case p.Select == OneRing:
		x.Queues = []int{p.Ring}
	case n != 0:
		x.Queues = nil
		for q := range n {
			x.Queues = append(x.Queues, q)
		}
	}
	x.TXOnly = x.TXOnly || p.Flags&TXOnly != 0
	opt := p.Option("xdp")
	if opt == nil {
		return x, nil
	}
	for _, kv := range opt.Keys {
		switch kv.Key { // the parser has checked the values
		case "mode":
			x.Attach = map[string]xdp.Attach{"auto": xdp.AttachAuto, "native": xdp.AttachNative, "generic": xdp.AttachGeneric}[kv.Value]
		case "zerocopy":
			x.ZeroCopy = map[string]xdp.ZeroCopy{"auto": xdp.ZeroCopyAuto, "force": xdp.ZeroCopyForce, "never": xdp.ZeroCopyNever}[kv.Value]
		case "multibuf":
			x.MultiBuffer = kv.Value == "on"
		case "promisc":
			x.NoPromisc = kv.Value == "off"
		case "coalesce":
			if x.Coalesce = -1; kv.Value != "off" {
				x.Coalesce, _ = time.ParseDuration(kv.Value)
			}
		case "frames":
			x.Frames, _ = strconv.Atoi(kv.Value)
		case "frame-size":
			x.FrameSize, _ = strconv.Atoi(kv.Value)
		}
	}
	return x, nil
}
