package offload

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"
)

// Change is a change of a port's features that is to be undone.
type Change struct {
	port string
	e    *ethtool.Ethtool // its socket stays in the port's namespace

	mu     sync.Mutex
	before map[string]ethtool.FeatureState // of all features
	turned []string                        // what was asked for, sorted
	undone bool
}

// Fix switches off what [Check] says is in the way, as far as it can be at
// this end, in the calling thread's network namespace. What is left is in the
// report, which has been made anew. The caller calls Restore in the end, also
// if there was nothing to change; the Change is nil if there is an error, and
// nothing has been changed then.
func Fix(port string, mode Mode) (*Change, Report, error) {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return nil, Report{}, fmt.Errorf("look at offloads of %s: %w", port, err)
	}
	c, after, err := fix(e, port, mode)
	if err != nil {
		e.Close()
		return nil, Report{}, err
	}
	return c, after, nil
}

func fix(e *ethtool.Ethtool, port string, mode Mode) (*Change, Report, error) {
	r, err := check(e, port, mode)
	if err != nil {
		return nil, r, err
	}
	c := &Change{port: port, e: e}
	if r.Command() == "" {
		return c, r, nil
	}
	if c.before, err = e.FeaturesWithState(port); err != nil {
		return nil, r, fmt.Errorf("look at offloads of %s: %w", port, err)
	}
	off := make(map[string]bool)
	for _, p := range r.Problems {
		if p.Feature != "" {
			off[p.Feature] = false
		}
	}
	c.turned = slices.Sorted(maps.Keys(off))
	if err := e.Change(port, off); err != nil {
		hint := ""
		if errors.Is(err, unix.EPERM) {
			hint = "; it needs CAP_NET_ADMIN"
		}
		return nil, r, fmt.Errorf("switch offloads of %s off (%s): %w%s", port, r.Command(), err, hint)
	}
	after, err := check(e, port, mode)
	if err != nil {
		return nil, r, errors.Join(err, c.restore())
	}
	return c, after, nil
}

// Turned are the features that were switched off, by the kernel's names.
func (c *Change) Turned() []string { return slices.Clone(c.turned) }

// Restore puts the features back as they were. It may be called from any
// thread; a second call does nothing. An interface that is gone is no error.
func (c *Change) Restore() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.undone {
		return nil
	}
	c.undone = true
	defer c.e.Close()
	return c.restore()
}

func (c *Change) restore() error {
	if len(c.turned) == 0 {
		return nil
	}
	// A feature depends on others, so switching one may have switched more.
	// Those the kernel brings back by itself, as what was wanted of them has
	// not changed; it is checked below.
	back := make(map[string]bool)
	for _, name := range c.turned {
		back[name] = c.before[name].Requested || c.before[name].Active
	}
	err := c.e.Change(c.port, back)
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("put offloads of %s back: %w", c.port, err)
	}
	now, err := c.e.Features(c.port)
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at offloads of %s: %w", c.port, err)
	}
	var wrong []string
	for name, was := range c.before {
		if now[name] != was.Active {
			wrong = append(wrong, name)
		}
	}
	if wrong != nil {
		slices.Sort(wrong)
		return fmt.Errorf("put offloads of %s back: %s differ from before", c.port, strings.Join(wrong, ", "))
	}
	return nil
}
