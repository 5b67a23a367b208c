package mem_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/mem"
)

// put fills one slot with n bytes of value v.
func put(t testing.TB, tx *ring.Ring, v byte, n int, f ring.SlotFlags) {
	t.Helper()
	if tx.Space() == 0 {
		t.Fatal("no room")
	}
	b := tx.Buf(tx.Head)
	if len(b) < n {
		t.Fatalf("%d bytes do not fit a buffer", n)
	}
	for i := range b[:n] {
		b[i] = v
	}
	s := tx.Slot(tx.Head)
	s.Len, s.Flags = uint32(n), f
	tx.Head++
	tx.Cur = tx.Head
}

func sync1(t testing.TB, r *ring.Ring, space int) {
	t.Helper()
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
	if r.Space() != space {
		t.Fatalf("%v ring: %d slots are the program's, want %d", r.Dir(), r.Space(), space)
	}
}

func pass(r *ring.Ring, n int) {
	r.Head += uint32(n)
	r.Cur = r.Head
}

func ends(t testing.TB, o mem.Options) (a, b *mem.Port, tx, rx *ring.Ring) {
	a, b = pair(t, o)
	return a, b, a.TxRings()[0], b.RxRings()[0]
}

// TestPartialRead: what is not read stays, and the sender has that much less room.
func TestPartialRead(t *testing.T) {
	_, _, tx, rx := ends(t, mem.Options{Slots: 16})
	for i := range 10 {
		put(t, tx, byte(i), 60, 0)
	}
	sync1(t, tx, 6)
	sync1(t, rx, 10)
	pass(rx, 7)
	sync1(t, rx, 3)
	if f := rx.Frame(rx.Head); len(f) != 60 || f[59] != 7 {
		t.Errorf("the next frame has %d bytes", len(f))
	}
	sync1(t, tx, 13)
	if p := tx.Stats.Packets.Load(); p != 7 {
		t.Errorf("%d frames count as sent, want the 7 that were read", p)
	}
}

// TestReaderReturnsBuffer: the sender gets what the reader left in the slot.
func TestReaderReturnsBuffer(t *testing.T) {
	a, _, tx, rx := ends(t, mem.Options{Slots: 2, Extra: 1})
	extra := make([]uint32, 2)
	if n := a.Pool().Take(extra); n != 1 || a.Pool().Free() != 0 {
		t.Fatalf("took %d buffers, %d are free", n, a.Pool().Free())
	}
	put(t, tx, 1, 60, 0)
	sync1(t, tx, 1)
	sync1(t, rx, 1)
	s := rx.Slot(rx.Head)
	kept := s.Buf
	s.Buf = extra[0]
	pass(rx, 1)
	sync1(t, rx, 0)
	sync1(t, tx, 2)
	if got := tx.Slot(tx.Head + 1).Buf; got != extra[0] {
		t.Errorf("the sender's slot has buffer %d, the reader left %d", got, extra[0])
	}
	if b := a.Pool().Region().Buf(kept); b[mem.DefaultHeadroom] != 1 {
		t.Error("the buffer that was kept has lost its frame")
	}
	if err := a.Pool().Give(kept); err != nil {
		t.Error(err)
	}
	if err := a.Pool().Give(kept); err == nil {
		t.Error("gave a buffer twice")
	}
	put(t, tx, 2, 60, 0)
	tx.Slot(tx.Head - 1).Buf = kept // the pool's
	if err := tx.Sync(); !errors.Is(err, ring.ErrSlot) {
		t.Errorf("sent a buffer that is the pool's: %v", err)
	}
}

// TestChain: half a frame is never seen, a whole one at once; a frame of more
// slots than there are cannot be sent.
func TestChain(t *testing.T) {
	_, _, tx, rx := ends(t, mem.Options{Slots: 4})
	put(t, tx, 1, 60, 0)
	put(t, tx, 2, 60, ring.SlotMoreFrag)
	sync1(t, tx, 2)
	sync1(t, rx, 1)
	put(t, tx, 3, 60, ring.SlotMoreFrag)
	sync1(t, tx, 1)
	sync1(t, rx, 1)
	put(t, tx, 4, 60, 0)
	sync1(t, tx, 0)
	sync1(t, rx, 4)
	pass(rx, 4)
	sync1(t, rx, 0)
	sync1(t, tx, 4)
	if p, q := tx.Stats.Packets.Load(), rx.Stats.Packets.Load(); p != 2 || q != 2 {
		t.Errorf("%d and %d frames counted, want 2", p, q)
	}
	for i := range 4 {
		put(t, tx, byte(i), 60, ring.SlotMoreFrag)
	}
	if err := tx.Sync(); !errors.Is(err, ring.ErrTooLarge) || tx.Space() != 1 {
		t.Fatalf("%v, space %d", err, tx.Space())
	}
	tx.Slot(tx.Head).Flags = 0
	pass(tx, 1)
	sync1(t, tx, 0)
	sync1(t, rx, 4)
}

// TestSwapBetweenPairs forwards around three pairs over one pool by exchange of
// buffers; the payload stays where it is and no buffer is lost, also when the
// pairs close with slots exchanged and not synced.
func TestSwapBetweenPairs(t *testing.T) {
	const pairs, slots = 3, 8
	pool, err := mem.NewPool(pairs*2*slots+5, 512)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var left, right [pairs]*mem.Port
	for i := range pairs {
		left[i], right[i] = pair(t, mem.Options{Slots: slots, Pool: pool})
	}
	buf := ^uint32(0)
	sent := byte(0)
	for range 20 * slots {
		put(t, left[0].TxRings()[0], sent, 60, 0)
		if s := left[0].TxRings()[0]; sent == 0 {
			buf = s.Slot(s.Head - 1).Buf
		}
		sync1(t, left[0].TxRings()[0], slots-1-min(int(sent), 1))
		for i := range pairs - 1 {
			sync1(t, right[i].RxRings()[0], 1)
			if ring.Move(left[i+1].TxRings()[0], right[i].RxRings()[0], 9) != 1 {
				t.Fatal("not moved")
			}
			if err := left[i+1].TxRings()[0].Sync(); err != nil {
				t.Fatal(err)
			}
		}
		last := right[pairs-1].RxRings()[0]
		sync1(t, last, 1)
		if f := last.Frame(last.Head); len(f) != 60 || f[0] != sent || sent == 0 && last.Slot(last.Head).Buf != buf {
			t.Fatalf("frame %d has come as %d, in buffer %d, sent in %d", sent, f[0], last.Slot(last.Head).Buf, buf)
		}
		pass(last, 1)
		sent++
		if sent == 0 {
			sent = 1
		}
	}
	put(t, left[0].TxRings()[0], 1, 60, 0)
	if err := left[0].TxRings()[0].Sync(); err != nil {
		t.Fatal(err)
	}
	sync1(t, right[0].RxRings()[0], 1)
	if ring.Move(left[1].TxRings()[0], right[0].RxRings()[0], 9) != 1 {
		t.Fatal("not moved")
	}
	for i := range pairs {
		if err := errors.Join(left[i].Close(), right[i].Close()); err != nil {
			t.Error(err)
		}
	}
	got := make([]uint32, pairs*2*slots+6)
	if n := pool.Take(got); n != len(got)-1 {
		t.Errorf("%d of %d buffers are back", n, len(got)-1)
	}
	seen := map[uint32]bool{}
	for _, b := range got[:len(got)-1] {
		if seen[b] {
			t.Errorf("buffer %d is there twice", b)
		}
		seen[b] = true
	}
}

// TestVnetCrosses: a super-frame crosses with its header.
func TestVnetCrosses(t *testing.T) {
	for _, n := range []int{ring.VnetLen, ring.VnetLenMrg} {
		_, _, tx, rx := ends(t, mem.Options{Slots: 2, VnetLen: n, BufSize: mem.DefaultHeadroom + ring.MaxFrame})
		put(t, tx, 3, ring.MaxFrame, 0)
		h := ring.Vnet{Flags: ring.VnetNeedCsum, GSOType: ring.VnetGSOTCPv6, HdrLen: 74, GSOSize: 1428, CsumStart: 54, CsumOffset: 16}
		if !tx.SetVnet(tx.Head-1, &h) {
			t.Fatal("no room for the header")
		}
		sync1(t, tx, 1)
		sync1(t, rx, 1)
		var got ring.Vnet
		if !rx.Vnet(rx.Head, &got) || got != h || len(rx.Frame(rx.Head)) != ring.MaxFrame {
			t.Errorf("header %+v of %d bytes", got, len(rx.Frame(rx.Head)))
		}
		put(t, tx, 3, 60, ring.SlotVnet)
		tx.Slot(tx.Head - 1).Off = uint32(n - 1)
		if err := tx.Sync(); !errors.Is(err, ring.ErrSlot) {
			t.Errorf("a header before the buffer: %v", err)
		}
	}
}

func TestOptions(t *testing.T) {
	pool, err := mem.NewPool(8, 2048)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for want, o := range map[string]mem.Options{
		"-1 rings":         {Rings: -1},
		"3 slots":          {Slots: 3},
		"11 bytes":         {VnetLen: 11},
		"headroom of 9":    {VnetLen: 10, Headroom: 9},
		"headroom of -1":   {VnetLen: 10, Headroom: -1},
		"headroom of -2":   {Headroom: -2},
		"buffer size 64":   {BufSize: 64},
		"size 1048576":     {BufSize: 1 << 20},
		"-1 extra":         {Extra: -1},
		"are the pool's":   {Pool: pool, Extra: 1},
		"8 free buffers":   {Pool: pool, Slots: 8},
		"need 24: make it": {Pool: pool, Slots: 4, Rings: 3},
	} {
		a, _, err := mem.Pair(o)
		var op *ring.OpError
		if a != nil || err == nil || !errors.As(err, &op) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	if n := pool.Free(); n != 8 {
		t.Errorf("%d of 8 buffers are free", n)
	}
	for _, c := range [][2]int{{0, 64}, {1, 0}, {1, 1 << 30}} {
		if _, err := mem.NewPool(c[0], c[1]); err == nil {
			t.Errorf("pool of %d buffers of %d bytes: no error", c[0], c[1])
		}
	}
}

func ExamplePair() {
	a, b, err := mem.Pair(mem.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.Close()
	defer b.Close()
	tx, rx := a.TxRings()[0], b.RxRings()[0]

	s := tx.Slot(tx.Head)
	s.Len, s.Flags = uint32(copy(tx.Buf(tx.Head), "a frame")), 0
	tx.Head++
	tx.Cur = tx.Head
	if err := tx.Sync(); err != nil {
		fmt.Println(err)
	}

	if err := rx.Sync(); err != nil {
		fmt.Println(err)
	}
	for rx.Head != rx.Tail() {
		fmt.Printf("%s\n", rx.Frame(rx.Head))
		rx.Head++
	}
	rx.Cur = rx.Head
	// Output: a frame
}
