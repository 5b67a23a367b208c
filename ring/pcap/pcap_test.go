package pcap_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/netring/netring/ring"
	"github.com/netring/netring/ring/pcap"
)

func frame(i int) []byte {
	b := bytes.Repeat([]byte{byte(i)}, 60+i*37%1455)
	copy(b, "\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x88\xb5")
	return b
}

// when is the time of frame i.
func when(i int) time.Time { return time.Unix(1700000000, int64(i)*1001001) }

// capture writes n frames to a file of the given kind and returns its path.
func capture(t testing.TB, kind string, n int) string {
	t.Helper()
	var b bytes.Buffer
	write := func(gopacket.CaptureInfo, []byte) error { return errors.New("unknown kind") }
	flush := func() error { return nil }
	switch kind {
	case "pcap", "pcap-nanos":
		w := pcapgo.NewWriterNanos(&b)
		if kind == "pcap" {
			w = pcapgo.NewWriter(&b)
		}
		if err := w.WriteFileHeader(1<<16, layers.LinkTypeEthernet); err != nil {
			t.Fatal(err)
		}
		write = w.WritePacket
	case "pcapng":
		w, err := pcapgo.NewNgWriter(&b, layers.LinkTypeEthernet)
		if err != nil {
			t.Fatal(err)
		}
		write, flush = w.WritePacket, w.Flush
	}
	for i := range n {
		f := frame(i)
		ci := gopacket.CaptureInfo{Timestamp: when(i), CaptureLength: len(f), Length: len(f) + i%3}
		if err := write(ci, f); err != nil {
			t.Fatal(err)
		}
	}
	if err := flush(); err != nil {
		t.Fatal(err)
	}
	return file(t, b.Bytes())
}

func file(t testing.TB, b []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "capture")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func open(t testing.TB, o pcap.Options) *pcap.Port {
	t.Helper()
	p, err := pcap.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestRead(t *testing.T) {
	const n = 1000
	for kind, unit := range map[string]time.Duration{"pcap": time.Microsecond, "pcap-nanos": 1, "pcapng": 1} {
		t.Run(kind, func(t *testing.T) {
			r := open(t, pcap.Options{Read: capture(t, kind, n), Slots: 64}).RxRings()[0]
			r.Seed(1<<32 - 256)
			for i := 0; i < n; {
				if err := r.Sync(); err != nil {
					t.Fatalf("frame %d: %v", i, err)
				}
				// Pass all but one, so that the ring is never empty.
				for r.Space() > 1 || i == n-1 {
					checkRead(t, r, i, unit)
					r.Head++
					i++
				}
				r.Cur = r.Head
			}
			for range 2 {
				if err := r.Sync(); !errors.Is(err, io.EOF) {
					t.Fatalf("at the end Sync says %v", err)
				}
			}
			if got := r.Stats.Packets.Load(); got != n {
				t.Errorf("%d packets counted, want %d", got, n)
			}
		})
	}
}

func checkRead(t *testing.T, r *ring.Ring, i int, unit time.Duration) {
	t.Helper()
	want := frame(i)
	if !bytes.Equal(r.Frame(r.Head), want) {
		t.Fatalf("frame %d differs", i)
	}
	var m ring.Meta
	if !r.Meta(r.Head, &m) || m.Time != when(i).Truncate(unit).UnixNano() || int(m.WireLen) != len(want)+i%3 {
		t.Fatalf("frame %d: %+v, want time %d, length %d", i, m, when(i).UnixNano(), len(want)+i%3)
	}
	if cut := r.Slot(r.Head).Flags&ring.SlotTruncated != 0; cut != (i%3 != 0) {
		t.Fatalf("frame %d: truncated: %v", i, cut)
	}
}

func TestReadLong(t *testing.T) {
	r := open(t, pcap.Options{Read: capture(t, "pcapng", 30), BufSize: 64}).RxRings()[0]
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
	for i := 0; r.Space() > 0; i++ {
		s := r.Slot(r.Head)
		if long := len(frame(i))+i%3 > 64; long != (s.Flags&ring.SlotTruncated != 0) || s.Len > 64 {
			t.Errorf("frame %d of %d bytes: slot %+v", i, len(frame(i)), *s)
		}
		r.Head++
	}
}

// TestReadDamaged: frames before the damage are read, then an error says what
// it is; nothing is taken for the end of the file.
func TestReadDamaged(t *testing.T) {
	for _, kind := range []string{"pcap", "pcapng"} {
		whole, err := os.ReadFile(capture(t, kind, 10))
		if err != nil {
			t.Fatal(err)
		}
		p := open(t, pcap.Options{Read: file(t, whole[:len(whole)-5])})
		r := p.RxRings()[0]
		if err := r.Sync(); err != nil {
			t.Fatal(err)
		}
		if r.Space() != 9 {
			t.Errorf("%s: %d frames before the damage, want 9", kind, r.Space())
		}
		r.Head, r.Cur = r.Tail(), r.Tail()
		if err := r.Sync(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: Sync says %v", kind, err)
		}
	}
}

func TestRefuses(t *testing.T) {
	raw := bytes.Buffer{}
	if err := pcapgo.NewWriter(&raw).WriteFileHeader(65535, layers.LinkTypeRaw); err != nil {
		t.Fatal(err)
	}
	good := capture(t, "pcap", 1)
	for _, o := range []pcap.Options{
		{},
		{Read: filepath.Join(t.TempDir(), "missing")},
		{Read: file(t, nil)},
		{Read: file(t, []byte("abc"))},
		{Read: file(t, bytes.Repeat([]byte("no capture "), 100))},
		{Read: file(t, raw.Bytes())},
		{Read: good, Slots: 3},
		{Read: good, BufSize: 10},
		{Read: good, Write: good},
		{Write: t.TempDir()},
	} {
		if p, err := pcap.Open(o); err == nil {
			p.Close()
			t.Errorf("%+v was opened", o)
		}
	}
	if b, err := os.ReadFile(good); err != nil || len(b) < 60 {
		t.Errorf("the file that is read was damaged: %d bytes, %v", len(b), err)
	}
}

// TestCopy: what is moved from a file to another one arrives there.
func TestCopy(t *testing.T) {
	const n = 500
	out := filepath.Join(t.TempDir(), "out.pcap")
	p := open(t, pcap.Options{Read: capture(t, "pcapng", n), Write: out, Slots: 32})
	rx, tx := p.RxRings()[0], p.TxRings()[0]
	tx.Seed(1<<32 - 64)
	before := time.Now()
	for {
		err := rx.Sync()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for k := rx.Head; k != rx.Tail(); k++ {
			rx.Slot(k).Flags &^= ring.SlotTruncated // take them as they are
		}
		ring.Move(tx, rx, rx.Len())
		if err := tx.Sync(); err != nil {
			t.Fatal(err)
		}
		if tx.Pending() != 0 {
			t.Fatalf("%d frames are not written", tx.Pending())
		}
	}
	if tx.Stats.Packets.Load() != n || tx.Stats.Dropped() != 0 {
		t.Errorf("%d packets, %d drops", tx.Stats.Packets.Load(), tx.Stats.Dropped())
	}
	f, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		b, ci, err := r.ReadPacketData()
		if err != nil || !bytes.Equal(b, frame(i)) || ci.Timestamp.Before(before) || ci.Timestamp.After(time.Now()) {
			t.Fatalf("frame %d: %v, %d bytes, %v", i, err, len(b), ci.Timestamp)
		}
	}
	if _, _, err := r.ReadPacketData(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last frame: %v", err)
	}
}

func TestWriteErrors(t *testing.T) {
	tx := open(t, pcap.Options{Write: filepath.Join(t.TempDir(), "out"), Slots: 8}).TxRings()[0]
	for _, bad := range []func(s *ring.Slot){
		func(s *ring.Slot) { s.Buf = 1 << 31 },
		func(s *ring.Slot) { s.Buf ^= 1 },
		func(s *ring.Slot) { s.Len = 1 << 31 },
		func(s *ring.Slot) { s.Off = 1<<32 - 10 },
		func(s *ring.Slot) { s.Len = 0 },
		func(s *ring.Slot) { s.Flags = ring.SlotMoreFrag },
		func(s *ring.Slot) { s.Flags = ring.SlotVnet },
	} {
		was := tx.Stats.Packets.Load()
		for range 2 {
			tx.Slot(tx.Head).Len, tx.Slot(tx.Head).Flags = uint32(copy(tx.Buf(tx.Head), frame(1))), 0
			tx.Head++
		}
		bad(tx.Slot(tx.Head - 1))
		tx.Cur = tx.Head
		if err := tx.Sync(); !errors.Is(err, ring.ErrSlot) {
			t.Errorf("Sync says %v, want %v", err, ring.ErrSlot)
		}
		if got := tx.Stats.Packets.Load() - was; got != 1 || tx.Space() != 8 {
			t.Errorf("%d written, %d slots", got, tx.Space())
		}
	}
	full, err := pcap.Open(pcap.Options{Write: "/dev/full"})
	if err == nil {
		full.Close()
		t.Error("a file on a full device was opened")
	}
}

func TestClosed(t *testing.T) {
	p := open(t, pcap.Options{Read: capture(t, "pcap", 1), Write: filepath.Join(t.TempDir(), "out")})
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, r := range []*ring.Ring{p.RxRings()[0], p.TxRings()[0]} {
		if err := r.Sync(); !errors.Is(err, ring.ErrClosed) {
			t.Errorf("%v: Sync says %v", r.Dir(), err)
		}
	}
}

// FuzzRead: no file, however damaged, does more than end with an error.
func FuzzRead(f *testing.F) {
	for _, kind := range []string{"pcap", "pcap-nanos", "pcapng"} {
		b, err := os.ReadFile(capture(f, kind, 3))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := pcap.Open(pcap.Options{Read: file(t, b), Slots: 2, BufSize: 128})
		if err != nil {
			return
		}
		defer p.Close()
		r := p.RxRings()[0]
		for rounds := 0; r.Sync() == nil; rounds++ {
			for k := r.Head; k != r.Tail(); k++ {
				if r.Frame(k) == nil {
					t.Fatalf("slot %+v", *r.Slot(k))
				}
			}
			r.Head, r.Cur = r.Tail(), r.Tail()
			if rounds > len(b) {
				t.Fatal("a file of few bytes does not end")
			}
		}
	})
}

func BenchmarkRead(b *testing.B) {
	const n = 10000
	name := capture(b, "pcap", n)
	b.ReportAllocs()
	for b.Loop() {
		p, err := pcap.Open(pcap.Options{Read: name, Slots: 256, BufSize: 2048})
		if err != nil {
			b.Fatal(err)
		}
		r := p.RxRings()[0]
		for r.Sync() == nil {
			r.Head, r.Cur = r.Tail(), r.Tail()
		}
		if got := r.Stats.Packets.Load(); got != n {
			b.Fatalf("%d packets", got)
		}
		if err := p.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/pkt")
}

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "pcap")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "out.pcap")

	w, err := pcap.Open(pcap.Options{Write: name})
	if err != nil {
		fmt.Println(err)
		return
	}
	tx := w.TxRings()[0]
	for i := range uint32(3) {
		b := tx.Buf(tx.Head)
		binary.BigEndian.PutUint32(b[14:], i)
		tx.Slot(tx.Head).Len = 60
		tx.Head++
	}
	tx.Cur = tx.Head
	fmt.Println(tx.Sync(), w.Close())

	r, err := pcap.Open(pcap.Options{Read: name})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	for rx := r.RxRings()[0]; rx.Sync() == nil; {
		for ; rx.Space() > 0; rx.Head++ {
			fmt.Println(len(rx.Frame(rx.Head)), rx.Frame(rx.Head)[17])
		}
		rx.Cur = rx.Head
	}
	// Output:
	// <nil> <nil>
	// 60 0
	// 60 1
	// 60 2
}
