package tpacket

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/abi"
	"github.com/netring/netring/ring"
)

// Reset gives the ring a new socket with new memory in the place of the old
// ones: what the device still holds of the old ring goes its way without us. It
// is how [ring.Resetter] wants it. A failure leaves the old ring.
func (d *tx) Reset(r *ring.Ring) error {
	if d.remake == nil {
		return fmt.Errorf("%w: the socket came from outside", errors.ErrUnsupported)
	}
	// What has been finished meanwhile counts as sent.
	tail := d.complete(r, r.Tail())
	lost := uint64(r.Head + uint32(r.Len()) - tail)
	if err := d.remake(); err != nil {
		return err
	}
	d.done.refused, d.done.bytes, d.stuck.tries = 0, 0, 0
	d.unsent, d.last, d.begun = r.Head, r.Head, true
	for k := range uint32(r.Len()) {
		*r.Slot(k) = ring.Slot{Buf: k, Off: txOffset + d.vnet}
	}
	d.large.Recover(r, r.Head, r.Head)
	if err := d.advance(r.Head & d.mask); err != nil {
		return err
	}
	r.Stats.Drop(ring.DropClosed, lost)
	return nil
}

// remake puts a new socket with a new ring of the same shape where s has its
// old one: at the same descriptor and at the same address. It must be called in
// the network namespace that the port was opened in.
func (p *Port) remake(s *sock) error {
	n, err := openSock()
	if err != nil {
		return err
	}
	defer unix.Close(n.fd)
	if !sameNamespace(n.fd, s.fd) {
		return errors.New("open packet socket: the calling thread is in another network namespace than the port")
	}
	if err := p.transmitSettings(n); err != nil {
		return err
	}
	if err := n.request(unix.PACKET_TX_RING, s.geo, 0, false); err != nil {
		return fmt.Errorf("create ring of %d blocks of %d bytes: %w", s.geo.Blocks, s.geo.BlockSize, err)
	}
	if err := n.bind(p.dev.Index, 0); err != nil {
		return err
	}
	if err := mapOver(s.mem, n.fd); err != nil {
		return fmt.Errorf("map ring of %d bytes: %w", len(s.mem), err)
	}
	if err := unix.Dup3(n.fd, s.fd, unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("replace socket: %w", err)
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
