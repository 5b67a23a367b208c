package pcap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/ring"
)

// Defaults of [Options].
const (
	DefaultSlots   = 256
	DefaultBufSize = (ring.MaxFrame + 63) / 64 * 64
)

// Options for [Open]; at least one of Read and Write is needed.
type Options struct {
	Read  string // file that the receive ring brings
	Write string // file that the transmit ring writes; one that exists is replaced
	Slots int    // of each ring, a power of two; 0 means 256
	// BufSize is the bytes of each slot's buffer; 0 means enough for the
	// largest frame there is. Memory that no frame touches costs nothing.
	BufSize int
}

// Validate reports the first field that Open would refuse.
func (o *Options) Validate() error {
	switch {
	case o.Read == "" && o.Write == "":
		return errors.New("no file to read and none to write: at least one is needed")
	case o.Slots < 0 || o.Slots > 1<<20 || o.Slots&(o.Slots-1) != 0:
		return fmt.Errorf("slots %d: must be a power of two up to 2^20", o.Slots)
	case o.BufSize != 0 && (o.BufSize < 64 || o.BufSize > 1<<20):
		return fmt.Errorf("buffer size %d: must be between 64 and %d", o.BufSize, 1<<20)
	}
	return nil
}

// Port is one or two capture files.
type Port struct {
	name    string
	life    *ring.Life
	readyFD int // readable and writable: a file is always ready
	wakeFD  int
	files   []*os.File
	regs    []*ring.Region
	rx, tx  []*ring.Ring
	out     *sender
}

var _ ring.Port = (*Port)(nil)

// Open opens the files.
func Open(o Options) (*Port, error) {
	name := o.Read
	if name == "" {
		name = o.Write
	}
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
		o.Slots = DefaultSlots
	}
	if o.BufSize == 0 {
		o.BufSize = DefaultBufSize
	}
	p = &Port{name: name, life: ring.NewLife(), readyFD: -1, wakeFD: -1}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.release())
			p = nil
		}
	}()
	for _, e := range []struct {
		fd *int
		n  uint
	}{{&p.readyFD, 1}, {&p.wakeFD, 0}} {
		if *e.fd, err = unix.Eventfd(e.n, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
			return p, fmt.Errorf("eventfd: %w", err)
		}
	}
	if o.Read != "" {
		if err = p.reader(o); err != nil {
			return p, err
		}
	}
	if o.Write != "" {
		if err = p.writer(o); err != nil {
			return p, err
		}
	}
	return p, nil
}

// add makes a ring whose slot k has buffer k.
func (p *Port) add(o Options, dir ring.Dir, drv ring.Driver) (*ring.Ring, error) {
	region, err := ring.NewRegion(make([]byte, o.Slots*o.BufSize), o.BufSize)
	if err != nil {
		return nil, err
	}
	r, err := ring.New(ring.Config{Port: p.name, Dir: dir, Slots: o.Slots, Region: region, Life: p.life, Driver: drv,
		MaxFrame: min(o.BufSize, ring.MaxFrame), FD: p.readyFD, WakeFD: p.wakeFD})
	if err != nil {
		return nil, err
	}
	for k := range uint32(o.Slots) {
		r.Slot(k).Buf = k
	}
	p.regs = append(p.regs, region)
	return r, nil
}

func (p *Port) reader(o Options) error {
	f, err := os.Open(o.Read)
	if err != nil {
		return err
	}
	p.files = append(p.files, f)
	d, err := newReceiver(f, o.Slots)
	if err != nil {
		return fmt.Errorf("read %s: %w", o.Read, err)
	}
	r, err := p.add(o, ring.RX, d)
	if err != nil {
		return err
	}
	d.region = r.Region()
	p.rx = append(p.rx, r)
	return nil
}

func (p *Port) writer(o Options) error {
	if o.Read != "" && sameFile(o.Read, o.Write) {
		return fmt.Errorf("write %s: it is the file that is read", o.Write)
	}
	f, err := os.Create(o.Write)
	if err != nil {
		return err
	}
	p.files = append(p.files, f)
	d, err := newSender(f)
	if err != nil {
		return fmt.Errorf("write %s: %w", o.Write, err)
	}
	r, err := p.add(o, ring.TX, d)
	if err != nil {
		return err
	}
	d.region = r.Region()
	p.tx, p.out = append(p.tx, r), d
	return nil
}

func sameFile(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	fa, err := os.Stat(a)
	if err != nil {
		return false
	}
	fb, err := os.Stat(b)
	return err == nil && os.SameFile(fa, fb)
}

// Name returns the path of the file that is read, or else written.
func (p *Port) Name() string { return p.name }

// RxRings returns the ring of the file that is read, if there is one.
func (p *Port) RxRings() []*ring.Ring { return p.rx }

// TxRings returns the ring of the file that is written, if there is one.
func (p *Port) TxRings() []*ring.Ring { return p.tx }

// Close writes out what is left and closes the files; see [ring.Port].
func (p *Port) Close() error {
	if !p.life.Shut() {
		return nil
	}
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, err := unix.Write(p.wakeFD, one[:])
	p.life.Drain()
	for _, g := range p.regs {
		g.Forget()
	}
	if err = errors.Join(err, p.release()); err != nil {
		return &ring.OpError{Op: "close", Port: p.name, Ring: -1, Err: err}
	}
	return nil
}

// release closes what open has opened, as far as it came.
func (p *Port) release() error {
	var errs []error
	for _, f := range p.files {
		errs = append(errs, f.Close())
	}
	for _, fd := range []int{p.readyFD, p.wakeFD} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}
