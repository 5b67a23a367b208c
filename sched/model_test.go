package sched

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/netring/netring/ring"
)

// FuzzQueue drives a queue through whatever the steps say and checks what must
// hold for every one of them:
//
//   - each frame that was taken is in exactly one place: sent, dropped under a
//     cause, waiting, or in the ring;
//   - it arrives whole, and in order among those of its class that waited or
//     did not wait together;
//   - the limit's bytes are those in the ring, no more is in the ring than it
//     allows at its highest plus one frame, and nothing waits although it could go;
//   - with back-pressure nothing is dropped for want of room.
func FuzzQueue(f *testing.F) {
	f.Add(uint16(0), []byte("\x1f\x05\x40\x1f\x9f\x40\x83\x40\x1f\xc1\x40"))
	f.Add(uint16(0x3ff), []byte("\x1f\x05\x40\x1f\x3f\x3f\x40\x83\x40\x1f\xc1\x40\xe1\x1f\x40\xe0\x1f\x40\x84\x40"))
	f.Add(uint16(0x155), []byte("\x3f\x3f\x3f\x3f\x40\x8f\x40\x8f\x40\xe3\x3f\x40\x90\x40"))
	f.Add(uint16(0x0ea), []byte("\x1f\x41\x1f\x42\xf0\xf1\xf8\x40\xff\x40\x3f\x81\x40\x87\x40"))
	f.Fuzz(func(t *testing.T, config uint16, steps []byte) {
		if len(steps) > 300 {
			return
		}
		m := newModel(t, config)
		for _, s := range steps {
			m.step(s)
			m.check()
		}
		m.finish()
	})
}

type model struct {
	*rig
	o        Options
	taken    int
	copies   int
	prio     map[uint32]bool
	size     map[uint32]int
	maxLimit uint32
}

func newModel(t *testing.T, config uint16) *model {
	bit := func(n int) bool { return config>>n&1 != 0 }
	o := Options{Classifier: nil}
	if bit(0) {
		o.Limit, o.LimitHold, o.LimitStall = true, 2*time.Millisecond, 8*time.Millisecond
	}
	if bit(1) {
		o.StagePackets = 3
	}
	if bit(2) && bit(1) {
		o.StageBytes = 1000
	}
	if bit(3) {
		o.QueuePackets, o.QueueBytes = 6, 3000
	}
	if bit(4) {
		o.Rule = Evict
	}
	if bit(5) {
		o.Full = Backpressure
	}
	if bit(6) {
		o.Classifier = lacp(t)
	}
	if bit(7) {
		o.Watchdog = 20 * time.Millisecond
	}
	c := txConfig{slots: 8, vnet: ring.VnetLen}
	if bit(8) {
		c.multi, c.bufSize, c.maxFrame = true, 16+500, ring.MaxFrame
	}
	m := &model{rig: newRig(t, o, c), o: o, prio: map[uint32]bool{}, size: map[uint32]int{}}
	if bit(9) {
		m.dev.auto = true
	}
	return m
}

// step does what one byte says: frames arrive and are moved or copied, the
// round ends, the device finishes, fails or recovers, time passes.
func (m *model) step(s byte) {
	arg := int(s & 0x1f)
	switch s >> 5 {
	case 0, 1:
		for i := range arg%8 + 1 {
			m.frame(60+arg*40*(i%3), s>>5 == 1 && i%2 == 0, i == 5)
		}
		m.move(arg + 1)
	case 2:
		m.end()
	case 3:
		m.frame(100, arg&1 != 0, false)
		m.copyHead()
		m.move(1)
	case 4:
		m.dev.finish(arg)
	case 5:
		m.clk.Set(m.clk.Now() + int64(arg)*int64(time.Millisecond))
	case 6:
		m.move(arg)
	case 7:
		m.dev.err = []error{nil, ring.ErrLinkDown, errors.New("later"), ring.ErrSlot}[arg&3]
		m.dev.accept = arg >> 2
	}
}

func (m *model) frame(size int, prio, parts bool) {
	if m.rx.Len()-m.rx.Space() < 16 { // the longest frame comes in nine slots
		return
	}
	id := m.id
	m.id++
	m.prio[id], m.size[id] = prio, size
	part := 0
	if parts {
		part = 300
	}
	flags := ring.SlotFlags(0)
	if id%3 == 0 {
		flags = ring.SlotVnet
	}
	m.in.put(m.t, numbered(id, size, prio), flags, vnetOf(id), part)
}

func vnetOf(id uint32) ring.Vnet {
	return ring.Vnet{Flags: ring.VnetNeedCsum, CsumStart: uint16(id), CsumOffset: 16}
}

func (m *model) move(n int) {
	before := m.left()
	got := m.Move(m.rx, n)
	if m.left() != before-got {
		m.t.Fatalf("move answers %d, took %d", got, before-m.left())
	}
	m.taken += got
	if m.o.Full == Drop && got != min(n, before) {
		m.t.Fatalf("took %d of %d, and does not hold back", got, min(n, before))
	}
}

func (m *model) copyHead() {
	if m.rx.Space() != 0 {
		m.Copy(m.rx, m.rx.Head)
		m.copies++
	}
}

// left is the number of whole frames in the receive ring.
func (m *model) left() (n int) {
	for k := m.rx.Head; k != m.rx.Tail(); k++ {
		if m.rx.Slot(k).Flags&ring.SlotMoreFrag == 0 {
			n++
		}
	}
	return n
}

func (m *model) end() {
	err := m.Flush()
	if err != nil && m.dev.err == nil && !errors.Is(err, ErrStalled) && !m.dev.refused {
		m.t.Fatalf("flush: %v", err)
	}
	m.dev.refused = false
	if err == nil && m.Waiting() != 0 && m.dev.to == m.dev.from {
		m.t.Fatalf("%d wait although nothing is outstanding", m.Waiting())
	}
}

func (m *model) check() {
	if n := int(m.frames(m.tx.Tail()-uint32(m.tx.Len()), m.tx.Head)); m.tx.Pending() < n {
		m.t.Fatalf("%d frames in %d slots", n, m.tx.Pending())
	}
	if m.limit == nil {
		return
	}
	var bytes uint32
	for k := m.reaped; k != m.tx.Head; k++ {
		bytes += m.tx.Slot(k).Len
	}
	out := m.limit.p.queued.Load() - m.limit.c.completed
	if bytes != out || bytes != m.sum-m.done {
		m.t.Fatalf("%d bytes in the ring, the limit has %d, the sums %d", bytes, out, m.sum-m.done)
	}
	m.maxLimit = max(m.maxLimit, m.limit.Limit())
	if out > m.maxLimit+60+31*40*2 { // the largest frame
		m.t.Fatalf("%d bytes in the ring at a limit of at most %d", out, m.maxLimit)
	}
}

// finish lets everything through and does the sums.
func (m *model) finish() {
	m.dev.err = nil
	m.dev.refused = true // what an earlier error left is reported still
	for range 200 {
		m.dev.finish(8)
		m.clk.Set(m.clk.Now() + int64(time.Millisecond))
		m.end()
	}
	if m.tx.Pending() != 0 || m.Waiting() != 0 {
		m.t.Fatalf("%d pending, %d waiting at the end", m.tx.Pending(), m.Waiting())
	}
	if m.store != nil && countFree(m.store) != len(m.store.next) {
		m.t.Fatalf("chunks lost: %d of %d free", countFree(m.store), len(m.store.next))
	}
	got := m.received()
	dropped := m.tx.Stats.Dropped()
	// The fake counts what a reset loses in slots.
	if exact := !m.tx.MultiSlot() || m.dev.lost == 0; exact && uint64(len(got))+dropped != uint64(m.taken+m.copies) {
		m.t.Fatalf("taken %d, copied %d; sent %d, dropped %d", m.taken, m.copies, len(got), dropped)
	}
	c := m.Counters()
	evicted := c.Refused.Load()
	for i := range c.Evicted {
		evicted += c.Evicted[i].Load()
	}
	full := m.tx.Stats.Drops[ring.DropFull].Load()
	if m.o.QueuePackets != 0 && full != evicted || full < evicted {
		m.t.Fatalf("%d dropped as full, %d evicted or refused", full, evicted)
	}
	if m.o.Full == Backpressure && full > uint64(m.copies) {
		m.t.Fatalf("back-pressure dropped %d as full (%d copies)", full, m.copies)
	}
	if m.o.Classifier == nil && !slices.IsSorted(got) {
		m.t.Fatalf("without priority, order %v", got)
	}
	m.classesInOrder(got)
}

// classesInOrder: those with priority overtake, but neither class is reordered
// within itself.
func (m *model) classesInOrder(got []uint32) {
	for _, class := range []bool{false, true} {
		var ids []uint32
		for _, id := range got {
			if m.prio[id] == class {
				ids = append(ids, id)
			}
		}
		if !slices.IsSorted(ids) {
			m.t.Fatalf("priority %v: order %v", class, ids)
		}
	}
}

// received puts the parts of frames together and checks contents.
func (m *model) received() (ids []uint32) {
	var data []byte
	var first *sent
	for i := range m.dev.out {
		f := &m.dev.out[i]
		if first == nil {
			first = f
		}
		data = append(data, f.data...)
		if f.flags&ring.SlotMoreFrag != 0 {
			continue
		}
		id := idOf(data)
		if string(data) != string(numbered(id, m.size[id], m.prio[id])) {
			m.t.Fatalf("frame %d is damaged", id)
		}
		if has := first.flags&ring.SlotVnet != 0; has != (id%3 == 0) || has && first.vnet != vnetOf(id) {
			m.t.Fatalf("frame %d: flags %b, header %+v", id, first.flags, first.vnet)
		}
		ids = append(ids, id)
		data, first = nil, nil
	}
	return ids
}
