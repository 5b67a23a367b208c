package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/netring/netring/internal/cli"
)

// Every mistake on the command line ends with 2, says what is wrong and what
// to do, and prints nothing to stdout.
func TestUsageErrors(t *testing.T) {
	for _, tc := range []struct {
		name string
		args string
		want []string // all of them in the message
	}{
		{"no interface", "", []string{"at least two", "-i eth1 -i eth2"}},
		{"one interface", "-i lo", []string{"at least two"}},
		{"no dash", "eth1 eth2", []string{"unexpected argument", "-i eth1"}},
		{"twice", "-i a -i a", []string{"interface a is given twice", "two different"}},
		{"unknown", "-i nosuch0 -i nosuch1", []string{"nosuch0", "does not exist", "this machine has"}},
		{"loopback", "-i lo -i nosuch1", []string{"loopback", "veth"}},
		{"unknown flag", "--frobnicate", []string{"frobnicate", "--help"}},
		{"unknown command", "dmo", []string{"unexpected argument"}},
		{"interval", "--interval 1ms", []string{"--interval", "10ms"}},
		{"interval text", "--interval soon", []string{"interval", "soon"}},
		{"drain", "--drain 2h", []string{"--drain", "1m"}},
		{"workers", "--workers 0", []string{"--workers", "between 1 and 64"}},
		{"cpu", "--cpu one", []string{"--cpu", "one", "such as"}},
		{"cpu that is not there", "--cpu 1023", []string{"--cpu", "CPU 1023", "nproc"}},
		{"cpu twice", "--workers 2 --cpu 1,1", []string{"named twice"}},
		{"cpu count", "--workers 2 --cpu 1", []string{"1 CPUs for 2 workers", "--workers 1"}},
		{"rx version", "--rx-version v4", []string{"--rx-version", "v2 or v3"}},
		{"vnet", "--vnet on", []string{"--vnet", "auto or off"}},
		{"offload", "--offload maybe", []string{"--offload", "keep or off"}},
		{"full", "--full wait", []string{"--full", "drop or backpressure"}},
		{"lagg option", "-i lagg:a+b@lagg:proto=magic -i c", []string{"proto=magic"}},
		{"lagg member twice", "-i lagg:a+b -i a", []string{"interface a is given twice"}},
		{"lagg unknown member", "-i lagg:nosuch0+nosuch1 -i nosuch2", []string{"nosuch0", "does not exist"}},
		{"profile", "--profile huge", []string{"--profile", "throughput or latency or lowmem"}},
		{"mode", "--mode sleepy", []string{"--mode", "adaptive"}},
		{"hz", "--hz 0", []string{"--hz", "at least 1"}},
		{"burst", "--each-burst 9999999", []string{"each_burst"}},
		{"user frac", "--user-frac 100", []string{"user_frac", "99"}},
		{"linger", "--linger 2s", []string{"linger", "between 0 and 1s"}},
		{"queue", "--queue-packets -1", []string{"queue", "between"}},
		{"staging", "--stage-bytes 100", []string{"staging", "packets"}},
		{"prio", "--prio fast", []string{"--prio", "fast", "dscp=46", "udp=53"}},
		{"prio kind", "--prio sctp=22", []string{"sctp=22", "must be dscp=46"}},
		{"prio dscp", "--prio dscp=64", []string{"dscp=64", "between 0 and 63"}},
		{"prio ethertype", "--prio ethertype=fcoe", []string{"ethertype=fcoe", "0x0600", "lacp"}},
		{"prio tag", "--prio ethertype=0x8100", []string{"0x8100", "behind"}},
		{"prio port", "--prio udp=0", []string{"udp=0", "between 1 and 65535"}},
		{"prio twice", "--prio tcp=22 --prio tcp=22", []string{"tcp=22", "twice"}},
		{"prio without queue", "--prio tcp=22 --queue-packets 0", []string{"--prio", "--queue-packets"}},
		{"dql", "--dql-min 10 --dql-max 5", []string{"limit"}},
		{"demo seconds", "demo --seconds 0", []string{"--seconds", "0.1"}},
		{"demo rate", "demo --rate -1", []string{"--rate"}},
		{"demo size", "demo --size 10", []string{"--size", "60"}},
		{"demo argument", "demo now", []string{"unexpected argument"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := strings.Fields(tc.args)
			var out, errs bytes.Buffer
			if code := run(args, &out, &errs); code != cli.ExitUsage {
				t.Errorf("bridge %s: exit %d, want %d", tc.args, code, cli.ExitUsage)
			}
			for _, w := range tc.want {
				if !strings.Contains(errs.String(), w) {
					t.Errorf("bridge %s: message %q has no %q", tc.args, errs.String(), w)
				}
			}
			if out.Len() != 0 {
				t.Errorf("bridge %s: stdout %q", tc.args, out.String())
			}
		})
	}
}

func TestHelpAndVersion(t *testing.T) {
	for args, want := range map[string]string{
		"-h": "--interface", "--help": "bridge demo", "--version": "bridge ", "demo -h": "--seconds",
	} {
		var out, errs bytes.Buffer
		if code := run(strings.Fields(args), &out, &errs); code != cli.ExitOK {
			t.Errorf("bridge %s: exit %d", args, code)
		}
		if !strings.Contains(out.String(), want) || errs.Len() != 0 {
			t.Errorf("bridge %s: stdout %q, stderr %q", args, out.String(), errs.String())
		}
	}
}
