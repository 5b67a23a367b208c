//go:build cgo && linux

package afpacket

import (
	"errors"
	"fmt"
	"net"
	"reflect"
	"time"

	"github.com/google/gopacket/afpacket"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/netring/netring/ring"
)

// Options for [Open]. The zero value is valid.
type Options struct {
	Slots        int           // of each ring; a power of two; 0 means 1024
	BufSize      int           // bytes of a slot's buffer; 0 means 2048; longer frames are truncated
	BlockTimeout time.Duration // at least 1 ms, which is what 0 means (gopacket's own default is 64 ms)
	Outgoing     bool          // also receive what this host sends on the interface
	Promiscuous  bool
	VLAN         bool // put VLAN tags back that the kernel took out
}

// Validate reports the first field with a value that Open would refuse.
func (o *Options) Validate() error {
	switch {
	case o.Slots < 0 || o.Slots > 1<<20 || o.Slots&(o.Slots-1) != 0:
		return fmt.Errorf("slots %d: must be a power of two up to 2^20", o.Slots)
	case o.BufSize != 0 && (o.BufSize < 64 || o.BufSize > 1<<17):
		return fmt.Errorf("buffer size %d: must be between 64 and %d", o.BufSize, 1<<17)
	case o.BlockTimeout != 0 && o.BlockTimeout < time.Millisecond:
		return fmt.Errorf("block timeout %v: must be at least 1ms", o.BlockTimeout)
	}
	return nil
}

// Port is one interface, with one receive and one transmit ring.
type Port struct {
	name   string
	index  int
	tp     *afpacket.TPacket
	member int // socket that holds the promiscuous membership, -1 if none
	wakeFD int
	mtu    int
	life   *ring.Life
	rx, tx *ring.Ring
}

var _ ring.Port = (*Port)(nil)

// Open opens the interface. It needs CAP_NET_RAW.
func Open(name string, o Options) (*Port, error) {
	p, err := open(name, o)
	if err != nil {
		return nil, &ring.OpError{Op: "open", Port: name, Ring: -1, Err: err}
	}
	return p, nil
}

func open(name string, o Options) (p *Port, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Slots == 0 {
		o.Slots = 1024
	}
	if o.BufSize == 0 {
		o.BufSize = 2048
	}
	if o.BlockTimeout == 0 {
		o.BlockTimeout = time.Millisecond
	}
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ring.ErrNoInterface, err)
	}
	p = &Port{name: name, index: ifi.Index, member: -1, wakeFD: -1, mtu: ifi.MTU, life: ring.NewLife()}
	defer func() {
		if err != nil {
			p.release()
		}
	}()
	p.tp, err = afpacket.NewTPacket(afpacket.OptInterface(name), afpacket.OptFrameSize(4096),
		afpacket.OptBlockSize(4096*64), afpacket.OptNumBlocks(16), afpacket.OptBlockTimeout(o.BlockTimeout),
		afpacket.OptPollTimeout(0), afpacket.OptAddVLANHeader(o.VLAN))
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return nil, fmt.Errorf("%w: needs CAP_NET_RAW; run as root or grant it with setcap", err)
	}
	if err != nil {
		return nil, err
	}
	if !o.Outgoing {
		if err := p.tp.SetBPF(noOutgoing()); err != nil {
			return nil, fmt.Errorf("set filter: %w", err)
		}
	}
	if o.Promiscuous {
		if p.member, err = promiscuous(ifi.Index); err != nil {
			return nil, err
		}
	}
	if p.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	return p, p.rings(o)
}

// rings makes the two rings. Slot k of each has buffer k, always, of a region of
// its own: buffers do not change rings, and [ring.Move] copies.
func (p *Port) rings(o Options) (err error) {
	c := ring.Config{Port: p.name, Slots: o.Slots, Life: p.life, FD: p.fd(), WakeFD: p.wakeFD}
	c.Dir, c.Driver = ring.RX, &receiver{p: p, meta: make([]ring.Meta, o.Slots)}
	if p.rx, err = newRing(c, o.BufSize); err != nil {
		return err
	}
	c.Dir, c.Driver, c.MaxFrame = ring.TX, &sender{p: p}, min(p.mtu+14+4, o.BufSize)
	p.tx, err = newRing(c, o.BufSize)
	return err
}

func newRing(c ring.Config, bufSize int) (r *ring.Ring, err error) {
	if c.Region, err = ring.NewRegion(make([]byte, c.Slots*bufSize), bufSize); err != nil {
		return nil, err
	}
	if r, err = ring.New(c); err != nil {
		return nil, err
	}
	for k := range uint32(c.Slots) {
		r.Slot(k).Buf = k
	}
	return r, nil
}

// fd returns the descriptor of the socket, which gopacket does not export and
// without which nobody could wait for a frame.
func (p *Port) fd() int {
	if f := reflect.ValueOf(p.tp).Elem().FieldByName("fd"); f.IsValid() && f.CanInt() {
		return int(f.Int())
	}
	return -1
}

// noOutgoing is a filter that drops what the host itself sends.
func noOutgoing() []bpf.RawInstruction {
	raw, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PACKET_OUTGOING, SkipFalse: 1},
		bpf.RetConstant{Val: 0},
		bpf.RetConstant{Val: 1 << 18},
	})
	if err != nil {
		return nil // four constant instructions do assemble; SetBPF refuses nil
	}
	return raw
}

// promiscuous returns a socket that keeps the interface promiscuous until it
// is closed.
func promiscuous(ifindex int) (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("promiscuous socket: %w", err)
	}
	m := unix.PacketMreq{Ifindex: int32(ifindex), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("promiscuous membership: %w", err)
	}
	return fd, nil
}

// Name returns the interface's name.
func (p *Port) Name() string { return p.name }

// RxRings and TxRings return the one ring of each direction.
func (p *Port) RxRings() []*ring.Ring { return []*ring.Ring{p.rx} }
func (p *Port) TxRings() []*ring.Ring { return []*ring.Ring{p.tx} }

// linkState asks why the socket reported an error: nil if the link is up by
// now. It allocates; it is not for the data path.
func (p *Port) linkState() error {
	ifi, err := net.InterfaceByIndex(p.index)
	switch {
	case err != nil:
		return ring.ErrGone
	case ifi.Flags&net.FlagUp == 0 || ifi.Flags&net.FlagRunning == 0:
		return ring.ErrLinkDown
	}
	return nil
}

// Close closes the port; see [ring.Port].
func (p *Port) Close() error {
	if !p.life.Shut() {
		return nil
	}
	// Waiters are inside; the event makes their poll(2) return.
	_, err := unix.Write(p.wakeFD, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	p.life.Drain()
	p.rx.Region().Forget()
	p.tx.Region().Forget()
	p.release()
	return err
}

func (p *Port) release() {
	if p.tp != nil {
		p.tp.Close()
	}
	for _, fd := range []int{p.member, p.wakeFD} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
