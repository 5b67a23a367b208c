package tpacket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/ring"
)

var native = binary.NativeEndian

// Where the fake kernel writes, from linux/if_packet.h; written down here once
// more, so that a wrong offset in the walkers shows.
const (
	kPktType     = 10 // sll_pkttype in sockaddr_ll
	kBlockStatus = 8  // block_status, num_pkts, offset_to_first_pkt in a block
	kBlockPkts   = 12
	kBlockFirst  = 16
)

// fakeSock is the kernel's side of a receive ring's socket.
type fakeSock struct {
	queue [][]byte // what receive(2) brings: header and frame
	err   unix.Errno
}

func (s *fakeSock) receive(b []byte) (int, unix.Errno) {
	if s.err != 0 || len(s.queue) == 0 {
		return 0, max(s.err, unix.EAGAIN)
	}
	n := copy(b, s.queue[0])
	s.queue = s.queue[1:]
	return n, 0
}

func (s *fakeSock) statistics(c *ring.Counters) error {
	c.KernelPackets.Add(7)
	return nil
}

// packet is a frame as the kernel is about to store it.
type packet struct {
	data    []byte
	wire    int // bytes on the wire, if more than data
	status  uint32
	tci     uint16
	tpid    uint16
	pktType byte
	vnet    ring.Vnet
	hash    uint32
}

// storeV2 does what tpacket_rcv does with TPACKET_V2: it stores p in frame
// area and hands it over.
func storeV2(area []byte, p packet, vnet int, sock *fakeSock) {
	mac := alignUp(v2HdrLen+llLen+16, align) - ethHdr + vnet
	snap := len(p.data)
	status := p.status | unix.TP_STATUS_USER
	if mac+snap > len(area) {
		// The whole of it goes to the socket's queue, with its header.
		head := make([]byte, vnet, vnet+snap)
		if vnet != 0 {
			p.vnet.Encode(head)
		}
		sock.queue = append(sock.queue, append(head, p.data...))
		status |= unix.TP_STATUS_COPY
		snap = len(area) - mac
	}
	native.PutUint32(area[4:], uint32(max(p.wire, len(p.data))))
	native.PutUint32(area[8:], uint32(snap))
	native.PutUint16(area[12:], uint16(mac))
	native.PutUint16(area[14:], uint16(mac+ethHdr))
	native.PutUint32(area[16:], 1700000000)
	native.PutUint32(area[20:], 123456789)
	native.PutUint16(area[24:], p.tci)
	native.PutUint16(area[26:], p.tpid)
	area[v2HdrLen+kPktType] = p.pktType
	if vnet != 0 {
		p.vnet.Encode(area[mac-kernelVnet : mac])
	}
	copy(area[mac:], p.data[:snap])
	word(area, 0).Store(status)
}

// fakeRx2 is a V2 ring on plain memory and the kernel's position in it.
type fakeRx2 struct {
	fakeSock
	d    *rx2
	ring *ring.Ring
	vnet int // of the kernel
	head int
}

func newFakeRx2(t testing.TB, n, frame, vnet int) *fakeRx2 {
	t.Helper()
	f := &fakeRx2{vnet: min(vnet, kernelVnet)}
	mem := make([]byte, n*frame)
	f.d = newRx2(rxBase{sock: f, mem: mem, vnet: uint32(vnet)}, n, frame)
	region := newRegion(t, mem, frame)
	if f.d.large != nil {
		region.WithLarge(f.d.large)
	}
	f.ring = newRing(t, ring.Config{Dir: ring.RX, Slots: n, Region: region, Driver: f.d, VnetLen: vnet})
	return f
}

// deliver stores p in the next frame; false if the ring is full.
func (f *fakeRx2) deliver(p packet) bool {
	area := f.d.mem[f.head*int(f.d.frame):][:f.d.frame]
	if word(area, 0).Load() != unix.TP_STATUS_KERNEL {
		return false
	}
	storeV2(area, p, f.vnet, &f.fakeSock)
	f.head = (f.head + 1) % len(f.d.big)
	return true
}

// fakeRx3 is a V3 ring on plain memory and the kernel's position in it.
type fakeRx3 struct {
	fakeSock
	d    *rx3
	ring *ring.Ring
	vnet int
	blk  int // block that is filled
	off  int // where its next packet goes; 0 if none is in it
	last int // offset of its last packet
}

func newFakeRx3(t testing.TB, slots, block, blocks, vnet int) *fakeRx3 {
	t.Helper()
	f := &fakeRx3{vnet: min(vnet, kernelVnet)}
	mem := make([]byte, block*blocks)
	f.d = newRx3(rxBase{sock: f, mem: mem, vnet: uint32(vnet)}, slots, block, blocks)
	f.ring = newRing(t, ring.Config{Dir: ring.RX, Slots: slots, Region: newRegion(t, mem, block), Driver: f.d, VnetLen: vnet})
	return f
}

// deliver appends p to the block being filled, which it closes first if p does
// not fit; false if the program has the block.
func (f *fakeRx3) deliver(p packet) bool {
	mac := alignUp(v3HdrLen+llLen+16, align) - ethHdr + f.vnet
	size := alignUp(mac+len(p.data), 8)
	if f.off != 0 && f.off+size > int(f.d.block) {
		f.close()
	}
	area := f.d.area(uint32(f.blk))
	if word(area, kBlockStatus).Load() != unix.TP_STATUS_KERNEL {
		return false
	}
	if f.off == 0 {
		clear(area[:blockHdr])
		native.PutUint32(area[kBlockFirst:], blockHdr)
		f.off = blockHdr
	}
	native.PutUint32(area[kBlockPkts:], u32(area, kBlockPkts)+1)
	h := area[f.off:]
	for i, v := range []uint32{uint32(size), 1700000000, 123456789, uint32(len(p.data)), uint32(max(p.wire, len(p.data))), p.status} {
		native.PutUint32(h[4*i:], v)
	}
	native.PutUint16(h[24:], uint16(mac))
	native.PutUint16(h[26:], uint16(mac+ethHdr))
	native.PutUint32(h[28:], p.hash)
	native.PutUint32(h[32:], uint32(p.tci))
	native.PutUint16(h[36:], p.tpid)
	h[v3HdrLen+kPktType] = p.pktType
	if f.vnet != 0 {
		p.vnet.Encode(h[mac-kernelVnet : mac])
	}
	copy(h[mac:], p.data)
	f.last = f.off
	f.off += size
	return true
}

// close hands the block over, as when its timer fires or it is full. One
// without packets is handed over too.
func (f *fakeRx3) close() {
	area := f.d.area(uint32(f.blk))
	if word(area, kBlockStatus).Load() != unix.TP_STATUS_KERNEL {
		return
	}
	if f.off == 0 {
		clear(area[:blockHdr])
	} else {
		native.PutUint32(area[f.last:], 0)
	}
	word(area, kBlockStatus).Store(unix.TP_STATUS_USER)
	f.blk, f.off = (f.blk+1)%int(f.d.blocks), 0
}

// fakeTx is the kernel's side of a transmit ring: it takes frames in order and
// finishes them when told to.
type fakeTx struct {
	d        *tx
	ring     *ring.Ring
	head     uint32 // next frame to take
	inFlight []uint32
	sent     [][]byte // header and frame, of all taken

	limit   int                 // frames that one doorbell takes; 0 is no limit
	fail    unix.Errno          // what the doorbell answers when it got nowhere
	refuse  func(b []byte) bool // frames that it passes over
	waiting func(f *fakeTx)     // called by writable
	stuck   error               // what writable answers
}

func newFakeTx(t testing.TB, n, vnet, mtu int) *fakeTx {
	t.Helper()
	g, err := solveV2(txNeed(mtu, vnet), n, 4096, maxBlockV2)
	if err != nil {
		t.Fatal(err)
	}
	mem := make([]byte, g.Bytes())
	f := &fakeTx{}
	f.d = newTx(f, nil, mem, g, vnet)
	f.ring = newRing(t, ring.Config{Dir: ring.TX, Slots: n, Region: newRegion(t, mem, g.FrameSize), Driver: f.d,
		VnetLen: vnet, Offset: txOffset + vnet, MaxFrame: min(mtu+ethHdr+vlanTag, ring.MaxFrame)})
	for k := range uint32(n) {
		*f.ring.Slot(k) = ring.Slot{Buf: k, Off: txOffset + uint32(vnet)}
	}
	return f
}

// doorbell does what tpacket_snd does with PACKET_LOSS.
func (f *fakeTx) doorbell() (took int, e unix.Errno) {
	first := f.head
	for i := 0; f.limit == 0 || i < f.limit; i++ {
		frame := f.d.at(f.head)
		if word(frame, 0).Load() != unix.TP_STATUS_SEND_REQUEST {
			break
		}
		n := u32(frame, 4)
		b := frame[txOffset : txOffset+n]
		if n <= f.d.vnet || f.refuse != nil && f.refuse(b) { // no frame has no length
			word(frame, 0).Store(unix.TP_STATUS_AVAILABLE)
		} else {
			word(frame, 0).Store(unix.TP_STATUS_SENDING)
			f.sent = append(f.sent, append([]byte(nil), b...))
			f.inFlight = append(f.inFlight, f.head)
			took += int(n - f.d.vnet)
		}
		f.head++
	}
	if f.head == first {
		e = f.fail
	}
	return took, e
}

// finish completes the i-th frame in flight.
func (f *fakeTx) finish(i int) {
	word(f.d.at(f.inFlight[i]), 0).Store(unix.TP_STATUS_AVAILABLE)
	f.inFlight = append(f.inFlight[:i], f.inFlight[i+1:]...)
}

func (f *fakeTx) finishAll() {
	for len(f.inFlight) > 0 {
		f.finish(0)
	}
}

func (f *fakeTx) writable(d time.Duration) error {
	if f.waiting != nil {
		f.waiting(f)
	} else {
		time.Sleep(d)
	}
	return f.stuck
}

func newRegion(t testing.TB, mem []byte, stride int) *ring.Region {
	t.Helper()
	g, err := ring.NewRegion(mem, stride)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func newRing(t testing.TB, c ring.Config) *ring.Ring {
	t.Helper()
	c.Port, c.Life, c.FD, c.WakeFD = "fake", ring.NewLife(), -1, -1
	r, err := ring.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// payload is a recognisable frame of size bytes.
func payload(size, seq int) []byte {
	b := make([]byte, size)
	copy(b, "\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x88\xb5")
	for i := ethHdr; i < size; i++ {
		b[i] = byte(i*7 + seq)
	}
	binary.BigEndian.PutUint32(b[ethHdr:], uint32(seq))
	return b
}

// mustSync syncs r, with Cur at Head.
func mustSync(t testing.TB, r *ring.Ring) {
	t.Helper()
	r.Cur = r.Head
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
}

var errStuck = errors.New("stuck")

func name(v int, vnet int) string { return fmt.Sprintf("V%d/vnet%d", v, vnet) }
