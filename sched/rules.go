package sched

import (
	"errors"
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
	next := *o
	err := next.addRule(rule)
	if err == nil {
		err = next.Validate()
	}
	if err != nil {
		return fmt.Errorf("priority rule %q: %w", rule, err)
	}
	*o = next
	return nil
}

func (o *ClassifierOptions) addRule(rule string) error {
	kind, value, _ := strings.Cut(rule, "=")
	switch kind {
	case "dscp":
		return addNumber(&o.DSCP, value, 0, 63)
	case "ethertype":
		for _, e := range etherNames {
			if e.name == value {
				value = strconv.Itoa(int(e.value))
			}
		}
		return addNumber(&o.EtherTypes, value, minEtherType, 0xffff)
	case "udp":
		return addNumber(&o.UDPPorts, value, 1, 0xffff)
	case "tcp":
		return addNumber(&o.TCPPorts, value, 1, 0xffff)
	}
	return errors.New("must be dscp=46, ethertype=0x8809 (or arp, eapol, lacp, lldp, ptp), udp=53 or tcp=22, with numbers of your own")
}

// addNumber appends the number that text has to a list that has not got it.
func addNumber[T uint8 | uint16](list *[]T, text string, lowest, highest uint64) error {
	base, digits := 10, text
	if hex, ok := strings.CutPrefix(text, "0x"); ok {
		base, digits = 16, hex
	}
	n, err := strconv.ParseUint(digits, base, 16)
	switch {
	case (err != nil || n < lowest || n > highest) && lowest == minEtherType:
		return fmt.Errorf("must be a number between %#04x and %#04x, or arp, eapol, lacp, lldp or ptp", lowest, highest)
	case err != nil || n < lowest || n > highest:
		return fmt.Errorf("must be a number between %d and %d", lowest, highest)
	case slices.Contains(*list, T(n)):
		return errors.New("is given twice: leave one out")
	}
	*list = append(*list, T(n))
	return nil
}
