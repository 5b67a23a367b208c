//go:build linux

package netlab

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// RPS lets the kernel hand frames that the interface received to the CPUs in
// mask (bit i is CPU i), up to 64 of them; 0 keeps them where they arrived.
// The kernel wants CAP_NET_ADMIN of the machine for it, whatever namespace the
// interface is in: the error is an os.ErrPermission in a user namespace.
func (n *NS) RPS(name string, mask uint64) error {
	return n.withSysfs(func() error {
		files, err := filepath.Glob("/sys/class/net/" + name + "/queues/rx-*/rps_cpus")
		if err != nil || len(files) == 0 {
			return fmt.Errorf("namespace %q: interface %s has no receive queue with RPS", n.name, name)
		}
		text := fmt.Appendf(nil, "%x", uint32(mask))
		if mask>>32 != 0 { // the kernel refuses more words than it has CPUs for
			text = fmt.Appendf(nil, "%x,%08x", mask>>32, uint32(mask))
		}
		for _, f := range files {
			if err := os.WriteFile(f, text, 0); err != nil {
				return fmt.Errorf("namespace %q: set RPS of %s: %w", n.name, name, err)
			}
		}
		return nil
	})
}

// withSysfs calls fn on a thread that sees the namespace's own sysfs: /sys
// shows the interfaces of the namespace in which it was mounted, so the thread
// gets a mount namespace and mounts it anew. The thread ends with the call.
func (n *NS) withSysfs(fn func() error) error {
	fd, err := n.dup()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // for good
		if err = mountSysfs(fd); err != nil {
			err = fmt.Errorf("namespace %q: see its sysfs: %w", n.name, err)
			return
		}
		err = fn()
	})
	wg.Wait()
	return err
}

func mountSysfs(fd int) error {
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount sysfs: %w", err)
	}
	return nil
}
