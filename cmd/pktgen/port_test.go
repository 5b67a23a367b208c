package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/netring/netring/internal/cli"
)

// TestAlone: a port that only this process can be at the other end of is
// refused, with what to do instead; two such ports can be measured.
func TestAlone(t *testing.T) {
	for _, port := range []string{"vale0:a", "netmap:x{1"} {
		var out, errs bytes.Buffer
		if code := run([]string{"-i", port, "-f", "tx"}, &out, &errs); code != cli.ExitUsage || !strings.Contains(errs.String(), "--rx-port") {
			t.Errorf("%s: exit %d, %s", port, code, errs.String())
		}
	}
	var out, errs bytes.Buffer
	args := "-i vale0:a --rx-port vale0:b --throughput --sizes 64 --trial 100ms --resolution 50 --json"
	if code := run(strings.Fields(args), &out, &errs); code != 0 || !strings.Contains(out.String(), `"type":"final"`) {
		t.Errorf("%s: exit %d, %s\n%s", args, code, errs.String(), out.String())
	}
}
