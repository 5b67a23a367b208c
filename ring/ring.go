package ring

import (
	"errors"
	"fmt"
)

// Dir is the direction of a ring.
type Dir uint8

const (
	RX Dir = iota
	TX
)

func (d Dir) String() string {
	if d == TX {
		return "tx"
	}
	return "rx"
}

// Config describes a ring to [New]; for drivers.
type Config struct {
	Port   string
	Index  int
	Dir    Dir
	Slots  int     // power of two, 1 to 2^30
	Region *Region // the buffers that slots name
	Life   *Life   // shared by all rings of the port
	Driver Driver

	// VnetLen is 0, [VnetLen] or [VnetLenMrg]: the virtio-net header that
	// frames of this ring carry in headroom.
	VnetLen int
	// Offset is where a frame starts in the buffers of a transmit ring; the
	// bytes before it are headroom, at least VnetLen of them.
	Offset int
	// MaxFrame is the largest frame that this ring takes, super-frames left
	// aside; 0 means [MaxFrame]. With MultiSlot, frames larger than a buffer
	// go in several slots; without it they are refused, too.
	MaxFrame  int
	MultiSlot bool
	// FD is a descriptor for poll(2), readable (RX) or writable (TX) when a
	// Sync would bring something; WakeFD becomes readable when the port
	// closes. -1 where there is none.
	FD, WakeFD int
}

// Ring is one direction of one queue of a port. The fields Head and Cur belong
// to the goroutine that owns the ring; so do all methods but Stats' reads,
// Enter, Exit and the constant getters. See the package comment.
type Ring struct {
	Head uint32 // first slot that the program keeps; the program advances it
	Cur  uint32 // first slot that the program has not looked at

	tail     uint32 // one past the program's last slot
	accepted uint32 // Head as of the last Sync
	mask     uint32
	vnet     uint32
	maxFrame uint32
	offset   uint32
	multi    bool
	dir      Dir
	slots    []Slot
	region   *Region
	drv      Driver
	life     *Life

	port       string
	index      int
	fd, wakeFD int
	armer      Armer
	metaer     Metaer

	Stats Counters
}

// New makes a ring for a driver. The driver fills in the buffers of a
// transmit ring's slots before it hands the ring out.
func New(c Config) (*Ring, error) {
	switch {
	case c.Slots < 1 || c.Slots > 1<<30 || c.Slots&(c.Slots-1) != 0:
		return nil, fmt.Errorf("ring: %d slots: must be a power of two up to 2^30", c.Slots)
	case c.Region == nil || c.Life == nil || c.Driver == nil:
		return nil, errors.New("ring: config needs a region, a life and a driver")
	case c.VnetLen != 0 && c.VnetLen != VnetLen && c.VnetLen != VnetLenMrg:
		return nil, fmt.Errorf("ring: virtio-net header of %d bytes: must be 0, %d or %d", c.VnetLen, VnetLen, VnetLenMrg)
	case c.MaxFrame < 0 || c.MaxFrame > MaxFrame:
		return nil, fmt.Errorf("ring: largest frame %d: must be between 0 and %d", c.MaxFrame, MaxFrame)
	}
	if c.Offset < c.VnetLen || c.Offset > c.Region.BufSize() {
		if c.Dir == TX {
			return nil, fmt.Errorf("ring: frame offset %d: must be between %d and %d", c.Offset, c.VnetLen, c.Region.BufSize())
		}
	}
	if c.MaxFrame == 0 {
		c.MaxFrame = MaxFrame
	}
	r := &Ring{
		mask: uint32(c.Slots - 1), slots: make([]Slot, c.Slots), vnet: uint32(c.VnetLen),
		maxFrame: uint32(c.MaxFrame), offset: uint32(c.Offset), multi: c.MultiSlot, dir: c.Dir, region: c.Region,
		drv: c.Driver, life: c.Life, port: c.Port, index: c.Index, fd: c.FD, wakeFD: c.WakeFD,
	}
	r.armer, _ = c.Driver.(Armer)
	r.metaer, _ = c.Driver.(Metaer)
	if c.Dir == TX {
		r.tail = uint32(c.Slots)
	}
	return r, nil
}

// Seed sets all cursors of a fresh ring to start, a multiple of its size; for
// tests of the wrap.
func (r *Ring) Seed(start uint32) {
	r.tail += start - r.accepted
	r.Head, r.Cur, r.accepted = start, start, start
}

// Slot returns slot k of the stream. Only slots in [Head, Tail) are the
// program's to read or write.
func (r *Ring) Slot(k uint32) *Slot { return &r.slots[k&r.mask] }

// Slots returns all slots, that of cursor k at k&(Len-1); for drivers that go
// over many at once.
func (r *Ring) Slots() []Slot { return r.slots }

// Frame returns the bytes of slot k's frame; nil if the slot names memory
// outside of its buffer, or the port is closed.
func (r *Ring) Frame(k uint32) []byte { return r.region.Frame(&r.slots[k&r.mask]) }

// Buf prepares slot k of a transmit ring for a new frame: it sets the slot's
// offset to the ring's and returns the buffer from there to its end, for the
// program to fill; Len and Flags are the program's to set. Nil if the slot
// names no buffer.
func (r *Ring) Buf(k uint32) []byte {
	s := &r.slots[k&r.mask]
	b := r.region.Buf(s.Buf)
	if b == nil {
		return nil
	}
	s.Off = r.offset
	return b[s.Off:]
}

// Vnet reads the virtio-net header before slot k's frame into v; false if the
// frame has none.
func (r *Ring) Vnet(k uint32, v *Vnet) bool {
	s := &r.slots[k&r.mask]
	if s.Flags&SlotVnet == 0 || r.vnet == 0 {
		return false
	}
	b := r.region.span(s, r.vnet)
	if b == nil {
		return false
	}
	v.Decode(b)
	return true
}

// SetVnet writes the virtio-net header before slot k's frame and sets the
// slot's flags; false, and nothing written, if the ring carries none or there
// is no room before the frame.
func (r *Ring) SetVnet(k uint32, v *Vnet) bool {
	s := &r.slots[k&r.mask]
	if r.vnet == 0 {
		return false
	}
	b := r.region.span(s, r.vnet)
	if b == nil {
		return false
	}
	v.Encode(b[:r.vnet])
	s.Flags = s.Flags&^SlotGSO | SlotVnet
	if v.GSOType != VnetGSONone {
		s.Flags |= SlotGSO
	}
	return true
}

// Meta tells what the driver knows about the received frame in slot k, which
// is the program's; false if it knows nothing.
func (r *Ring) Meta(k uint32, m *Meta) bool { return r.metaer != nil && r.metaer.Meta(r, k, m) }

// Tail is one past the last slot that belongs to the program.
func (r *Ring) Tail() uint32 { return r.tail }

// Accepted is the first slot that the driver has not been given yet.
func (r *Ring) Accepted() uint32 { return r.accepted }

// Space returns the number of slots from Head to Tail: free slots of a
// transmit ring, received ones of a receive ring.
func (r *Ring) Space() int { return int(r.tail - r.Head) }

// Len returns the number of slots.
func (r *Ring) Len() int { return len(r.slots) }

// Pending returns how many slots of a transmit ring are not known to be sent:
// those passed by Head and not synced, and those in the device's hands.
func (r *Ring) Pending() int { return int(r.Head + uint32(len(r.slots)) - r.tail) }

// Ready reports whether there are slots that the program has not looked at.
func (r *Ring) Ready() bool { return r.Cur != r.tail }

// Port, Index, Dir, Region, VnetLen, Offset, MaxFrame, MultiSlot, FD and WakeFD are
// constant; see [Config].
func (r *Ring) Port() string    { return r.port }
func (r *Ring) Index() int      { return r.index }
func (r *Ring) Dir() Dir        { return r.dir }
func (r *Ring) Region() *Region { return r.region }
func (r *Ring) VnetLen() int    { return int(r.vnet) }
func (r *Ring) Offset() int     { return int(r.offset) }
func (r *Ring) MaxFrame() int   { return int(r.maxFrame) }
func (r *Ring) MultiSlot() bool { return r.multi }
func (r *Ring) FD() int         { return r.fd }
func (r *Ring) WakeFD() int     { return r.wakeFD }

// Enter keeps the port's memory until Exit; it answers [ErrClosed] once the
// port is closed. Any goroutine.
func (r *Ring) Enter() error {
	if !r.life.Enter() {
		return r.opError("enter", ErrClosed)
	}
	return nil
}

// Exit undoes one Enter.
func (r *Ring) Exit() { r.life.Exit() }

// Sync hands over the slots that Head passed and brings Tail forward; see the
// package comment. It never blocks. After an error the ring is consistent and
// no slot is lost: Head is put back to the first slot that was not taken over.
func (r *Ring) Sync() error {
	if !r.life.Enter() {
		return r.opError("sync", ErrClosed)
	}
	err := r.sync()
	r.life.Exit()
	return err
}

func (r *Ring) sync() error {
	mine := r.tail - r.accepted
	if h := r.Head - r.accepted; h > mine || r.Cur-r.Head > mine-h {
		err := fmt.Errorf("%w: head %d, cur %d, must be in order within [%d, %d]", ErrCursor, r.Head, r.Cur, r.accepted, r.tail)
		r.Head, r.Cur = r.accepted, r.accepted
		return r.opError("sync", err)
	}
	accepted, tail, err := r.drv.Sync(r, r.accepted, r.Head)
	if accepted != r.Head {
		r.Head = accepted
	}
	r.accepted, r.tail = accepted, tail
	r.Stats.Syncs.Add(1)
	if err != nil {
		return r.opError("sync", err)
	}
	return nil
}

// Arm prepares the ring for a wait on FD. Sync once more between Arm and the
// wait: what came before Arm does not signal.
func (r *Ring) Arm() {
	if r.armer != nil && r.life.Enter() {
		r.armer.Arm(r)
		r.life.Exit()
	}
}

// Refresh brings the kernel's counters into Stats and reports the state of the
// link: nil, or an error that Is [ErrLinkDown] or [ErrGone]. It is a system
// call: a few times a second, not per batch. The ring's owner calls it.
func (r *Ring) Refresh() error {
	f, ok := r.drv.(Refresher)
	if !ok {
		return nil
	}
	if !r.life.Enter() {
		return r.opError("refresh", ErrClosed)
	}
	err := f.Refresh(r)
	r.life.Exit()
	if err != nil {
		return r.opError("refresh", err)
	}
	return nil
}

// Reset makes a stuck transmit ring usable again: what is in the device's
// hands counts as dropped (closed) and all slots are the program's. The
// watchdog calls it. It answers errors.ErrUnsupported where a ring cannot be
// made anew.
func (r *Ring) Reset() error {
	f, ok := r.drv.(Resetter)
	if !ok {
		return r.opError("reset", errors.ErrUnsupported)
	}
	if !r.life.Enter() {
		return r.opError("reset", ErrClosed)
	}
	defer r.life.Exit()
	if err := f.Reset(r); err != nil {
		return r.opError("reset", err)
	}
	r.accepted = r.Head
	r.Cur = r.Head
	r.tail = r.Head + uint32(len(r.slots))
	return nil
}

func (r *Ring) opError(op string, err error) error {
	return &OpError{Op: op, Port: r.port + " " + r.dir.String(), Ring: r.index, Err: err}
}
