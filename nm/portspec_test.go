package nm

import (
	"reflect"
	"strings"
	"testing"
)

func TestParsePort(t *testing.T) {
	kv := func(name string, pairs ...string) []Option {
		o := Option{Name: name}
		for i := 0; i < len(pairs); i += 2 {
			o.Keys = append(o.Keys, KeyValue{pairs[i], pairs[i+1]})
		}
		return []Option{o}
	}
	for in, want := range map[string]PortSpec{
		"eth0":                {Name: "eth0"},
		"netmap:eth0":         {Name: "eth0"},
		"netmap:eth0-2":       {Name: "eth0", Select: OneRing, Ring: 2},
		"netmap:eth0-4094":    {Name: "eth0", Select: OneRing, Ring: 4094},
		"netmap:eth0^":        {Name: "eth0", Select: HostRings},
		"netmap:eth0^1":       {Name: "eth0", Select: OneHostRing, Ring: 1},
		"netmap:eth0*":        {Name: "eth0", Select: AllAndHost},
		"netmap:eth0-2/T":     {Name: "eth0", Select: OneRing, Ring: 2, Flags: TXOnly},
		"netmap:eth0/x":       {Name: "eth0", Flags: Exclusive},
		"netmap:eth0@2/R":     {Name: "eth0", MemID: 2, Flags: RXOnly},
		"netmap:eth0/R@2":     {Name: "eth0", MemID: 2, Flags: RXOnly},
		"netmap:eth0@2/R@2":   {Name: "eth0", MemID: 2, Flags: RXOnly},
		"netmap:eth0/r@2/t":   {Name: "eth0", MemID: 2, Flags: MonitorRX | MonitorTX},
		"netmap:eth0/rt":      {Name: "eth0", Flags: MonitorRX | MonitorTX},
		"netmap:eth0/z":       {Name: "eth0", Flags: MonitorZC},
		"netmap:pipe{in":      {Name: "pipe", Pipe: "in"},
		"netmap:pipe}in-7":    {Name: "pipe", Pipe: "in", Slave: true, Select: OneRing, Ring: 7},
		"vale0:a":             {Kind: KindVale, Switch: "vale0", Name: "a"},
		"vale:0":              {Kind: KindVale, Switch: "vale", Name: "0"},
		"valeXXX:YYY-4":       {Kind: KindVale, Switch: "valeXXX", Name: "YYY", Select: OneRing, Ring: 4},
		"vale0:0{0":           {Kind: KindVale, Switch: "vale0", Name: "0", Pipe: "0"},
		"xdp:eth0-1":          {Kind: KindXDP, Name: "eth0", Select: OneRing, Ring: 1},
		"lagg:eth1+eth2":      {Kind: KindLagg, Name: "eth1+eth2"},
		"pcap:/tmp/a-b/c.cap": {Kind: KindPcap, Name: "/tmp/a-b/c.cap"},
		// interfaces with dashes
		"my-if":         {Name: "my-if"},
		"netmap:br-lan": {Name: "br-lan"},
		"br-lan-3":      {Name: "br-lan", Select: OneRing, Ring: 3},
		"[eth-0]":       {Name: "eth-0"},
		"xdp:[a&b]-1":   {Kind: KindXDP, Name: "a&b", Select: OneRing, Ring: 1},
		// options
		"netmap:eth0@conf:rings=4,slots=1024": {Name: "eth0", Options: kv("conf", "rings", "4", "slots", "1024")},
		"netmap:eth0@conf:tx_slots=8":         {Name: "eth0", Options: kv("conf", "tx-slots", "8")},
		"eth0@tpacket:version=2,vnet=off":     {Name: "eth0", Options: kv("tpacket", "version", "2", "vnet", "off")},
		"xdp:eth0@xdp:mode=native":            {Kind: KindXDP, Name: "eth0", Options: kv("xdp", "mode", "native")},
		"lagg:a+b@lagg:proto=roundrobin":      {Kind: KindLagg, Name: "a+b", Options: kv("lagg", "proto", "roundrobin")},
	} {
		got, err := ParsePort(in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", in, got, want)
		}
		roundTrip(t, in, got)
	}
}

func roundTrip(t *testing.T, in string, p PortSpec) {
	t.Helper()
	again, err := ParsePort(p.String())
	if err != nil {
		t.Errorf("%q: its String %q is refused: %v", in, p.String(), err)
	} else if !reflect.DeepEqual(again, p) {
		t.Errorf("%q: its String %q means something else:\n%+v\n%+v", in, p.String(), p, again)
	}
}

func TestParsePortRefuses(t *testing.T) {
	for in, why := range map[string]string{
		"":                      "empty",
		"netmap:":               "empty name",
		"netmap:^":              "empty name",
		"netmap:{":              "empty name",
		"netmap:{a":             "empty name",
		"netmap:}1":             "empty name",
		"netmapXXX:eth0":        "unknown prefix",
		"netmap:vale0:0":        "character ':'",
		"netmap:eth0&":          "character '&'",
		"netmap:eth 0":          "character ' '",
		"netmap:pipe{1}2":       "unexpected",
		"netmap:pipe{":          "no pipe id",
		"netmap:eth0-":          "no ring number",
		"vale0:0@":              "empty option",
		"netmap:eth0@":          "empty option",
		"netmap:eth0/q":         "unknown flag",
		"netmap:eth0/":          "no flag",
		"netmap:eth0*3":         "unexpected",
		"netmap:eth0-2^":        "unexpected", // the dash is not the name's: ^ ends it
		"netmap:eth0^x":         "unexpected",
		"netmap:eth0-4095":      "ring 4095",
		"netmap:eth0-007":       "ring 007",
		"netmap:eth0@0":         "memory id 0",
		"netmap:eth0@70000":     "memory id 70000",
		"netmap:eth0@65536":     "memory id 65536",
		"netmap:eth0@2/R@3":     "memory id 2 and 3",
		"netmap:eth0@foo":       "unknown option",
		"netmap:eth0@conf":      "no settings",
		"netmap:eth0@conf=4":    "no default key",
		"netmap:e@conf:foo=1":   "unknown key",
		"netmap:e@conf:rings":   "key=value",
		"netmap:e@share=eth1":   "same id",
		"netmap:e@@x":           "empty option",
		"netmap:e@offset=128":   "the driver's",
		"netmap:e@extmem=/f":    "not offered",
		"netmap:e/RT":           "exclude",
		"vale-1:p":              "letters, digits",
		"vale+:p":               "letters, digits",
		"lagg:":                 "empty member",
		"lagg:a+a":              "twice",
		"lagg:a+":               "empty member",
		"pcap:":                 "no file",
		"xdp:a{b":               "no AF_XDP",
		"[a":                    "not closed",
		"[a/b]":                 "no interface name",
		"[..]":                  "no interface name",
		"interfacename1234":     "at most 15",
		"vale0:p@xdp:mode=x":    "does not go with",
		"xdp:a@xdp:coalesce=5":  "such as 50us",
		"xdp:a@xdp:coalesce=0s": "or off",
		"netmap:e@conf:rings=":  "no value",

		"netmap:e@conf:rings=1,rings=2":      "twice",
		"netmap:e@conf:rings=1,":             "key=value",
		"netmap:e@conf:slots=abc":            "power of two",
		"netmap:e@conf:slots=3":              "power of two",
		"netmap:e@conf:rings=70000":          "from 1 to",
		"netmap:e@conf:host-rings=1":         "no host rings",
		"netmap:e@conf:slots=8@conf:rings=1": "twice",
		"netmap:" + strings.Repeat("x", 64):  "at most",
	} {
		if p, err := ParsePort(in); err == nil {
			t.Errorf("%q accepted: %+v", in, p)
		} else if !strings.Contains(err.Error(), why) {
			t.Errorf("%q: error %q does not say %q", in, err, why)
		}
	}
}

func FuzzParsePort(f *testing.F) {
	for _, s := range []string{"eth0", "netmap:eth0-2/T@3", "vale0:a{b", "lagg:a+b@lagg:proto=roundrobin,stride=32",
		"[x-1]", "netmap:a-b-7^", "pcap:/x@share=eth0", "xdp:eth0@xdp:frames=4096", "eth0@conf:slots=8,tx_slots=16@2/R"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePort(s)
		if err != nil {
			if !reflect.DeepEqual(p, PortSpec{}) {
				t.Errorf("%q: error and a port: %+v", s, p)
			}
			return
		}
		roundTrip(t, s, p)
	})
}
