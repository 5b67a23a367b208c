package xdp

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/caps"
	"github.com/netring/netring/ring"
)

// queue is one socket on one hardware queue, with its four rings.
type queue struct {
	fd               int
	id               int
	rx, tx, fill, cq *shared
	mode             Mode
}

// bindTries times bindPause is how long a bind waits for a queue that its last
// owner has left: the kernel takes its memory down some time after the close.
const (
	bindTries = 40
	bindPause = 25 * time.Millisecond
)

// newQueue opens a socket over m on queue id of the interface.
func newQueue(m *Mem, ifindex, id int, o *Options) (q *queue, err error) {
	q = &queue{fd: -1, id: id}
	defer func() {
		if err != nil {
			q.close(m)
			q = nil
		}
	}()
	m.mu.Lock() // one socket at a time joins the memory
	defer m.mu.Unlock()
	if err = q.open(m); err != nil {
		return q, err
	}
	if err = q.mapRings(o.Slots); err != nil {
		return q, err
	}
	q.sendBuffer(o)
	if err = q.bind(m, ifindex, o); err != nil {
		return q, err
	}
	m.bound = append(m.bound, q.fd)
	q.mode.ZeroCopy, err = zeroCopy(q.fd)
	return q, err
}

// open opens the socket; the first one over m gets it as its memory. The caller
// holds m.mu if anybody else has m.
func (q *queue) open(m *Mem) (err error) {
	q.fd, err = unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.EAFNOSUPPORT):
		return &ring.UnsupportedError{Feature: "AF_XDP", Since: "4.18 with CONFIG_XDP_SOCKETS", Err: err}
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("open AF_XDP socket: %w: %s", err, caps.Remedy(caps.NetRaw))
	case err != nil:
		return fmt.Errorf("open AF_XDP socket: %w", err)
	}
	if len(m.bound) != 0 {
		return nil
	}
	if err = register(q.fd, m.raw, m.region.BufSize()); err != nil {
		return memlockHint(fmt.Errorf("register %d bytes of memory: %w", len(m.raw), err))
	}
	return nil
}

func memlockHint(err error) error {
	if errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: raise the locked-memory limit (ulimit -l unlimited, LimitMEMLOCK=infinity) or use fewer frames", err)
	}
	return err
}

// mapRings creates and maps the four rings of n entries each.
func (q *queue) mapRings(n int) error {
	for _, name := range []int{unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_COMPLETION_RING, unix.XDP_RX_RING, unix.XDP_TX_RING} {
		if err := unix.SetsockoptInt(q.fd, unix.SOL_XDP, name, n); err != nil {
			return fmt.Errorf("create ring of %d entries: %w", n, err)
		}
	}
	off, err := mmapOffsets(q.fd)
	if err != nil {
		return fmt.Errorf("ring offsets: %w", err)
	}
	for _, r := range []struct {
		to    **shared
		pgoff int64
		off   unix.XDPRingOffset
		descs bool
	}{
		{&q.fill, unix.XDP_UMEM_PGOFF_FILL_RING, off.Fr, false},
		{&q.cq, unix.XDP_UMEM_PGOFF_COMPLETION_RING, off.Cr, false},
		{&q.rx, unix.XDP_PGOFF_RX_RING, off.Rx, true},
		{&q.tx, unix.XDP_PGOFF_TX_RING, off.Tx, true},
	} {
		if *r.to, err = mapShared(q.fd, r.pgoff, r.off, n, r.descs); err != nil {
			return err
		}
	}
	return nil
}

// sendBuffer raises the bound on bytes in flight. What was granted is in
// mode.SendBuffer: without CAP_NET_ADMIN it is at most net.core.wmem_max.
func (q *queue) sendBuffer(o *Options) {
	want := o.SendBuffer
	if want == 0 {
		want = o.Slots * 4096 // each frame in flight counts as an skb of about this size
	}
	if unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, want) != nil {
		// Refused without the capability; the ordinary option takes what it may.
		_ = unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, want)
	}
	q.mode.WantSendBuffer = want
	q.mode.SendBuffer, _ = unix.GetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	// Let one system call send a whole ring (Linux 6.17; before, 32 frames).
	_ = unix.SetsockoptInt(q.fd, unix.SOL_XDP, unix.XDP_MAX_TX_SKB_BUDGET, o.Slots)
}

// bind ties the socket to its queue. Only the first socket over a memory may
// choose modes; the others get the same.
func (q *queue) bind(m *Mem, ifindex int, o *Options) error {
	sa := unix.SockaddrXDP{Ifindex: uint32(ifindex), QueueID: uint32(q.id)}
	q.mode.NeedWakeup, q.mode.MultiBuffer = true, o.MultiBuffer
	if len(m.bound) != 0 {
		sa.Flags, sa.SharedUmemFD = unix.XDP_SHARED_UMEM, uint32(m.bound[0])
	} else {
		sa.Flags = unix.XDP_USE_NEED_WAKEUP
		if o.MultiBuffer {
			sa.Flags |= unix.XDP_USE_SG
		}
		switch o.ZeroCopy {
		case ZeroCopyForce:
			sa.Flags |= unix.XDP_ZEROCOPY
		case ZeroCopyNever:
			sa.Flags |= unix.XDP_COPY
		}
	}
	var err error
	for range bindTries {
		if err = unix.Bind(q.fd, &sa); !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(bindPause)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("bind to queue %d: %w: another AF_XDP socket has the queue; close its owner, or choose another queue", q.id, err)
	case errors.Is(err, unix.EOPNOTSUPP) && len(m.bound) != 0:
		return fmt.Errorf("bind to queue %d: %w: the ports that share its memory work zero-copy and this driver cannot; force zerocopy=never on all, or give it memory of its own", q.id, err)
	case errors.Is(err, unix.EOPNOTSUPP) && o.ZeroCopy == ZeroCopyForce:
		return &ring.UnsupportedError{Feature: "zero-copy by this interface's driver", Err: err}
	case errors.Is(err, unix.EINVAL) && o.MultiBuffer:
		return &ring.UnsupportedError{Feature: "multi-buffer AF_XDP", Since: "6.6", Err: err}
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("bind to queue %d: %w: the interface may have fewer queues (ethtool -l)", q.id, err)
	case errors.Is(err, unix.ENETDOWN):
		return fmt.Errorf("bind to queue %d: %w: set the interface up first (ip link set ... up)", q.id, ring.ErrLinkDown)
	}
	return fmt.Errorf("bind to queue %d: %w", q.id, err)
}

// close unmaps the rings and closes the socket. The caller has seen to it that
// nobody is inside.
func (q *queue) close(m *Mem) error {
	errs := []error{q.rx.unmap(), q.tx.unmap(), q.fill.unmap(), q.cq.unmap()}
	if q.fd >= 0 {
		m.mu.Lock()
		m.bound = slices.DeleteFunc(m.bound, func(fd int) bool { return fd == q.fd })
		m.mu.Unlock()
		errs = append(errs, unix.Close(q.fd))
	}
	return errors.Join(errs...)
}
