package gen

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"
)

// Range is a range of addresses and one of ports; both ends are in it.
type Range struct {
	First, Last         netip.Addr
	FirstPort, LastPort uint16
}

// ParseRange reads "ADDR[:PORT][-ADDR[:PORT]]", as pkt-gen takes it; IPv6
// addresses with a port stand in brackets. port is what is used for none.
func ParseRange(s string, port uint16) (r Range, err error) {
	first, last, two := strings.Cut(s, "-")
	if r.First, r.FirstPort, err = endpoint(first, port); err != nil {
		return Range{}, err
	}
	r.Last, r.LastPort = r.First, r.FirstPort
	if two {
		if r.Last, r.LastPort, err = endpoint(last, r.FirstPort); err != nil {
			return Range{}, err
		}
	}
	switch {
	case r.First.Is4() != r.Last.Is4():
		return Range{}, fmt.Errorf("range %s: both ends must be IPv4 or both IPv6", s)
	case r.Last.Less(r.First) || r.LastPort < r.FirstPort:
		return Range{}, fmt.Errorf("range %s: its end is before its start", s)
	case r.addrs() == 0:
		return Range{}, fmt.Errorf("range %s: more than 2^63 addresses", s)
	}
	return r, nil
}

func endpoint(s string, port uint16) (netip.Addr, uint16, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" && !a.Is4In6() {
		return a, port, nil
	}
	ap, err := netip.ParseAddrPort(s)
	if err != nil || ap.Addr().Zone() != "" || ap.Addr().Is4In6() {
		return netip.Addr{}, 0, fmt.Errorf("%q: must be an address such as 10.0.0.1, 10.0.0.1:80, 2001:db8::1 or [2001:db8::1]:80", s)
	}
	return ap.Addr(), ap.Port(), nil
}

// addrs is the number of addresses; 0 if there are more than 2^63.
func (r *Range) addrs() uint64 {
	ah, al := halves(r.First)
	bh, bl := halves(r.Last)
	lo, borrow := bits.Sub64(bl, al, 0)
	hi, _ := bits.Sub64(bh, ah, borrow)
	if hi != 0 || lo >= 1<<63 {
		return 0
	}
	return lo + 1
}

// ports is the number of ports.
func (r *Range) ports() uint64 { return uint64(r.LastPort-r.FirstPort) + 1 }

func halves(a netip.Addr) (hi, lo uint64) {
	if a.Is4() {
		b := a.As4()
		return 0, uint64(binary.BigEndian.Uint32(b[:]))
	}
	b := a.As16()
	return binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[8:])
}

// Sizes gives the size of each frame in turn.
type Sizes struct {
	lo, hi int
	random bool
	list   []int // in turn, if not empty
	next   int
	state  uint64
}

// imix is the simple Internet mix: 7 frames of 64, 4 of 594, 1 of 1518 bytes
// with the checksum, spread so that runs are short.
var imix = [...]int{60, 590, 60, 60, 590, 60, 1514, 60, 590, 60, 60, 590}

// ParseSizes reads "N" (one size), "N-M" (each in turn), "random:N-M", or
// "imix". Sizes go from lo to hi.
func ParseSizes(s string, lo, hi int) (z Sizes, err error) {
	if s == "imix" {
		z.list = imix[:]
		if hi < 1514 {
			return z, fmt.Errorf("imix: has frames of 1514 bytes, more than the %d that may be sent", hi)
		}
		return z, nil
	}
	body, random := strings.CutPrefix(s, "random:")
	first, last, two := strings.Cut(body, "-")
	z.random = random
	if z.lo, err = size(first, lo, hi); err == nil && two {
		z.hi, err = size(last, lo, hi)
	}
	if err != nil {
		return Sizes{}, fmt.Errorf("size %q: %w", s, err)
	}
	if !two {
		z.hi = z.lo
	}
	if z.hi < z.lo || random && !two {
		return Sizes{}, fmt.Errorf("size %q: must be N, N-M, random:N-M or imix", s)
	}
	z.next, z.state = z.lo, 0x9e3779b97f4a7c15
	return z, nil
}

func size(s string, lo, hi int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < lo || n > hi {
		return 0, fmt.Errorf("must be N, N-M or random:N-M, each %d to %d bytes, without the checksum", lo, hi)
	}
	return n, nil
}

// Next returns the next size.
func (z *Sizes) Next() int {
	switch {
	case z.list != nil:
		n := z.list[z.next]
		if z.next++; z.next == len(z.list) {
			z.next = 0
		}
		return n
	case z.lo == z.hi:
		return z.lo
	case z.random:
		return z.lo + int(xorshift(&z.state)%uint64(z.hi-z.lo+1))
	}
	n := z.next
	if z.next++; z.next > z.hi {
		z.next = z.lo
	}
	return n
}

// Max is the largest size; Fixed reports that there is only one.
func (z *Sizes) Max() int {
	if z.list != nil {
		return 1514
	}
	return z.hi
}

func (z *Sizes) Fixed() bool { return z.list == nil && z.lo == z.hi }

// xorshift is xorshift64* (Vigna, 2016): plenty for varying headers.
func xorshift(s *uint64) uint64 {
	x := *s
	x ^= x >> 12
	x ^= x << 25
	x ^= x >> 27
	*s = x
	return x * 0x2545f4914f6cdd1d
}
