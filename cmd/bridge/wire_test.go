package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/internal/netlab"
)

// tap is a plain packet socket, without rings: the tests' independent eye and
// hand on an interface.
type tap struct {
	fd   int
	name string
}

func openTap(t *testing.T, ns *netlab.NS, name string) *tap {
	t.Helper()
	w := &tap{fd: -1, name: name}
	index, err := ns.Index(name)
	if err == nil {
		err = ns.Do(func() (err error) {
			w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(w.fd) })
	for opt, v := range map[int]int{unix.PACKET_AUXDATA: 1, unix.PACKET_IGNORE_OUTGOING: 1} {
		if err := unix.SetsockoptInt(w.fd, unix.SOL_PACKET, opt, v); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.SetsockoptInt(w.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 8<<20); err != nil {
		t.Fatal(err)
	}
	all := uint16(unix.ETH_P_ALL)
	if err := unix.Bind(w.fd, &unix.SockaddrLinklayer{Protocol: all<<8 | all>>8, Ifindex: index}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *tap) send(t *testing.T, frame []byte) {
	t.Helper()
	for {
		_, err := unix.Write(w.fd, frame)
		if err == unix.ENOBUFS || err == unix.EINTR {
			continue
		}
		if err != nil {
			t.Errorf("send %d bytes on %s: %v", len(frame), w.name, err)
		}
		return
	}
}

// recv returns the next frame, with the VLAN tag that the kernel takes out put
// back, or nil if none comes in time.
func (w *tap) recv(t *testing.T, timeout time.Duration) []byte {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, int(timeout/time.Millisecond))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			t.Error(err)
		}
		if n <= 0 {
			return nil
		}
		break
	}
	buf, oob := make([]byte, 1<<16+256), make([]byte, 256)
	n, on, _, _, err := unix.Recvmsg(w.fd, buf, oob, 0)
	if err != nil {
		t.Errorf("receive on %s: %v", w.name, err)
		return nil
	}
	return retag(t, buf[:n], oob[:on])
}

// empty checks that nothing has come that was not taken.
func empty(t *testing.T, taps ...*tap) {
	t.Helper()
	for _, w := range taps {
		if f := w.recv(t, 0); f != nil {
			t.Errorf("%s: got one more frame: %x", w.name, f[:min(len(f), 64)])
		}
	}
}

// gather takes n frames in all from the taps, as they come, and returns how
// many each had.
func gather(t *testing.T, n int, taps ...*tap) []int {
	t.Helper()
	got := make([]int, len(taps))
	fds := make([]unix.PollFd, len(taps))
	for i, w := range taps {
		fds[i] = unix.PollFd{Fd: int32(w.fd), Events: unix.POLLIN}
	}
	for n > 0 {
		k, err := unix.Poll(fds, int(patience/time.Millisecond))
		if err == unix.EINTR {
			continue
		}
		if err != nil || k == 0 {
			t.Errorf("%d frames missing, got %v: %v", n, got, err)
			return got
		}
		for i, w := range taps {
			if fds[i].Revents != 0 && n > 0 && w.recv(t, 0) != nil {
				got[i]++
				n--
			}
		}
	}
	return got
}

// skipTo takes frames until the one that is wanted.
func skipTo(t *testing.T, w *tap, want []byte) {
	t.Helper()
	for {
		f := w.recv(t, patience)
		if f == nil {
			t.Fatalf("%s: a frame of %d bytes does not arrive", w.name, len(want))
		}
		if bytes.Equal(f, want) {
			return
		}
	}
}

// retag puts the tag from the auxiliary data back into a frame.
func retag(t *testing.T, frame, oob []byte) []byte {
	t.Helper()
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		t.Error(err)
	}
	for _, m := range msgs {
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA {
			continue
		}
		// struct tpacket_auxdata: status at 0, vlan_tci at 16, vlan_tpid at 18.
		if binary.NativeEndian.Uint32(m.Data)&unix.TP_STATUS_VLAN_VALID == 0 {
			return frame
		}
		tag := binary.BigEndian.AppendUint16(nil, binary.NativeEndian.Uint16(m.Data[18:]))
		tag = binary.BigEndian.AppendUint16(tag, binary.NativeEndian.Uint16(m.Data[16:]))
		return append(append(append([]byte{}, frame[:12]...), tag...), frame[12:]...)
	}
	return frame
}

// Addresses that no interface here has.
var (
	macA     = []byte{2, 0, 0, 0, 0, 0xa}
	macB     = []byte{2, 0, 0, 0, 0, 0xb}
	macGroup = []byte{1, 0, 0x5e, 0, 0, 1}
	macAll   = []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
)

// frame makes a frame of size bytes with a pattern that differs by seed.
func frame(dst, src []byte, head []byte, size, seed int) []byte {
	f := make([]byte, 0, size)
	f = append(append(append(f, dst...), src...), head...)
	for i := 0; len(f) < size; i++ {
		f = append(f, byte(seed>>uint(8*(i%4)))^byte(i*7))
	}
	return f
}

// heads are the bytes after the addresses: tags and an EtherType for local
// experiments.
var heads = []struct {
	name  string
	bytes []byte
}{
	{"untagged", untagged},
	{"802.1Q", []byte{0x81, 0x00, 0x20, 0x64, 0x88, 0xb5}},
	{"802.1ad", []byte{0x88, 0xa8, 0x00, 0x0a, 0x88, 0xb5}},
	{"QinQ", []byte{0x88, 0xa8, 0x00, 0x0a, 0x81, 0x00, 0x00, 0x64, 0x88, 0xb5}},
	{"two 802.1Q", []byte{0x81, 0x00, 0x00, 0x0a, 0x81, 0x00, 0x00, 0x64, 0x88, 0xb5}},
	{"priority tag", []byte{0x81, 0x00, 0xa0, 0x00, 0x88, 0xb5}},
}

var untagged = []byte{0x88, 0xb5}

// trial is the list of frames that one direction of a test sends.
func trial(dst, src []byte, mtu int) (frames [][]byte, names []string) {
	seed := 1
	add := func(name string, f []byte) {
		frames, names = append(frames, f), append(names, fmt.Sprintf("%s, %d bytes", name, len(f)))
		seed++
	}
	for _, h := range heads {
		name, head := h.name, h.bytes
		tags := len(head) - 2
		limit := mtu + 14
		if head[0] == 0x81 {
			limit += 4 // one tag of this kind goes on top of the MTU
		}
		for _, n := range []int{60, 61, 64, 127, 128, 1000, 1513, 1514, limit} {
			add(name, frame(dst, src, head, min(n+tags, limit), seed))
		}
		add(name+" multicast", frame(macGroup, src, head, 300+tags, seed))
		add(name+" broadcast", frame(macAll, src, head, 301+tags, seed))
	}
	for n := 60; n <= 1514; n++ {
		add("untagged", frame(dst, src, untagged, n, seed))
	}
	return frames, names
}
