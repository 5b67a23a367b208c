package tpacket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/netdev"
	"github.com/netring/netring/ring"
)

// sock is a packet socket with one mapped ring.
type sock struct {
	fd  int
	v3  bool
	mem []byte
	geo Geometry
}

func openSock() (*sock, error) {
	// Protocol 0: nothing arrives before bind says what shall.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, netdev.NeedRaw(fmt.Errorf("open packet socket: %w", err))
	}
	return &sock{fd: fd}, nil
}

// set sets an option that the kernel may be too old for.
func (s *sock) set(opt, v int, name, since string) error {
	err := unix.SetsockoptInt(s.fd, unix.SOL_PACKET, opt, v)
	if errors.Is(err, unix.ENOPROTOOPT) || errors.Is(err, unix.EINVAL) {
		return &ring.UnsupportedError{Feature: name, Since: since, Err: err}
	}
	if err != nil {
		return fmt.Errorf("set %s: %w", name, err)
	}
	return nil
}

func (s *sock) version(v Version) error {
	s.v3 = v == V3
	n := unix.TPACKET_V2
	if s.v3 {
		n = unix.TPACKET_V3
	}
	return s.set(unix.PACKET_VERSION, n, "TPACKET_V"+string('0'+rune(v)), "3.2")
}

func (s *sock) vnet(n int) error {
	switch n {
	case 0:
		return nil
	case ring.VnetLen:
		return s.set(unix.PACKET_VNET_HDR, 1, "PACKET_VNET_HDR", "2.6.27; with rings 4.6")
	}
	return s.set(unix.PACKET_VNET_HDR_SZ, n, "PACKET_VNET_HDR_SZ", "6.4")
}

// rings creates and maps the ring; on ENOMEM a smaller one. minBlock is the
// least block that holds a frame.
func (s *sock) rings(opt int, g Geometry, minBlock int, timeout time.Duration, hash bool) error {
	for {
		err := s.request(opt, g, timeout, hash)
		if err == nil {
			break
		}
		smaller, ok := g.smaller(minBlock, os.Getpagesize())
		if !errors.Is(err, unix.ENOMEM) || !ok {
			return fmt.Errorf("create ring of %d blocks of %d bytes: %w", g.Blocks, g.BlockSize, err)
		}
		g = smaller
	}
	return s.mapRing(g)
}

// mapRing maps the ring that the socket has, of shape g.
func (s *sock) mapRing(g Geometry) error {
	mem, err := unix.Mmap(s.fd, 0, int(g.Bytes()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map ring of %d bytes: %w", g.Bytes(), err)
	}
	s.mem, s.geo = mem, g
	return nil
}

func (s *sock) request(opt int, g Geometry, timeout time.Duration, hash bool) error {
	if !s.v3 {
		return unix.SetsockoptTpacketReq(s.fd, unix.SOL_PACKET, opt, &unix.TpacketReq{
			Block_size: uint32(g.BlockSize), Block_nr: uint32(g.Blocks),
			Frame_size: uint32(g.FrameSize), Frame_nr: uint32(g.Frames)})
	}
	req := unix.TpacketReq3{
		Block_size: uint32(g.BlockSize), Block_nr: uint32(g.Blocks),
		Frame_size: uint32(g.FrameSize), Frame_nr: uint32(g.Frames),
		Retire_blk_tov: uint32(timeout / time.Millisecond)}
	if hash {
		req.Feature_req_word = 1 // TP_FT_REQ_FILL_RXHASH
	}
	return unix.SetsockoptTpacketReq3(s.fd, unix.SOL_PACKET, opt, &req)
}

// bind ties the socket to the interface; proto 0 receives nothing.
func (s *sock) bind(ifindex int, proto uint16) error {
	var be [2]byte
	binary.BigEndian.PutUint16(be[:], proto)
	sa := unix.SockaddrLinklayer{Protocol: binary.NativeEndian.Uint16(be[:]), Ifindex: ifindex}
	err := unix.Bind(s.fd, &sa)
	if errors.Is(err, unix.ENETDOWN) {
		return fmt.Errorf("bind: %w: set it up first (ip link set ... up)", ring.ErrLinkDown)
	}
	if err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	return nil
}

// buffer raises a socket buffer bound; what is granted without CAP_NET_ADMIN
// is the system's limit.
func (s *sock) buffer(force, plain, n int) {
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, force, n) != nil {
		_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, plain, n)
	}
}

// join makes the socket one of fanout group id, or of a new group with an id
// that no other program has, if id is negative; it returns the id.
func (s *sock) join(id int, o *Options) (int, error) {
	mode := [...]int{unix.PACKET_FANOUT_HASH, unix.PACKET_FANOUT_LB, unix.PACKET_FANOUT_CPU,
		unix.PACKET_FANOUT_QM, unix.PACKET_FANOUT_ROLLOVER}[o.Fanout]
	if o.Defrag {
		mode |= unix.PACKET_FANOUT_FLAG_DEFRAG
	}
	if !o.Outgoing {
		// A group has a hook of its own: the sockets' PACKET_IGNORE_OUTGOING
		// says nothing to it.
		mode |= unix.PACKET_FANOUT_FLAG_IGNORE_OUTGOING
	}
	if o.Rollover {
		mode |= unix.PACKET_FANOUT_FLAG_ROLLOVER
	}
	arg := mode << 16
	if id < 0 {
		arg |= unix.PACKET_FANOUT_FLAG_UNIQUEID << 16
	} else {
		arg |= id
	}
	if err := unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_FANOUT, arg); err != nil {
		return -1, fmt.Errorf("join fanout group: %w", err)
	}
	got, err := unix.GetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_FANOUT)
	if err != nil {
		return -1, fmt.Errorf("fanout group id: %w", err)
	}
	return got & 0xffff, nil
}

func (s *sock) close() error {
	var errs []error
	if s.mem != nil {
		errs = append(errs, unix.Munmap(s.mem))
		s.mem = nil
	}
	return errors.Join(append(errs, unix.Close(s.fd))...)
}

func (s *sock) receive(b []byte) (int, unix.Errno) { return receive(s.fd, b) }
func (s *sock) doorbell() (int, unix.Errno)        { return doorbell(s.fd) }
func (s *sock) writable(d time.Duration) error     { return pollOut(s.fd, d) }
func (s *sock) statistics(c *ring.Counters) (err error) {
	// The kernel clears its counters on reading.
	var packets, drops, freezes uint32
	if s.v3 {
		st, err := unix.GetsockoptTpacketStatsV3(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
		if err != nil {
			return err
		}
		packets, drops, freezes = st.Packets, st.Drops, st.Freeze_q_cnt
	} else {
		st, err := unix.GetsockoptTpacketStats(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
		if err != nil {
			return err
		}
		packets, drops = st.Packets, st.Drops
	}
	c.KernelPackets.Add(uint64(packets))
	c.KernelDrops.Add(uint64(drops))
	c.KernelFreezes.Add(uint64(freezes))
	return nil
}

// pollOut waits until the transmit ring has a free frame.
func pollOut(fd int, d time.Duration) error {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	_, err := unix.Poll(p, max(1, int(d/time.Millisecond)))
	switch {
	case errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return err
	case p[0].Revents&(unix.POLLERR|unix.POLLNVAL) != 0:
		return ring.ErrLinkDown
	}
	return nil
}
