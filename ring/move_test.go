package ring_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/netring/netring/ring"
)

const (
	more = ring.SlotMoreFrag
	vn   = ring.SlotVnet
	gso  = ring.SlotGSO
)

var header = &ring.Vnet{Flags: ring.VnetNeedCsum, GSOType: ring.VnetGSOTCPv4, HdrLen: 54, GSOSize: 1448, CsumStart: 34, CsumOffset: 16}

// moveCase is one frame, the ring that it comes from and the one it goes to,
// and what is to become of it.
type moveCase struct {
	name       string
	parts      []part
	src, dst   geometry // slots, region and first are filled in
	spoil      func(s *ring.Slot)
	drop       ring.Cause
	lost       bool // dropped, under drop
	wait       bool // no room
	room       int  // of dst, 0 for all 8 slots
	slots      int  // of dst that it takes, 0 for as many as it comes in
	wantsFlags ring.SlotFlags
}

func moveCases() []moveCase {
	one := func(n int, f ring.SlotFlags) []part { return []part{{bytes: text(1, n), flags: f}} }
	withVnet := func(n int, f ring.SlotFlags) []part { return []part{{text(1, n), f | vn, header}} }
	chain := func(n ...int) (ps []part) {
		for i, l := range n {
			ps = append(ps, part{bytes: text(byte(i), l), flags: more})
		}
		ps[len(ps)-1].flags = 0
		return ps
	}
	multi := geometry{multi: true}
	v10, v12 := geometry{vnet: 10, offset: 16}, geometry{vnet: 12, offset: 16}
	m10 := geometry{vnet: 10, offset: 16, multi: true}
	small := geometry{maxFrame: 100}
	all := ring.SlotVLAN | ring.SlotMulticast | ring.SlotBroadcast | ring.SlotOtherHost
	c := []moveCase{
		{name: "plain", parts: one(60, 0)},
		{name: "empty", parts: one(0, 0)},
		{name: "whole buffer", parts: one(256, 0)},
		{name: "flags that travel", parts: one(60, all), wantsFlags: all},
		{name: "flags that do not", parts: one(60, ring.SlotOutgoing|ring.SlotBufChanged)},
		{name: "truncated", parts: one(60, ring.SlotTruncated), lost: true, drop: ring.DropTruncated},
		{name: "just not oversize", parts: one(100, 0), dst: small},
		{name: "oversize", parts: one(101, 0), dst: small, lost: true, drop: ring.DropOversize},
		{name: "super-frame flag alone", parts: one(101, gso), dst: small, lost: true, drop: ring.DropOversize},
		{name: "super-frame flag alone, header in both", parts: one(101, gso), src: v10, dst: geometry{vnet: 10, offset: 16, maxFrame: 100}, lost: true, drop: ring.DropOversize},
		{name: "super-frame", parts: withVnet(200, gso), src: v10, dst: geometry{vnet: 10, offset: 16, maxFrame: 100}, wantsFlags: vn | gso},
		{name: "header 10 to 10", parts: withVnet(60, 0), src: v10, dst: v10, wantsFlags: vn},
		{name: "header 10 to 12", parts: withVnet(60, gso), src: v10, dst: v12, wantsFlags: vn | gso},
		{name: "header 12 to 10", parts: withVnet(60, 0), src: v12, dst: v10, wantsFlags: vn},
		{name: "header 12 to 12", parts: withVnet(60, 0), src: v12, dst: v12, wantsFlags: vn},
		{name: "header to none", parts: withVnet(60, 0), src: v10, lost: true, drop: ring.DropOffload},
		{name: "finished, header to none", parts: one(60, 0), src: v10},
		{name: "finished, none to header", parts: one(60, 0), dst: v12},
		{name: "header claimed by a ring without", parts: one(60, vn), dst: v10, lost: true, drop: ring.DropMalformed},
		{name: "no room before the frame for its header", parts: withVnet(60, 0), src: v10, dst: v10,
			spoil: func(s *ring.Slot) { s.Off = 9 }, lost: true, drop: ring.DropMalformed},
		{name: "finished frame without headroom", parts: one(60, 0), src: geometry{vnet: 10}, dst: v10},
		{name: "length beyond buffer", parts: one(60, 0), spoil: func(s *ring.Slot) { s.Len = 257 }, lost: true, drop: ring.DropMalformed},
		{name: "offset beyond buffer", parts: one(60, 0), spoil: func(s *ring.Slot) { s.Off = 1<<32 - 1 }, lost: true, drop: ring.DropMalformed},
		{name: "no such buffer", parts: one(60, 0), spoil: func(s *ring.Slot) { s.Buf = 1 << 20 }, lost: true, drop: ring.DropMalformed},
		{name: "no room", parts: one(60, 0), room: -1, wait: true},

		{name: "chain", parts: chain(60, 50, 40), dst: multi},
		{name: "chain with an empty part", parts: chain(60, 0, 40), dst: multi},
		{name: "chain joined", parts: chain(60, 50, 40), slots: 1},
		{name: "chain joined, too large for the buffer", parts: chain(200, 57), lost: true, drop: ring.DropOversize},
		{name: "chain joined, larger than the port takes", parts: chain(60, 41), dst: small, lost: true, drop: ring.DropOversize},
		{name: "chain, larger than one slot takes", parts: chain(60, 41), dst: geometry{multi: true, maxFrame: 100}},
		{name: "chain, one part larger than a slot takes", parts: chain(60, 101), dst: geometry{multi: true, maxFrame: 100}, lost: true, drop: ring.DropOversize},
		{name: "chain, bad part", parts: chain(60, 50), dst: multi, spoil: func(s *ring.Slot) { s.Len = 257 }, lost: true, drop: ring.DropMalformed},
		{name: "chain joined, bad part", parts: chain(60, 50), spoil: func(s *ring.Slot) { s.Buf = 1 << 20 }, lost: true, drop: ring.DropMalformed},
		{name: "chain, not enough room", parts: chain(60, 50, 40), dst: multi, room: 2, wait: true},
		{name: "chain joined in the last slot", parts: chain(60, 50, 40), room: 1, slots: 1},
		{name: "chain without end", parts: []part{{bytes: text(0, 60), flags: more}}, dst: multi, wait: true},
		{name: "chain longer than the ring", parts: chain(1, 2, 3, 4, 5, 6, 7, 8, 9), dst: multi, lost: true, drop: ring.DropOversize},
		{name: "chain longer than a busy ring", parts: chain(1, 2, 3, 4, 5, 6, 7, 8, 9), dst: multi, room: 1, lost: true, drop: ring.DropOversize},
	}
	first := part{text(9, 100), vn | gso | more, header}
	rest := part{bytes: text(8, 90)}
	for _, dst := range []geometry{m10, {vnet: 12, offset: 16, multi: true}, {vnet: 10, offset: 16}, {vnet: 12, offset: 16}} {
		n := 2
		if !dst.multi {
			n = 1
		}
		c = append(c, moveCase{name: fmt.Sprintf("chain with header to %d, multi %v", dst.vnet, dst.multi),
			parts: []part{first, rest}, src: v10, dst: dst, slots: n, wantsFlags: vn | gso})
	}
	return append(c, moveCase{name: "chain with header to none", parts: []part{first, rest}, src: v10, dst: multi, lost: true, drop: ring.DropOffload})
}

// setUp makes the rings of the case, over one region if shared, and receives
// the frame after one that is plain.
func (c moveCase) setUp(t *testing.T, shared bool) (dst, src *ring.Ring) {
	c.src.slots, c.src.region = 16, region(t, 32, 256)
	c.dst.slots, c.dst.region, c.dst.first = 8, c.src.region, 16
	if !shared {
		c.dst.region, c.dst.first = region(t, 8, 256), 0
	}
	src, d := newRing(t, ring.RX, c.src)
	dst, _ = newRing(t, ring.TX, c.dst)
	src.Seed(1<<32 - 1)
	dst.Seed(1<<32 - 1)
	switch {
	case c.room < 0:
		dst.Head = dst.Tail()
	case c.room > 0:
		dst.Head = dst.Tail() - uint32(c.room)
	}
	dst.Cur = dst.Head
	if dst.Sync() != nil {
		t.Fatal("sync")
	}
	receive(t, src, d, c.src.offset, c.parts...)
	if c.spoil != nil {
		c.spoil(src.Slot(src.Tail() - 1))
	}
	return dst, src
}

// check says whether after an operation that took n frames all is as it should.
func (c moveCase) check(t *testing.T, dst *ring.Ring, taken bool) {
	t.Helper()
	if taken == c.wait {
		t.Fatalf("taken: %v, want %v", taken, !c.wait)
	}
	for i := range dst.Stats.Drops {
		want := uint64(0)
		if c.lost && ring.Cause(i) == c.drop {
			want = 1
		}
		if got := dst.Stats.Drops[i].Load(); got != want {
			t.Errorf("%d drops counted as %v, want %d", got, ring.Cause(i), want)
		}
	}
	got := sent(t, dst)
	if c.lost || c.wait {
		if len(got) != 0 {
			t.Fatalf("%d frames sent, want none", len(got))
		}
		return
	}
	slots := c.slots
	if slots == 0 {
		slots = len(c.parts)
	}
	if n := int(dst.Head - dst.Accepted()); n != slots || len(got) != 1 || dst.Cur != dst.Head {
		t.Fatalf("%d frames in %d slots, cur %d; want 1 in %d, cur %d", len(got), n, dst.Cur, slots, dst.Head)
	}
	var want []byte
	for _, p := range c.parts {
		want = append(want, p.bytes...)
	}
	if !bytes.Equal(got[0].bytes, want) || got[0].flags != c.wantsFlags {
		t.Fatalf("sent %d bytes with flags %#x, want %d with %#x", len(got[0].bytes), got[0].flags, len(want), c.wantsFlags)
	}
	if v := got[0].vnet; (v != nil) != (c.wantsFlags&vn != 0) || v != nil && *v != *header {
		t.Fatalf("virtio-net header %+v, want %+v", v, *header)
	}
}

func TestMove(t *testing.T) {
	for _, c := range moveCases() {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,shared=%v", c.name, shared), func(t *testing.T) {
				dst, src := c.setUp(t, shared)
				before, head := owned(dst, src), src.Head
				n := ring.Move(dst, src, 5)
				c.check(t, dst, n == 1)
				if !c.wait {
					head += uint32(len(c.parts))
				}
				if src.Head != head || src.Cur != head {
					t.Errorf("source's head %d, cur %d, want %d", src.Head, src.Cur, head)
				}
				if after := owned(dst, src); shared && c.spoil == nil && !sameKeys(before, after) {
					t.Errorf("buffers before %v, after %v", before, after)
				}
			})
		}
	}
}

func TestCopy(t *testing.T) {
	for _, c := range moveCases() {
		if c.name == "chain without end" {
			continue
		}
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,shared=%v", c.name, shared), func(t *testing.T) {
				dst, src := c.setUp(t, shared)
				before, head, slot := owned(dst, src), src.Head, *src.Slot(src.Head)
				c.check(t, dst, ring.Copy(dst, src, src.Head))
				if src.Head != head || src.Cur != head || *src.Slot(head) != slot {
					t.Error("the source was changed")
				}
				if c.spoil == nil && !sameKeys(before, owned(dst, src)) {
					t.Error("buffers have moved")
				}
			})
		}
	}
}

func TestCopyOfHalfAChain(t *testing.T) {
	c := moveCase{parts: []part{{bytes: text(0, 60), flags: more}}, dst: geometry{multi: true}}
	dst, src := c.setUp(t, true)
	if !ring.Copy(dst, src, src.Head) || dst.Head != dst.Accepted() || dst.Stats.Dropped() != 0 {
		t.Error("half a frame was copied, waited for or counted")
	}
}

func TestSkip(t *testing.T) {
	c := moveCase{parts: []part{{bytes: text(0, 60)}, {bytes: text(1, 60), flags: more}, {bytes: text(2, 60)}, {bytes: text(3, 60), flags: more}}}
	for n, want := range map[int]struct {
		frames int
		slots  uint32
	}{0: {0, 0}, 1: {1, 1}, 2: {2, 3}, 9: {2, 3}} {
		_, src := c.setUp(t, true)
		head := src.Head
		if got := ring.Skip(src, n); got != want.frames || src.Head != head+want.slots || src.Cur != src.Head {
			t.Errorf("skip %d: %d frames, head %d, cur %d; want %d frames, head and cur %d", n, got, src.Head, src.Cur, want.frames, head+want.slots)
		}
		src.Cur = src.Tail()
		if ring.Skip(src, 0); src.Cur != src.Tail() {
			t.Error("a cursor further on was moved back")
		}
	}
}

// owned counts the buffers in all slots of both rings, as they would be if
// nobody but the program had any.
func owned(rings ...*ring.Ring) map[uint32]int {
	m := map[uint32]int{}
	for i, r := range rings {
		for _, s := range r.Slots() {
			if rings[0].Region() != r.Region() {
				s.Buf += uint32(i) << 16
			}
			m[s.Buf]++
		}
	}
	return m
}

func sameKeys(a, b map[uint32]int) bool {
	if len(a) != len(b) {
		return false
	}
	for k := range a {
		if a[k] != b[k] {
			return false
		}
	}
	return true
}
