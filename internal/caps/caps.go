// Package caps tells which capabilities the process lacks, so that an error can
// name them.
package caps

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Cap is a capability, by the kernel's number.
type Cap uint

// The capabilities that packet drivers need.
const (
	NetAdmin Cap = unix.CAP_NET_ADMIN
	NetRaw   Cap = unix.CAP_NET_RAW
	BPF      Cap = unix.CAP_BPF
)

func (c Cap) String() string {
	switch c {
	case NetAdmin:
		return "CAP_NET_ADMIN"
	case NetRaw:
		return "CAP_NET_RAW"
	case BPF:
		return "CAP_BPF"
	}
	return fmt.Sprintf("capability %d", uint(c))
}

// Missing returns those of want that are not effective in the calling thread,
// whichever user namespace it is in. Before Linux 5.8 CAP_SYS_ADMIN stood for
// CAP_BPF, and still implies it.
func Missing(want ...Cap) []Cap {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&hdr, &data[0]) != nil {
		return nil // it cannot fail for the calling thread
	}
	has := func(c Cap) bool { return data[c/32].Effective&(1<<(c%32)) != 0 }
	var missing []Cap
	for _, c := range want {
		if !has(c) && !(c == BPF && has(unix.CAP_SYS_ADMIN)) {
			missing = append(missing, c)
		}
	}
	return missing
}

// Initial reports whether the process is in the initial user namespace, the
// only one whose capabilities count for loading programs into the kernel.
func Initial() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	return err != nil || strings.Join(strings.Fields(string(b)), " ") == "0 0 4294967295"
}

// Remedy says why an operation that needs the given capabilities, in the initial
// user namespace, was not permitted, and what to do.
func Remedy(want ...Cap) string {
	missing := Missing(want...)
	switch {
	case len(missing) == 0 && !Initial():
		return fmt.Sprintf("needs %s in the initial user namespace, and this is another one: run as root of the machine", join(want, " and "))
	case len(missing) == 0:
		return fmt.Sprintf("%s there, so a security module, seccomp or a lockdown forbids it", join(want, " and ")+map[bool]string{true: " is", false: " are"}[len(want) == 1])
	}
	return fmt.Sprintf("%s missing: run as root, or do setcap %s+ep on the program", join(missing, " and ")+map[bool]string{true: " is", false: " are"}[len(missing) == 1],
		strings.ToLower(join([]Cap{NetRaw, NetAdmin, BPF}, ",")))
}

func join(list []Cap, sep string) string {
	names := make([]string, len(list))
	for i, c := range list {
		names[i] = c.String()
	}
	return strings.Join(names, sep)
}
