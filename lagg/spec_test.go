package lagg

import (
	"reflect"
	"testing"
)

func TestParseSpec(t *testing.T) {
	for in, want := range map[string]string{
		"eth1+eth2":      "lagg:eth1+eth2@lagg:proto=failover",
		"lagg:eth1+eth2": "lagg:eth1+eth2@lagg:proto=failover",
		"eth2+eth3@lagg:proto=loadbalance,hash=l3+l4,seed=5,symmetric=on,weights=3+1": "lagg:eth2+eth3@lagg:proto=loadbalance,hash=l3+l4,seed=5,symmetric=on,weights=3+1",
		"a+b@lagg:proto=loadbalance,symmetric=1,inner=0":                              "lagg:a+b@lagg:proto=loadbalance,symmetric=on",
		"a+b@lagg:flowlet=5ms":                                     "lagg:a+b@lagg:proto=failover,flowlet=5ms",
		"a+b@lagg:proto=roundrobin,stride=32":                      "lagg:a+b@lagg:proto=roundrobin,stride=32",
		"a+b@lagg:proto=roundrobin,stride_bytes=65536":             "lagg:a+b@lagg:proto=roundrobin,stride-bytes=65536",
		"a+b@lagg:primary=b,rx-all=on,holddown=1s,holddown-max=3s": "lagg:a+b@lagg:proto=failover,holddown=1s,holddown-max=3s,primary=b,rx-all=on",
		"a+b@lagg:holddown=0s":                                     "lagg:a+b@lagg:proto=failover,holddown=0s",
	} {
		sp, err := ParseSpec(in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if sp.String() != want {
			t.Errorf("%s: canonical %s, want %s", in, sp, want)
		}
		again, err := ParseSpec(sp.String())
		if err != nil || !reflect.DeepEqual(again, sp) {
			t.Errorf("%s: its canonical form means %+v, %v", in, again, err)
		}
	}
	for _, bad := range []string{
		"", "lagg:", "a+", "a+a", "a b", "a+b@foo", "a+b@lagg:", "a+b@lagg:proto", "a+b@lagg:proto=x", "a+b@lagg:stride=0",
		"a+b@lagg:proto=roundrobin,stride=1,stride-bytes=99", "a+b@lagg:stride=3", "a+b@lagg:proto=loadbalance,hash=l5",
		"a+b@lagg:proto=loadbalance,weights=1", "a+b@lagg:primary=c", "a+b@lagg:proto=broadcast,proto=broadcast", "a+b@lagg:seed=07",
		"a+b@lagg:nosuch=1", "a+b@lagg:proto=loadbalance,flowlet=1us", "a+b@lagg:holddown=5s,holddown-max=1s", "a+b@lagg:proto=loadbalance,flowid=on,flowid-shift=32",
		"a+b@lagg:proto=loadbalance,flowid-shift=3", "a+b@lagg:proto=roundrobin,stride-bytes=1000", "a+b@lagg:proto=roundrobin,flowlet=5ms",
		"a+b@lagg:rx-all=yes", "a+b@tpacket:version=2",
	} {
		if sp, err := ParseSpec(bad); err == nil {
			t.Errorf("%q accepted: %v", bad, sp)
		}
	}
}

func FuzzParseSpec(f *testing.F) {
	f.Add("lagg:a+b@lagg:proto=loadbalance,hash=l3+l4,weights=3+1,flowlet=5ms")
	f.Add("a@lagg:primary=a,holddown=0s")
	f.Fuzz(func(t *testing.T, s string) {
		sp, err := ParseSpec(s)
		if err != nil {
			return
		}
		again, err := ParseSpec(sp.String())
		if err != nil || !reflect.DeepEqual(again, sp) {
			t.Errorf("%q: %q means %+v, %v; not %+v", s, sp.String(), again, err, sp)
		}
	})
}
