package gen

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

func mustRange(t testing.TB, s string, port uint16) Range {
	t.Helper()
	r, err := ParseRange(s, port)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustSizes(t testing.TB, s string) Sizes {
	t.Helper()
	z, err := ParseSizes(s, 14, 65000)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// checked decodes a frame with another decoder and recomputes its checksums
// with that.
func checked(t *testing.T, f []byte) gopacket.Packet {
	t.Helper()
	p := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default)
	if e := p.ErrorLayer(); e != nil {
		t.Fatalf("decode: %v\n% x", e.Error(), f)
	}
	if ip, ok := p.NetworkLayer().(*layers.IPv6); ok && ip.NextHeader == layers.IPProtocolICMPv6 {
		// gopacket loses the payload of echo requests: add up by hand.
		sum := uint32(len(ip.Payload)) + 58
		for _, b := range [][]byte{ip.SrcIP, ip.DstIP, ip.Payload} {
			for i, x := range b {
				sum += uint32(x) << (8 * (1 - i%2))
			}
		}
		for sum>>16 != 0 {
			sum = sum>>16 + sum&0xffff
		}
		if sum != 0xffff || int(ip.Length) != len(ip.Payload) {
			t.Fatalf("ICMPv6: sum %#x, length %d of %d\n% x", sum, ip.Length, len(ip.Payload), f)
		}
		return p
	}
	var out []gopacket.SerializableLayer
	for _, l := range p.Layers() {
		s, ok := l.(gopacket.SerializableLayer)
		if !ok {
			continue
		}
		switch x := l.(type) {
		case *layers.TCP:
			x.SetNetworkLayerForChecksum(p.NetworkLayer())
		case *layers.UDP:
			x.SetNetworkLayerForChecksum(p.NetworkLayer())
		case *layers.ICMPv6:
			x.SetNetworkLayerForChecksum(p.NetworkLayer())
		}
		out = append(out, s)
	}
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, out...); err != nil {
		t.Fatal(err)
	}
	if got := b.Bytes(); len(got) < len(f) || string(got[:len(f)]) != string(f) {
		t.Fatalf("a recomputed frame differs:\n% x\n% x", f, got)
	}
	return p
}

func TestFramesAreValid(t *testing.T) {
	for _, proto := range []Proto{UDP, TCP, ICMP} {
		for _, addrs := range [][2]string{{"10.0.0.1:1000-10.0.0.3:1003", "10.1.0.1:80-10.1.0.2"}, {"[2001:db8::1]:7-[2001:db8::3]:9", "2001:db8::ffff-2001:db8::1:1"}} {
			for _, sizes := range []string{"random:110-1514", "110-150", "111"} {
				for tags := range 3 {
					for _, probe := range []bool{false, true} {
						c := Config{SrcMAC: [6]byte{2, 0, 0, 0, 0, 1}, DstMAC: [6]byte{2, 0, 0, 0, 0, 2}, Proto: proto,
							Tags: []uint32{0x88a80005, 0x81000006}[:tags], Src: mustRange(t, addrs[0], 1), Dst: mustRange(t, addrs[1], 9),
							Sizes: mustSizes(t, sizes), Pattern: []byte("netring"), Probe: probe}
						b, err := New(c, 0, 1)
						if err != nil {
							t.Fatal(err)
						}
						buf := make([]byte, 2000)
						for i := range 40 {
							n := b.Next(buf, &Probe{Seq: uint64(i), Time: int64(i) << 40, Kind: ProbePing})
							checked(t, buf[:n])
							var p Probe
							if FindProbe(buf[:n], &p) != probe || probe && (p.Seq != uint64(i) || p.Time != int64(i)<<40 || p.Kind != ProbePing) {
								t.Fatalf("probe %v: %+v", probe, p)
							}
						}
					}
				}
			}
		}
	}
}

func TestRangesAreCovered(t *testing.T) {
	c := Config{Src: mustRange(t, "10.0.0.1:5-10.0.0.3:6", 0), Dst: mustRange(t, "10.1.0.1:80-10.1.0.2:81", 0), Sizes: mustSizes(t, "60")}
	seen := map[string]int{}
	buf := make([]byte, 100)
	for part := range 2 { // two threads start at different places
		b, err := New(c, part, 2)
		if err != nil {
			t.Fatal(err)
		}
		if b.Flows() != 24 {
			t.Fatalf("%d flows, want 3*2*2*2", b.Flows())
		}
		for range 24 {
			p := checked(t, buf[:b.Next(buf, nil)])
			seen[fmt.Sprint(p.NetworkLayer().NetworkFlow(), p.TransportLayer().TransportFlow())]++
		}
	}
	if len(seen) != 24 {
		t.Errorf("%d different flows of 24", len(seen))
	}
	for f, n := range seen {
		if n != 2 {
			t.Errorf("flow %s %d times by two threads", f, n)
		}
	}
}

func TestParseRange(t *testing.T) {
	r := mustRange(t, "10.0.0.250:7-10.0.1.5:9", 1)
	if r.addrs() != 12 || r.ports() != 3 {
		t.Errorf("%d addresses, %d ports", r.addrs(), r.ports())
	}
	if r := mustRange(t, "fe80::1", 9); r.First != netip.MustParseAddr("fe80::1") || r.FirstPort != 9 || r.LastPort != 9 {
		t.Errorf("%+v", r)
	}
	for _, bad := range []string{"", "x", "10.0.0.2-10.0.0.1", "10.0.0.1-::1", "10.0.0.1:9-10.0.0.1:8", "10.0.0.1:70000", "fe80::1%eth0", "::-ffff::", "10.0.0.1-"} {
		if r, err := ParseRange(bad, 1); err == nil {
			t.Errorf("%q accepted: %+v", bad, r)
		}
	}
}

func TestParseSizes(t *testing.T) {
	z := mustSizes(t, "60-62")
	for i, want := range []int{60, 61, 62, 60} {
		if got := z.Next(); got != want {
			t.Errorf("size %d: %d, want %d", i, got, want)
		}
	}
	mix := mustSizes(t, "imix")
	count := map[int]int{}
	for range 12 {
		count[mix.Next()]++
	}
	if count[60] != 7 || count[590] != 4 || count[1514] != 1 {
		t.Errorf("imix: %v", count)
	}
	for _, bad := range []string{"", "x", "62-60", "random:60", "13", "70000", "60-", "imix2"} {
		if _, err := ParseSizes(bad, 14, 65000); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
	if _, err := ParseSizes("imix", 14, 1000); err == nil {
		t.Error("imix accepted with a bound of 1000")
	}
}

func TestTooSmall(t *testing.T) {
	c := Config{Src: mustRange(t, "10.0.0.1", 1), Dst: mustRange(t, "10.0.0.2", 1), Sizes: mustSizes(t, "60"), Probe: true}
	if _, err := New(c, 0, 1); err == nil || !strings.Contains(err.Error(), fmt.Sprint(c.MinSize())) {
		t.Errorf("60 bytes with a probe: %v, want one that names %d", err, c.MinSize())
	}
}

// TestSchedule drives a schedule by random steps against exact arithmetic.
func TestSchedule(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, rate := range []uint64{1, 3, 10, 999, 1000000, 14880952, 1 << 40} {
		const start = 12345 * time.Hour // as after a long time up
		s := NewSchedule(rate, 1, start)
		now := start
		var sent uint64
		for range 2000 {
			due := s.Due(now)
			s.Sent(due)
			sent += due
			want := mulDiv(rate, uint64(now-start), 1e9) + 1
			if sent+s.Late() != want {
				t.Fatalf("rate %d at %v: %d sent and %d late, want %d in all", rate, now-start, sent, s.Late(), want)
			}
			if next := s.Next(1); next <= now || s.due(next) == 0 || next > now+1 && s.due(next-1) != 0 {
				t.Fatalf("rate %d: next at %v after %v: %d due then, %d just before", rate, next-start, now-start, s.due(next), s.due(next-1))
			}
			now += time.Duration(rnd.Int64N(1e6))
		}
		if s.Late() > 0 && rate < 1e9 {
			t.Errorf("rate %d: %d late with steps below the slack", rate, s.Late())
		}
	}
}

// due is Due without giving anything up.
func (s *Schedule) due(now time.Duration) uint64 {
	c := *s
	return c.Due(now)
}

func TestScheduleStall(t *testing.T) {
	s := NewSchedule(1000000, 1, 0)
	s.Sent(s.Due(0))
	if due := s.Due(time.Second); due != 2000 {
		t.Errorf("after a stall of a second %d packets at once, want 2 ms' worth", due)
	}
	if s.Late() != 1000000-2000 {
		t.Errorf("%d late", s.Late())
	}
	// Long runs do not wrap.
	s = NewSchedule(14880952, 1, 0)
	s.sent = 14880952 * 3600 * 24 * 365
	if due := s.Due(365 * 24 * time.Hour); due != 1 {
		t.Errorf("after a year: %d due", due)
	}
	if NewSchedule(0, 1, 0).Due(0) != 1<<64-1 {
		t.Error("no rate is no limit")
	}
}

// TestTracker compares with a set of all numbers.
func TestTracker(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for round := range 50 {
		var tr Tracker
		seen := map[uint64]bool{}
		var dup, reord, high uint64
		first := uint64(1<<64 - 1)
		seq := uint64(rnd.IntN(1000))
		for range 3000 {
			n := seq
			switch rnd.IntN(20) {
			case 0: // lost
				seq++
				continue
			case 1: // late or double
				n = seq - min(seq, uint64(rnd.IntN(200)))
			case 2: // a jump
				seq += uint64(rnd.IntN(100))
				n = seq
				seq++
			default:
				seq++
			}
			tr.Observe(n)
			switch {
			case seen[n]:
				dup++
			case len(seen) > 0 && n < high:
				reord++
			}
			seen[n] = true
			high, first = max(high, n), min(first, n)
		}
		lost := high - first + 1 - uint64(len(seen))
		if tr.Duplicates != dup || tr.Reordered != reord || tr.Lost() != lost || tr.Stale != 0 {
			t.Fatalf("round %d: %d duplicates, %d reordered, %d lost, %d stale; want %d, %d, %d", round, tr.Duplicates, tr.Reordered, tr.Lost(), tr.Stale, dup, reord, lost)
		}
	}
	var tr Tracker
	tr.Observe(0)
	tr.Observe(200000)
	tr.Observe(5)
	if tr.Stale != 1 || tr.Lost() != 200000-1-1 {
		t.Errorf("stale %d, lost %d", tr.Stale, tr.Lost())
	}
}

func FuzzFindProbe(f *testing.F) {
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, frame []byte) {
		var p Probe
		FindProbe(frame, &p)
	})
}

func FuzzParseRange(f *testing.F) {
	f.Add("10.0.0.1:80-10.0.0.9:90")
	f.Add("[::1]:1-[::2]:3")
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRange(s, 7)
		if err != nil {
			return
		}
		var b [16]byte
		c := r.cursor()
		if c.addr = r.addrs() - 1; r.First.Is4() {
			c.put4(b[:])
		} else {
			c.put6(b[:])
		}
		if last := r.Last.AsSlice(); string(b[:len(last)]) != string(last) {
			t.Errorf("%q: the last of %d addresses is % x", s, r.addrs(), b)
		}
	})
}

// Where nothing varies the frames are the same, and the same as those of a
// builder that varies something, once it is round.
