package cli

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// CheckCPUs refuses CPUs that the kernel will not run this program on: those
// that are not there, and those that its cpuset leaves out.
func CheckCPUs(cpus []int) error {
	errc := make(chan error)
	go func() {
		// Never unlocked: the thread ends with the goroutine, and with it
		// what is tried here.
		runtime.LockOSThread()
		for _, cpu := range cpus {
			var set unix.CPUSet
			set.Set(cpu)
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				errc <- Usagef("CPU %d cannot be used: %w (nproc --all tells how many there are, taskset -p $$ which are allowed)", cpu, err)
				return
			}
		}
		errc <- nil
	}()
	return <-errc
}
