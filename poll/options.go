package poll

import (
	"fmt"
	"time"
)

// Options of a [Scheduler]. The zero value is one unpinned worker in adaptive
// mode that leaves nothing of a contended core to others; see
// [ControllerConfig] for the knobs' defaults.
type Options struct {
	Mode    Mode
	Workers int // threads; 0 is 1
	// CPUs are the cores of the workers, one each; -1 leaves a worker
	// unpinned. Nil leaves all so.
	CPUs []int
	// Nice is the nice value of the workers' threads. Below 0 needs
	// CAP_SYS_NICE; NiceTry goes on without where it is refused.
	Nice    int
	NiceTry bool
	// Delay is the latency that adaptive mode may add under load, to let
	// batches gather; 0 is 100 us.
	Delay time.Duration
	// Linger is how long adaptive mode stays awake at most when there is
	// nothing to do, if it expects a packet within that time: silences are
	// no longer. It spares the packet the wake-up, and takes the core
	// meanwhile unless another program wants it. 0 is not at all.
	Linger time.Duration

	ControllerConfig
}

const maxWorkers = 1024

func (o Options) withDefaults() Options {
	if o.Workers == 0 {
		o.Workers = 1
	}
	if o.Delay == 0 {
		o.Delay = 100 * time.Microsecond
	}
	o.ControllerConfig = o.ControllerConfig.withDefaults()
	return o
}

// Validate reports the first option that is out of its range.
func (o Options) Validate() error {
	if err := o.ControllerConfig.Validate(); err != nil {
		return err
	}
	o = o.withDefaults()
	switch {
	case o.Mode >= numModes:
		return fmt.Errorf("poll: %v: must be one of %q", o.Mode, modeNames)
	case o.Workers < 1 || o.Workers > maxWorkers:
		return fmt.Errorf("poll: %d workers: must be between 1 and %d", o.Workers, maxWorkers)
	case o.CPUs != nil && len(o.CPUs) != o.Workers:
		return fmt.Errorf("poll: %d CPUs for %d workers: must be as many", len(o.CPUs), o.Workers)
	case o.Nice < -20 || o.Nice > 19:
		return fmt.Errorf("poll: nice value %d: must be between -20 and 19", o.Nice)
	case o.Linger < 0 || o.Linger > time.Second:
		return fmt.Errorf("poll: linger %v: must be between 0 and 1s", o.Linger)
	case o.Delay < time.Microsecond || o.Delay > 10*time.Millisecond:
		return fmt.Errorf("poll: delay %v: must be between 1us and 10ms", o.Delay)
	}
	return nil
}
