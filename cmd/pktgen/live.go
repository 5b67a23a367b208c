package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/gen"
	"github.com/netring/netring/internal/livegen"
	"github.com/netring/netring/internal/netdev"
)

// live is the engine xdp: the kernel makes the frames itself.
type live struct {
	j     *job
	g     *livegen.Generator
	index int
	n     *counts
	links *netlink.Handle // of the namespace that the port is in
	base  uint64          // frames that the interface had sent before
}

const (
	// With a rate, one system call makes frames of about sliceTime at most,
	// and of gatherTime at least.
	sliceTime  = 60 * time.Millisecond
	gatherTime = 20 * time.Millisecond
	maxSlice   = 1 << 20
	// Without, it is one as long as possible.
	maxRun = 1 << 30
	// collectTime is between looks at the interface's counters.
	collectTime = 100 * time.Millisecond
)

func newLive(j *job) (*live, error) {
	f := &j.frames
	switch {
	case j.threads > 1:
		return nil, errors.New("engine xdp has one thread: run one pktgen for each core")
	case !f.Sizes.Fixed():
		return nil, errors.New("engine xdp sends frames of one size")
	case f.RandomSrc || f.RandomDst:
		return nil, errors.New("engine xdp varies addresses in turn, not at random")
	}
	dev, err := netdev.Open(j.spec.Name, false)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", j.spec.Name, err)
	}
	defer dev.Close()
	if err := dev.State(); err != nil {
		return nil, fmt.Errorf("%s: %w", j.spec.Name, err)
	}
	if n := f.Sizes.Max(); n > dev.MTU+14+4 {
		return nil, fmt.Errorf("frames of %d bytes: %s sends up to %d", n, j.spec.Name, dev.MTU+14)
	}
	spec, err := liveSpec(f, dev.Index)
	if err != nil {
		return nil, err
	}
	l := &live{j: j, index: dev.Index, n: &counts{}}
	if l.links, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	if l.base, err = l.transmitted(); err == nil {
		l.g, err = livegen.New(spec)
	}
	if err != nil {
		l.links.Close()
		return nil, err
	}
	j.counts = append(j.counts, l.n)
	return l, nil
}

// liveSpec turns the frames' description into a program's.
func liveSpec(f *gen.Config, ifindex int) (livegen.Spec, error) {
	b, err := gen.New(*f, 0, 1)
	if err != nil {
		return livegen.Spec{}, err
	}
	frame := make([]byte, f.Sizes.Max())
	b.Next(frame, &gen.Probe{})
	s := livegen.Spec{Frame: frame, Ifindex: ifindex}
	l3 := 14 + 4*len(f.Tags)
	l4, src, dst := l3+40, l3+8+12, l3+24+12 // the last 4 bytes of IPv6 addresses
	v4 := f.Src.First.Is4()
	if v4 {
		l4, src, dst = l3+20, l3+12, l3+16
		s.IPSum = l3 + 10
	}
	s.L4Sum = l4 + map[gen.Proto]int{gen.UDP: 6, gen.TCP: 16, gen.ICMP: 2}[f.Proto]
	pseudo := f.Proto != gen.ICMP || !v4
	for _, r := range []struct {
		r          *gen.Range
		port, addr int
	}{{&f.Src, l4, src}, {&f.Dst, l4 + 2, dst}} {
		port := r.port
		if f.Proto == gen.ICMP {
			port += 4
		}
		s.Fields = append(s.Fields, livegen.Field{Off: port, Size: 2, First: uint32(r.r.FirstPort), Count: uint64(r.r.LastPort-r.r.FirstPort) + 1, L4: true})
		lo, hi := low32(r.r.First), low32(r.r.Last)
		if hi < lo || high(r.r.First) != high(r.r.Last) {
			return s, errors.New("engine xdp varies the last 32 bits of an address: choose a range within them")
		}
		s.Fields = append(s.Fields, livegen.Field{Off: r.addr, Size: 4, First: lo, Count: uint64(hi-lo) + 1, IP: v4, L4: pseudo})
	}
	if f.Probe {
		s.Seq, s.Time = b.PayloadOffset()+6, b.PayloadOffset()+14
	}
	return s, nil
}

func low32(a netip.Addr) uint32 {
	b := a.AsSlice()
	return binary.BigEndian.Uint32(b[len(b)-4:])
}

func high(a netip.Addr) string {
	b := a.AsSlice()
	return string(b[:len(b)-4])
}

func (l *live) run(ctx context.Context) error {
	cost := l.j.rates.cost(l.j.frames.Sizes.Max())
	// Each run sets up memory: frames of a rate are collected for a while.
	least := max(cost, mul(l.j.rates.per, gatherTime))
	s := gen.NewSchedule(l.j.rates.per, 4*least, l.j.clock.now())
	slice := uint64(4096) // the first one is short: it shows whether frames arrive
	var sent uint64
	for ctx.Err() == nil && (l.j.count == 0 || sent < l.j.count) {
		now := l.j.clock.now()
		n := min(s.Due(now)/cost, slice, maxSlice)
		if l.j.rates.per == 0 && sent != 0 {
			n = maxRun
		}
		if l.j.count != 0 {
			n = min(n, l.j.count-sent)
		}
		if n == 0 || s.Due(now) < least && n != l.j.count-sent {
			time.Sleep(min(max(s.Next(least)-now, time.Millisecond), sliceTime))
			continue
		}
		if err := l.make(ctx, uint32(n)); err != nil {
			return err
		}
		took := l.j.clock.now() - now
		s.Sent(n * cost)
		first := sent == 0
		var err error
		if sent, err = l.g.Sent(); err != nil {
			return err
		}
		if err := l.collect(sent, first); err != nil {
			return err
		}
		slice = uint64(float64(n) * float64(sliceTime) / float64(max(took, time.Microsecond)))
		l.n.calls.Add(1)
		l.n.late.Store(s.Late())
	}
	return nil
}

// mul is the units of a rate in a time.
func mul(rate uint64, d time.Duration) uint64 {
	return uint64(float64(rate) * d.Seconds())
}

// make makes n frames, and counts while the system call goes on.
func (l *live) make(ctx context.Context, n uint32) error {
	over, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		t := time.NewTicker(collectTime)
		defer t.Stop()
		for {
			select {
			case <-over:
				return
			case <-t.C:
				// An error comes again when the call is over.
				if sent, err := l.g.Sent(); err == nil {
					_, _ = l.count(sent)
				}
			}
		}
	}()
	err := l.g.Run(ctx, n)
	close(over)
	<-gone
	return err
}

// transmitted is how many frames the interface has sent in all.
func (l *live) transmitted() (uint64, error) {
	dev, err := l.links.LinkByIndex(l.index)
	if err != nil {
		return 0, fmt.Errorf("counters of %s: %w", l.j.spec.Name, err)
	}
	return dev.Attrs().Statistics.TxPackets, nil
}

// count counts as sent, of those that the program made, what the interface says
// that it sent.
func (l *live) count(made uint64) (done uint64, err error) {
	total, err := l.transmitted()
	if err != nil {
		return 0, err
	}
	done = min(made, total-l.base)
	l.n.packets.Store(done)
	l.n.bytes.Store(done * uint64(l.j.frames.Sizes.Max()))
	return done, nil
}

// collect is count between two runs, when none is under way.
func (l *live) collect(made uint64, first bool) error {
	done, err := l.count(made)
	if err != nil {
		return err
	}
	if first && done == 0 {
		return fmt.Errorf("%s sent none of %d frames: a veth drops them unless its peer has NAPI (ethtool -K PEER gro on, or an XDP program there); other drivers need ndo_xdp_xmit", l.j.spec.Name, made)
	}
	l.n.refused.Store(made - done)
	return nil
}

func (l *live) close() error {
	l.links.Close()
	return l.g.Close()
}
