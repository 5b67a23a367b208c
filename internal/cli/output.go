package cli

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// output is a command's standard output. With the first write that fails it
// stops the command, as a signal would: nobody reads on, and what has been
// changed must be put back. Nothing is written after that. Any goroutine.
type output struct {
	w    io.Writer
	stop func()

	mu  sync.Mutex
	err error
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.w.Write(b)
	if err != nil {
		o.err = fmt.Errorf("write report: %w", err)
		o.stop()
	}
	return n, o.err
}

func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// catchPipe makes a write into a pipe that nobody reads an error; by default
// it ends the process where it is.
func catchPipe() (release func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGPIPE)
	return func() { signal.Stop(c) }
}
