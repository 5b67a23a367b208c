package forward

import (
	"errors"
	"time"

	netlink "github.com/netring/netring/internal/link"
)

// Watch has the named links of the bridge, which are interfaces, watched from
// now on: the bridge is told when they go down, come up or are deleted. It
// looks at them every interval besides what the kernel tells by itself; 0 is
// the watcher's default. Close the watcher before the bridge.
func (b *Bridge) Watch(names []string, interval time.Duration) (*netlink.Watcher, error) {
	w, err := netlink.New(netlink.Options{Interval: interval, OnEvent: func(e netlink.Event) { b.LinkState(e.Name, e.State.Err()) }})
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		info, err := netlink.Lookup(name)
		if err != nil {
			return nil, errors.Join(err, w.Close())
		}
		b.LinkState(name, info.State().Err())
		w.Add(info)
	}
	return w, nil
}
