package sched

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/netring/netring/internal/packet"
)

// etherNames are the EtherTypes that a rule may call by name: protocols between
// neighbours, which are few frames and not to be late.
var etherNames = []struct {
	name  string
	value uint16
}{
	{"arp", packet.TypeARP},
	{"eapol", 0x888e},
	{"lacp", 0x8809},
	{"lldp", 0x88cc},
	{"ptp", 0x88f7},
}

// AddRule adds a rule in the way that it is written on a command line:
//
//	dscp=46           a code point, 0 to 63
//	ethertype=0x8809  a number, or one of arp, eapol, lacp, lldp and ptp
//	udp=53            a source or destination port
//	tcp=22
//
// Numbers are decimal, or hexadecimal with 0x. A rule that is there already is
// refused.
func (o *ClassifierOptions) AddRule(rule string) error {
	kind, value, ok := strings.Cut(rule, "=")
	if !ok {
		return fmt.Errorf("priority rule %q: must be %s", rule, ruleForms)
	}
	var known bool
	var err error
	switch kind {
	case "dscp":
		known, err = addRule(&o.DSCP, value, 0, 63)
	case "ethertype":
		for _, e := range etherNames {
			if e.name == value {
				value = strconv.Itoa(int(e.value))
			}
		}
		known, err = addRule(&o.EtherTypes, value, minEtherType, 0xffff)
	case "udp":
		known, err = addRule(&o.UDPPorts, value, 1, 0xffff)
	case "tcp":
		known, err = addRule(&o.TCPPorts, value, 1, 0xffff)
	default:
		return fmt.Errorf("priority rule %q: must be %s", rule, ruleForms)
	}
	switch {
	case err != nil:
		return fmt.Errorf("priority rule %q: %w", rule, err)
	case known:
		return fmt.Errorf("priority rule %q: is given twice: leave one out", rule)
	}
	if err := o.Validate(); err != nil {
		return fmt.Errorf("priority rule %q: %w", rule, err)
	}
	return nil
}

const ruleForms = "dscp=46, ethertype=0x8809 (or arp, eapol, lacp, lldp, ptp), udp=53 or tcp=22"

// addRule appends the number in text, which must lie between lowest and highest, unless
// it is there.
func addRule[T uint8 | uint16](list *[]T, text string, lowest, highest uint64) (known bool, err error) {
	base, digits := 10, text
	if hex, ok := strings.CutPrefix(text, "0x"); ok {
		base, digits = 16, hex
	}
	n, err := strconv.ParseUint(digits, base, 16)
	if err != nil || n < lowest || n > highest {
		if lowest == minEtherType {
			return false, fmt.Errorf("must be a number between %#04x and %#04x, or arp, eapol, lacp, lldp or ptp", lowest, highest)
		}
		return false, fmt.Errorf("must be a number between %d and %d", lowest, highest)
	}
	if slices.Contains(*list, T(n)) {
		return true, nil
	}
	*list = append(*list, T(n))
	return false, nil
}
