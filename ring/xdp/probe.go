package xdp

import (
	"errors"
)

// ProbeSocket opens an AF_XDP socket with a little memory and closes it again;
// no interface is involved. The error is what [Open] would say.
func ProbeSocket() error {
	m, err := NewMem(2*minSlots, 0)
	if err != nil {
		return err
	}
	q := &queue{fd: -1}
	if err = q.open(m); err == nil {
		err = q.mapRings(minSlots)
	}
	return errors.Join(err, q.close(m), m.Close())
}

// ProbeProgram loads the redirect program and its map and unloads them; it is
// attached to nothing.
func ProbeProgram(multiBuffer bool) error {
	p, err := load(1, &Options{MultiBuffer: multiBuffer})
	if err != nil {
		return err
	}
	return p.close()
}
