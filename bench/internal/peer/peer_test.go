//go:build linux

package peer

import (
	"errors"
	"strings"
	"testing"
)

func TestBound(t *testing.T) {
	table := "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n" +
		"00000000a 3      3    0003   2     1 0      0      100\n" +
		"00000000b 3      3    0003   3     0 0      0      101\n"
	if bound(table, map[int]bool{2: true, 3: true}) {
		t.Error("a socket that does not run counts as ready")
	}
	if !bound(table, map[int]bool{2: true}) {
		t.Error("a running socket is not found")
	}
	if !bound(strings.Replace(table, "3     0 0", "3     1 0", 1), map[int]bool{2: true, 3: true}) {
		t.Error("two running sockets are not found")
	}
}

func TestLacks(t *testing.T) {
	tools := &Tools{BridgeHelp: "  -i, --interface stringArray   to join\n      --dql                 x\n      --dql-max int\n", Missing: map[string]error{}}
	for args, lacks := range map[string]bool{
		"--dql": false, "--dql=true": false, "--dql-max=3": false, "--interface": false, "--dq": true, "--dql-m": true, "--gate=auto": true,
	} {
		if got := tools.Lacks(args); (got != "") != lacks {
			t.Errorf("Lacks(%q) = %q", args, got)
		}
	}
	tools.Missing[BridgeName] = errors.New("does not build")
	if got := tools.Lacks(); got != "does not build" {
		t.Errorf("Lacks = %q", got)
	}
}
