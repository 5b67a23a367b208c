package nm

import (
	"errors"
	"fmt"
	"sync"

	"github.com/netring/netring/ring/mem"
)

// ErrBusy: somebody else has the port, and one of the two wants it for itself.
var ErrBusy = errors.New("port is busy")

// Space is where the names of pipes, switches and memory regions and of
// exclusively open ports mean something: two ends of a pipe, and the ports of a
// switch, find each other in one Space. The
// zero value is an empty Space. Any goroutine may use it.
type Space struct {
	mu    sync.Mutex
	open  map[string][]*holder // by port, for exclusive opens
	pipes map[string]*pipe
	pools map[int]*pool

	switches map[string]*Switch
}

// process is the Space of those who bring none: names of pipes are the
// process's, as netmap's are the machine's.
var process Space

// holder is one open of a port.
type holder struct {
	name      string // as it was given to Open
	exclusive bool
}

// pipe is a pipe of which at least one end is open.
type pipe struct {
	ends  [2]*mem.Port
	taken [2]bool
	refs  int
}

// pool is memory that ports with one memory id share.
type pool struct {
	p    *mem.Pool
	refs int
}

// Buffers of a pool that several ports share ("@N").
const (
	sharedBufs    = 1 << 15
	sharedBufSize = 2048
)

// hold notes that name opens port key and returns what takes the note back.
func (s *Space) hold(key, name string, exclusive bool) (func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[string][]*holder{}
	}
	for _, h := range s.open[key] {
		switch {
		case h.exclusive:
			return nil, fmt.Errorf("%w: %s has it for itself", ErrBusy, h.name)
		case exclusive:
			return nil, fmt.Errorf("%w: wanted exclusively (/x), but open as %s", ErrBusy, h.name)
		}
	}
	h := &holder{name, exclusive}
	s.open[key] = append(s.open[key], h)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		list := s.open[key][:0]
		for _, x := range s.open[key] {
			if x != h {
				list = append(list, x)
			}
		}
		if s.open[key] = list; len(list) == 0 {
			delete(s.open, key)
		}
	}, nil
}

// memory returns the pool of a memory id, nil for 0, and what gives it back.
func (s *Space) memory(id int, o *Options) (*mem.Pool, func(), error) {
	switch {
	case id == 0:
		return nil, func() {}, nil
	case o.BufSize != 0:
		return nil, nil, fmt.Errorf("buffer size %d: the buffers of memory @%d have %d bytes: leave Options.BufSize out", o.BufSize, id, sharedBufSize)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pools == nil {
		s.pools = map[int]*pool{}
	}
	p := s.pools[id]
	if p == nil {
		m, err := mem.NewPool(sharedBufs, sharedBufSize)
		if err != nil {
			return nil, nil, err
		}
		p = &pool{p: m}
		s.pools[id] = p
	}
	p.refs++
	return p.p, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p.refs--; p.refs == 0 {
			delete(s.pools, id)
			_ = p.p.Close() // only says that it was closed before
		}
	}, nil
}

// end returns one end of a pipe, made if it is the first, and what closes it.
func (s *Space) end(key string, slave bool, make func() (a, b *mem.Port, err error)) (*mem.Port, func() error, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pipes == nil {
		s.pipes = map[string]*pipe{}
	}
	i := 0
	if slave {
		i = 1
	}
	p := s.pipes[key]
	if p == nil {
		a, b, err := make()
		if err != nil {
			return nil, nil, err
		}
		p = &pipe{ends: [2]*mem.Port{a, b}}
		s.pipes[key] = p
	}
	if p.taken[i] {
		return nil, nil, fmt.Errorf("%w: this end of the pipe is open already", ErrBusy)
	}
	p.taken[i] = true
	p.refs++
	return p.ends[i], func() error {
		// Nobody waits for an end that was never opened: it goes with the
		// other one.
		s.mu.Lock()
		defer s.mu.Unlock()
		err := p.ends[i].Close()
		if p.refs--; p.refs == 0 || !p.taken[1-i] {
			err = errors.Join(err, p.ends[1-i].Close())
		}
		if s.pipes[key] == p {
			delete(s.pipes, key)
		}
		return err
	}, nil
}
