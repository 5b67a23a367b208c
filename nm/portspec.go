package nm

import (
	"errors"
	"fmt"
	"strings"
)

// Kind is what a port name names.
type Kind uint8

const (
	KindNetmap Kind = iota // an interface through TPACKET, or a pipe: "netmap:eth0", "eth0"
	KindXDP                // an interface through AF_XDP: "xdp:eth0"
	KindVale               // a port of a switch: "vale0:p"
	KindLagg               // several interfaces as one: "lagg:eth1+eth2"
	KindPcap               // a capture file: "pcap:in.pcap"
)

var kindPrefix = [...]string{"netmap", "xdp", "vale", "lagg", "pcap"}

func (k Kind) String() string { return kindPrefix[k] }

// Select says which rings of a port are meant.
type Select uint8

const (
	AllRings    Select = iota // every hardware ring
	OneRing                   // "-N": ring pair N
	HostRings                 // "^": the rings towards the host's stack
	OneHostRing               // "^N"
	AllAndHost                // "*"
)

// PortFlags are the letters after "/".
type PortFlags uint8

const (
	Exclusive PortFlags = 1 << iota // x: nobody else may open the port
	RXOnly                          // R: receive rings only
	TXOnly                          // T: transmit rings only
	MonitorRX                       // r: copies of what the port receives
	MonitorTX                       // t: copies of what it sends
	MonitorZC                       // z: monitor without copying
)

const flagLetters = "xRTrtz"

// Bounds of the grammar.
const (
	maxName    = 63     // bytes of a name, switch and all
	maxIfName  = 15     // bytes of an interface name
	maxRing    = 0xffe  // highest ring number
	maxMemID   = 0xffff // highest memory id
	bracketed  = '['
	nameErrFmt = "nm: port %q: %s"
)

// Option is one "@name:key=value,..." of a port name. A value for the option
// as such ("@name=value") has the option's default key.
type Option struct {
	Name string
	Keys []KeyValue
}

// KeyValue is one setting of an [Option].
type KeyValue struct{ Key, Value string }

// Get returns the value of key.
func (o *Option) Get(key string) (string, bool) {
	for _, kv := range o.Keys {
		if kv.Key == key {
			return kv.Value, true
		}
	}
	return "", false
}

// PortSpec is a port name taken apart. Its String is the canonical name, which
// parses to the same PortSpec.
type PortSpec struct {
	Kind    Kind
	Switch  string // of KindVale: "vale0"
	Name    string // interface, pipe parent, switch port, file, or members joined by "+"
	Pipe    string // pipe id, empty if it is no pipe
	Slave   bool   // "}" end of the pipe
	Select  Select
	Ring    int // with OneRing and OneHostRing
	Flags   PortFlags
	MemID   int // "@N": memory region, 0 if not given
	Options []Option
}

// Option returns the option of that name, nil if the port name has none.
func (p *PortSpec) Option(name string) *Option {
	for i := range p.Options {
		if p.Options[i].Name == name {
			return &p.Options[i]
		}
	}
	return nil
}

// ParsePort takes a port name apart. The grammar is netmap's, with the
// prefixes "xdp:", "lagg:" and "pcap:" and bare interface names besides:
//
//	port   = [ "netmap:" | "xdp:" | "vale" id ":" ] name [ pipe ] [ rings ] { flags | "@" N | option }
//	       | "lagg:" name { "+" name } { option }
//	       | "pcap:" path { option }
//	name   = letters, digits and "_.~-", or "[" any interface name "]"
//	pipe   = "{" id | "}" id
//	rings  = "-" N | "^" [ N ] | "*"
//	flags  = "/" { x | R | T | r | t | z }
//	option = "@" name ( "=" value | ":" key "=" value { "," key "=" value } )
//
// A "-" before anything but a number that ends the name is part of the name;
// an interface that is called eth-0 is written [eth-0]. Numbers are strict and
// unknown options and keys are refused.
func ParsePort(s string) (PortSpec, error) {
	var p PortSpec
	err := p.parse(s)
	if err != nil {
		return PortSpec{}, fmt.Errorf(nameErrFmt, s, err)
	}
	return p, nil
}

func (p *PortSpec) parse(s string) error {
	rest, err := p.prefix(s)
	if err != nil {
		return err
	}
	switch p.Kind {
	case KindPcap:
		p.Name, rest = cut(rest, "@")
		if p.Name == "" {
			return errors.New("pcap: has no file name after it")
		}
	case KindLagg:
		p.Name, rest = cut(rest, "@")
		if err := checkMembers(p.Name); err != nil {
			return err
		}
	default:
		if rest, err = p.name(rest); err != nil {
			return err
		}
		if rest, err = p.rings(rest); err != nil {
			return err
		}
	}
	return p.suffixes(rest)
}

// String returns the canonical name of the port.
func (p PortSpec) String() string {
	var b strings.Builder
	switch {
	case p.Kind == KindVale:
		b.WriteString(p.Switch)
	default:
		b.WriteString(p.Kind.String())
	}
	b.WriteByte(':')
	plain := p.Kind == KindPcap || p.Kind == KindLagg
	if plain || checkName(p.Name) == nil && ringSuffix(p.Name) == len(p.Name) {
		b.WriteString(p.Name)
	} else {
		b.WriteString("[" + p.Name + "]")
	}
	if p.Pipe != "" {
		brace := "{"
		if p.Slave {
			brace = "}"
		}
		b.WriteString(brace + p.Pipe)
	}
	switch p.Select {
	case OneRing:
		fmt.Fprintf(&b, "-%d", p.Ring)
	case HostRings:
		b.WriteByte('^')
	case OneHostRing:
		fmt.Fprintf(&b, "^%d", p.Ring)
	case AllAndHost:
		b.WriteByte('*')
	}
	if p.Flags != 0 {
		b.WriteByte('/')
		for i, c := range flagLetters {
			if p.Flags&(1<<i) != 0 {
				b.WriteRune(c)
			}
		}
	}
	if p.MemID != 0 {
		fmt.Fprintf(&b, "@%d", p.MemID)
	}
	for i := range p.Options {
		b.WriteString(p.Options[i].String())
	}
	return b.String()
}
