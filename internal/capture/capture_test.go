package capture

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

func info(ns int64, n, length, iface int) gopacket.CaptureInfo {
	return gopacket.CaptureInfo{Timestamp: time.Unix(0, ns), CaptureLength: n, Length: length, InterfaceIndex: iface}
}

func pcap(t testing.TB, link layers.LinkType, nanos bool) []byte {
	t.Helper()
	var b bytes.Buffer
	w := pcapgo.NewWriter(&b)
	if nanos {
		w = pcapgo.NewWriterNanos(&b)
	}
	err := errors.Join(w.WriteFileHeader(65535, link),
		w.WritePacket(info(1_000_000_000, 20, 20, 0), bytes.Repeat([]byte{1}, 20)),
		w.WritePacket(info(1_500_001_000, 30, 1000, 0), bytes.Repeat([]byte{2}, 30)))
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func pcapng(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := pcapgo.NewNgWriter(&b, layers.LinkTypeEthernet)
	if err != nil {
		t.Fatal(err)
	}
	other, err := w.AddInterface(pcapgo.NgInterface{Name: "raw", LinkType: layers.LinkTypeRaw, SnapLength: 0})
	err = errors.Join(err,
		w.WritePacket(info(1_000_000_000, 20, 20, 0), bytes.Repeat([]byte{1}, 20)),
		w.WritePacket(info(1_200_000_000, 20, 20, other), bytes.Repeat([]byte{9}, 20)),
		w.WritePacket(info(1_500_001_000, 30, 1000, 0), bytes.Repeat([]byte{2}, 30)), w.Flush())
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zip(t testing.TB, b []byte) []byte {
	t.Helper()
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return z.Bytes()
}

func TestRead(t *testing.T) {
	for name, b := range map[string][]byte{
		"pcap": pcap(t, layers.LinkTypeEthernet, false), "nanoseconds": pcap(t, layers.LinkTypeEthernet, true),
		"pcapng": pcapng(t), "gzip": zip(t, pcap(t, layers.LinkTypeEthernet, true)), "pcapng, gzip": zip(t, pcapng(t)),
	} {
		r, err := NewReader(bytes.NewReader(b))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for pass := range 3 {
			if pass != 0 {
				if err := r.Rewind(); err != nil {
					t.Fatal(err)
				}
			}
			var got []Packet
			var p Packet
			for err = r.Next(&p); err == nil; err = r.Next(&p) {
				if p.Ethernet {
					got = append(got, Packet{bytes.Clone(p.Frame), p.Time, p.Length, true})
				}
			}
			if err != io.EOF || len(got) != 2 || got[0].Time != 1_000_000_000 || got[1].Time != 1_500_001_000 ||
				!bytes.Equal(got[0].Frame, bytes.Repeat([]byte{1}, 20)) || len(got[1].Frame) != 30 || got[0].Length != 20 || got[1].Length != 1000 {
				t.Errorf("%s, pass %d: %v, %+v", name, pass, err, got)
			}
		}
	}
}

func TestRefuse(t *testing.T) {
	if _, err := NewReader(bytes.NewReader(pcap(t, layers.LinkTypeRaw, false))); !errors.Is(err, ErrLinkType) {
		t.Errorf("raw IP: %v", err)
	}
	for _, b := range [][]byte{nil, {0x1f}, {0x1f, 0x8b, 0}, []byte("hello, world, this is no capture")} {
		if _, err := NewReader(bytes.NewReader(b)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("% x: %v", b, err)
		}
	}
	for _, whole := range [][]byte{pcap(t, layers.LinkTypeEthernet, false), pcapng(t), zip(t, pcapng(t))} {
		for _, cut := range []int{1, 7, 20} {
			r, err := NewReader(bytes.NewReader(whole[:len(whole)-cut]))
			var p Packet
			for err == nil {
				err = r.Next(&p)
			}
			if err == io.EOF {
				t.Errorf("a file without its last %d bytes of %d passes as whole", cut, len(whole))
			}
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add(pcap(f, layers.LinkTypeEthernet, false))
	f.Add(pcapng(f))
	f.Add(zip(f, pcapng(f)))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := NewReader(bytes.NewReader(b))
		if err != nil {
			return
		}
		count := func() (n int, sum int64, err error) {
			var p Packet
			for err = r.Next(&p); err == nil && n < 1000; err = r.Next(&p) {
				if len(p.Frame) > p.Length {
					t.Fatalf("%d bytes of %d", len(p.Frame), p.Length)
				}
				n++
				sum += p.Time
			}
			return n, sum, err
		}
		n, sum, err1 := count()
		if err := r.Rewind(); err != nil {
			t.Fatalf("header: good the first time, then %v", err)
		}
		if m, sum2, err2 := count(); m != n || sum2 != sum || (err1 == nil) != (err2 == nil) {
			t.Fatalf("%d packets (%v), then %d (%v)", n, err1, m, err2)
		}
	})
}
