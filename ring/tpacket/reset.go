package tpacket

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/abi"
	"github.com/netring/netring/ring"
)

// successor is a new ring that is to take the place of a stuck one.
type successor struct {
	*tx
	install func() error // puts it there; a failure leaves the old one
	discard func()       // lets go of what is not needed any more, installed or not
}

// Reset gives the ring a new socket with new memory in the place of the old
// ones: what the device still holds of the old ring goes its way without us. It
// is how [ring.Resetter] wants it. A failure leaves the old ring.
func (d *tx) Reset(r *ring.Ring) error {
	if d.remake == nil {
		return fmt.Errorf("%w: the socket came from outside", errors.ErrUnsupported)
	}
	next, err := d.remake()
	if err != nil {
		return err
	}
	defer next.discard()
	if err := next.advance(r.Head & d.mask); err != nil {
		return err
	}
	// What has been finished meanwhile counts as sent, once the ring is another:
	// after a failure the next Sync finds it.
	packets, bytes := d.finished(r.Tail() - uint32(r.Len()))
	if err := next.install(); err != nil {
		return err
	}
	d.count(r, packets, bytes)
	r.Stats.Drop(ring.DropClosed, uint64(r.Pending())-packets)
	d.done.refused, d.done.bytes, d.stuck.tries = 0, 0, 0
	d.unsent, d.last, d.begun = r.Head, r.Head, true
	for k := range uint32(r.Len()) {
		*r.Slot(k) = ring.Slot{Buf: k, Off: txOffset + d.vnet}
	}
	d.large.Recover(r, r.Head, r.Head)
	return nil
}

// finished returns how many of the slots from oldest on, in order, the kernel
// is done with, and the bytes of their frames.
func (d *tx) finished(oldest uint32) (packets, bytes uint64) {
	for ; oldest != d.unsent && d.status(oldest) == unix.TP_STATUS_AVAILABLE; oldest++ {
		packets++
		bytes += uint64(d.lens[oldest&d.mask] & lenMask)
	}
	return packets, bytes
}

// remake makes a new socket with a new ring of the same shape as that of s,
// which install puts where s has its own: at the same descriptor and at the
// same address. It must be called in the network namespace that the port was
// opened in.
func (p *Port) remake(s *sock) (next successor, err error) {
	n, err := openSock()
	if err != nil {
		return next, err
	}
	next.discard = func() { _ = n.close() }
	defer func() {
		if err != nil {
			next.discard()
		}
	}()
	if !sameNamespace(n.fd, s.fd) {
		return next, errors.New("open packet socket: the calling thread is in another network namespace than the port")
	}
	if err := p.transmitSettings(n); err != nil {
		return next, err
	}
	if err := n.request(unix.PACKET_TX_RING, s.geo, 0, false); err != nil {
		return next, fmt.Errorf("create ring of %d blocks of %d bytes: %w", s.geo.Blocks, s.geo.BlockSize, err)
	}
	if err := n.bind(p.dev.Index, 0); err != nil {
		return next, err
	}
	if err := n.mapRing(s.geo); err != nil {
		return next, err
	}
	next.tx = newTx(n, p.dev, n.mem, s.geo, p.opts.VnetLen)
	next.install = func() error { return s.replace(n) }
	return next, nil
}

// replace puts the socket and the ring of n, which has the same shape, in the
// place of those of s.
func (s *sock) replace(n *sock) error {
	if err := mapOver(s.mem, n.fd); err != nil {
		return fmt.Errorf("map ring of %d bytes: %w", len(s.mem), err)
	}
	if err := unix.Dup3(n.fd, s.fd, unix.O_CLOEXEC); err != nil {
		return errors.Join(fmt.Errorf("replace socket: %w", err), mapOver(s.mem, s.fd))
	}
	return nil
}

// sameNamespace reports whether two sockets are in one network namespace; true
// where the kernel does not tell (before Linux 5.14).
func sameNamespace(a, b int) bool {
	x, err := unix.GetsockoptUint64(a, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	y, err2 := unix.GetsockoptUint64(b, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	return err != nil || err2 != nil || x == y
}

// advance moves the kernel's head, at frame 0 of a new ring, to frame k, where
// the program goes on: it passes over that many empty frames.
func (d *tx) advance(k uint32) error {
	for i := range k {
		d.blank(i)
		word(d.at(i), abi.V2Status).Store(unix.TP_STATUS_SEND_REQUEST)
	}
	if k == 0 {
		return nil
	}
	const patience = 100 * time.Millisecond
	for start := time.Now(); ; {
		_, e := d.bell.doorbell()
		if d.status(k-1) == unix.TP_STATUS_AVAILABLE {
			return nil
		}
		if e != 0 && e != unix.EAGAIN && e != unix.EINTR || time.Since(start) > patience {
			return fmt.Errorf("start new ring at slot %d: %w", k, error(e))
		}
	}
}
