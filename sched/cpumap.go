package sched

import "fmt"

// CPUMap says which sub-queue (transmit ring) of a port a processor uses. The
// nil map uses sub-queue 0 for all. A flow stays in order as long as its
// worker stays on its processor and the map does not change.
type CPUMap func(cpu int) int

// MapMask maps cpu to cpu & mask; mask+1 is meant to be a power of two.
func MapMask(mask int) CPUMap { return func(cpu int) int { return cpu & mask } }

// MapModulo maps cpu to cpu modulo divisor. A divisor below 1 maps every cpu
// to sub-queue -1, which Validate refuses.
func MapModulo(divisor int) CPUMap {
	return func(cpu int) int {
		if divisor < 1 {
			return -1
		}
		return cpu % divisor
	}
}

// Queue returns the sub-queue of cpu.
func (m CPUMap) Queue(cpu int) int {
	if m == nil {
		return 0
	}
	return m(cpu)
}

// Validate reports the first of the given processors that the map sends to a
// sub-queue that a port with queues sub-queues does not have.
func (m CPUMap) Validate(cpus []int, queues int) error {
	for _, cpu := range cpus {
		if q := m.Queue(cpu); q < 0 || q >= queues {
			return fmt.Errorf("cpu map: cpu %d uses sub-queue %d: the port has %d", cpu, q, queues)
		}
	}
	return nil
}
