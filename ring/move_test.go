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
	srcBuf     int  // size of src's buffers, 0 for 256 as in dst
	only       mode // 0 for both
	copied     int  // slots of dst that a copy takes, 0 for 1
	wantsFlags ring.SlotFlags
}

// mode is how a frame gets from ring to ring.
type mode int

const (
	byCopy mode = 1 + iota
	bySwap
)

// swaps reports whether [ring.Move] between rings over one region exchanges
// buffers.
func (c *moveCase) swaps() bool {
	return (len(c.parts) == 1 || c.dst.multi) && (c.parts[0].flags&vn == 0 || c.src.vnet == c.dst.vnet)
}

// run calls f for rings over one region and over two, with the way that Move,
// or Copy, takes.
func (c *moveCase) run(t *testing.T, move bool, f func(t *testing.T, shared bool, m mode)) {
	for _, shared := range []bool{false, true} {
		m := byCopy
		if shared && move && c.swaps() {
			m = bySwap
		}
		if shared && c.srcBuf != 0 || c.only != 0 && c.only != m {
			continue
		}
		t.Run(fmt.Sprintf("%s,shared=%v", c.name, shared), func(t *testing.T) { f(t, shared, m) })
	}
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
		{name: "chain of empty parts", parts: chain(0, 0), dst: multi},
		{name: "chain joined", parts: chain(60, 50, 40)},
		{name: "chain joined, too large for the buffer", parts: chain(200, 57), lost: true, drop: ring.DropOversize},
		{name: "chain joined, larger than the port takes", parts: chain(60, 41), dst: small, lost: true, drop: ring.DropOversize},
		{name: "chain, larger than the port takes", parts: chain(60, 41), dst: geometry{multi: true, maxFrame: 100}, lost: true, drop: ring.DropOversize},
		{name: "chain, one part truncated", parts: []part{{bytes: text(0, 60), flags: more | ring.SlotTruncated}, {bytes: text(0, 60)}}, dst: multi, lost: true, drop: ring.DropTruncated},
		{name: "chain, last part truncated", parts: []part{{bytes: text(0, 60), flags: more}, {bytes: text(0, 60), flags: ring.SlotTruncated}}, lost: true, drop: ring.DropTruncated},
		{name: "chain, header flag on a later part", parts: []part{{bytes: text(0, 60), flags: more}, {bytes: text(0, 60), flags: vn | gso}}, dst: multi},
		{name: "chain, bad part", parts: chain(60, 50), dst: multi, spoil: func(s *ring.Slot) { s.Len = 257 }, lost: true, drop: ring.DropMalformed},
		{name: "chain joined, bad part", parts: chain(60, 50), spoil: func(s *ring.Slot) { s.Buf = 1 << 20 }, lost: true, drop: ring.DropMalformed},
		{name: "chain, not enough room", parts: chain(60, 50, 40), dst: multi, room: 2, wait: true, only: bySwap},
		{name: "chain, room for all", parts: chain(60, 50, 40), dst: multi, room: 3},
		{name: "chain joined in the last slot", parts: chain(60, 50, 40), room: 1},
		{name: "chain without end", parts: []part{{bytes: text(0, 60), flags: more}}, dst: multi, wait: true},
		{name: "chain longer than the ring", parts: chain(1, 2, 3, 4, 5, 6, 7, 8, 9), dst: multi, lost: true, drop: ring.DropOversize, only: bySwap},
		{name: "chain longer than a busy ring", parts: chain(1, 2, 3, 4, 5, 6, 7, 8, 9), dst: multi, room: 1, lost: true, drop: ring.DropOversize, only: bySwap},
		{name: "long chain copied into one slot", parts: chain(1, 2, 3, 4, 5, 6, 7, 8, 9), dst: multi, room: 1, only: byCopy},
	}
	first := part{text(9, 100), vn | gso | more, header}
	rest := part{bytes: text(8, 90)}
	for _, dst := range []geometry{m10, {vnet: 12, offset: 16, multi: true}, {vnet: 10, offset: 16}, {vnet: 12, offset: 16}} {
		c = append(c, moveCase{name: fmt.Sprintf("chain with header to %d, multi %v", dst.vnet, dst.multi),
			parts: []part{first, rest}, src: v10, dst: dst, wantsFlags: vn | gso})
	}
	c = append(c, moveCase{name: "chain with header to none", parts: []part{first, rest}, src: v10, dst: multi, lost: true, drop: ring.DropOffload})

	// Frames larger than dst's buffers of 256 bytes.
	multi16 := geometry{offset: 16, multi: true}
	m12 := geometry{vnet: 12, offset: 16, multi: true}
	for _, s := range []moveCase{
		{name: "just not split", parts: one(256, 0), dst: multi},
		{name: "split in two", parts: one(257, all), dst: multi, copied: 2, wantsFlags: all},
		{name: "split in two full slots", parts: one(512, 0), dst: multi, copied: 2},
		{name: "split in all slots", parts: one(2048, 0), dst: multi, copied: 8},
		{name: "split, too many slots", parts: one(2049, 0), dst: multi, lost: true, drop: ring.DropOversize},
		{name: "split, too many slots for a busy ring", parts: one(2049, 0), dst: multi, room: 1, lost: true, drop: ring.DropOversize},
		{name: "split after headroom", parts: one(481, 0), dst: multi16, copied: 3},
		{name: "split, not enough room", parts: one(600, 0), dst: multi, room: 2, wait: true},
		{name: "split, just enough room", parts: one(600, 0), dst: multi, room: 3, copied: 3},
		{name: "split, larger than the port takes", parts: one(501, 0), dst: geometry{multi: true, maxFrame: 500}, lost: true, drop: ring.DropOversize},
		{name: "split, just not larger than the port takes", parts: one(500, 0), dst: geometry{multi: true, maxFrame: 500}, copied: 2},
		{name: "split, truncated", parts: one(600, ring.SlotTruncated), dst: multi, lost: true, drop: ring.DropTruncated},
		{name: "split with header", parts: withVnet(500, 0), src: v10, dst: m10, copied: 3, wantsFlags: vn},
		{name: "split super-frame", parts: withVnet(500, gso), src: v10, dst: geometry{vnet: 12, offset: 16, multi: true, maxFrame: 100}, copied: 3, wantsFlags: vn | gso},
		{name: "split with header 12 to 12", parts: withVnet(480, gso), src: v12, dst: m12, copied: 2, wantsFlags: vn | gso},
		{name: "split with header to none", parts: withVnet(500, 0), src: v10, dst: multi, lost: true, drop: ring.DropOffload},
		{name: "not split where a frame has one slot", parts: one(257, 0), lost: true, drop: ring.DropOversize},
		{name: "chain split anew", parts: chain(300, 0, 700, 1), dst: multi, copied: 4},
		{name: "no buffer of dst takes a byte", parts: one(1, 0), dst: geometry{multi: true, offset: 256}, lost: true, drop: ring.DropOversize},
	} {
		s.srcBuf = 4096
		c = append(c, s)
	}
	return c
}

// setUp makes the rings of the case, over one region if shared, and receives
// the frame after one that is plain.
func (c moveCase) setUp(t *testing.T, shared bool) (dst, src *ring.Ring) {
	if c.srcBuf == 0 {
		c.srcBuf = 256
	}
	c.src.slots, c.src.region = 16, region(t, 32, c.srcBuf)
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
func (c moveCase) check(t *testing.T, dst *ring.Ring, taken bool, m mode) {
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
	slots := max(c.copied, 1)
	if m == bySwap {
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
		c.run(t, true, func(t *testing.T, shared bool, m mode) {
			dst, src := c.setUp(t, shared)
			before, head, room := owned(dst, src), src.Head, dst.Space()
			needs := ring.Needs(dst, src, head, false)
			n := ring.Move(dst, src, 5)
			c.check(t, dst, n == 1, m)
			c.checkNeeds(t, int(needs), room, m)
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

// checkNeeds compares the answer of [ring.Needs] with what happened.
func (c moveCase) checkNeeds(t *testing.T, needs, room int, m mode) {
	t.Helper()
	switch {
	case c.name == "chain without end":
		if needs != 0 {
			t.Errorf("needs %d slots, want 0", needs)
		}
	case c.wait:
		if needs <= room {
			t.Errorf("needs %d slots, but waits with %d", needs, room)
		}
	case c.lost:
		if needs != 1 {
			t.Errorf("a frame that is dropped needs %d slots, want 1", needs)
		}
	default:
		want := max(c.copied, 1)
		if m == bySwap {
			want = len(c.parts)
		}
		if needs != want {
			t.Errorf("needs %d slots, want %d", needs, want)
		}
	}
}

func TestCopy(t *testing.T) {
	for _, c := range moveCases() {
		if c.name == "chain without end" {
			continue
		}
		c.run(t, false, func(t *testing.T, shared bool, m mode) {
			dst, src := c.setUp(t, shared)
			before, head, slot, room := owned(dst, src), src.Head, *src.Slot(src.Head), dst.Space()
			needs := ring.Needs(dst, src, head, true)
			c.check(t, dst, ring.Copy(dst, src, src.Head), m)
			c.checkNeeds(t, int(needs), room, m)
			if src.Head != head || src.Cur != head || *src.Slot(head) != slot {
				t.Error("the source was changed")
			}
			if c.spoil == nil && !sameKeys(before, owned(dst, src)) {
				t.Error("buffers have moved")
			}
		})
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
