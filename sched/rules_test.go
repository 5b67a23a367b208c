package sched

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestAddRule(t *testing.T) {
	var o ClassifierOptions
	for _, r := range []string{
		"dscp=46", "dscp=0", "dscp=0x3f", "ethertype=0x8809", "ethertype=arp", "ethertype=35020", "ethertype=ptp",
		"ethertype=eapol", "udp=53", "udp=65535", "tcp=22", "tcp=53",
	} {
		if err := o.AddRule(r); err != nil {
			t.Error(err)
		}
	}
	want := ClassifierOptions{
		DSCP: []uint8{46, 0, 63}, EtherTypes: []uint16{0x8809, 0x0806, 0x88cc, 0x88f7, 0x888e}, UDPPorts: []uint16{53, 65535}, TCPPorts: []uint16{22, 53},
	}
	if !reflect.DeepEqual(o, want) {
		t.Errorf("%+v, want %+v", o, want)
	}
	for _, r := range []string{
		"", "=", "dscp", "dscp=", "dscp=64", "dscp=-1", "dscp=+1", "dscp=4 6", "dscp=ef", "dscp=0x", "DSCP=46", " dscp=46", "dscp=46 ",
		"ethertype=", "ethertype=0x5ff", "ethertype=0x10000", "ethertype=0x8100", "ethertype=0x88a8", "ethertype=ARP", "ethertype=lacp,arp",
		"udp=0", "udp=65536", "udp=domain", "udp=53-54", "tcp=0", "tcp=", "tcp=0x1g", "tcp=0b1", "tcp=1_0", "port=1",
		"dscp=46", "dscp=0x2e", "ethertype=lacp", "udp=53", "tcp=22", // again
	} {
		before := fmt.Sprint(o.DSCP, o.UDPPorts, o.TCPPorts)
		err := o.AddRule(r)
		if err == nil {
			t.Errorf("rule %q was accepted", r)
			continue
		}
		if !strings.Contains(err.Error(), fmt.Sprintf("%q", r)) || fmt.Sprint(o.DSCP, o.UDPPorts, o.TCPPorts) != before {
			t.Errorf("rule %q: %v", r, err)
		}
	}
}
