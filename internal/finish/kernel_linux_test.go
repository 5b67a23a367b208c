package finish

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/ring"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// packetSocket opens an AF_PACKET socket on an interface of the namespace.
func packetSocket(t *testing.T, ns *netlab.NS, name string, proto uint16, opt int) (fd, index int) {
	t.Helper()
	err := ns.Do(func() error {
		ifc, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		index = ifc.Index
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_PACKET, opt, 1),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: proto<<8 | proto>>8, Ifindex: index}),
		)
	})
	if err != nil && !errors.Is(err, unix.EPERM) { // SO_RCVBUFFORCE wants root of the machine
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd, index
}

// receiveFrame reads one frame and puts back the VLAN tag that the kernel took
// out.
func receiveFrame(t *testing.T, fd int) []byte {
	t.Helper()
	buf, oob := make([]byte, 2048), make([]byte, 256)
	n, oobn, _, _, err := unix.Recvmsg(fd, buf, oob, 0)
	if err != nil {
		t.Fatalf("receive: %v", err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		t.Fatal(err)
	}
	frame := buf[:n]
	for _, m := range msgs {
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA {
			continue
		}
		const statusOff, tciOff, tpidOff = 0, 16, 18 // of struct tpacket_auxdata
		ne := binary.NativeEndian
		if ne.Uint32(m.Data[statusOff:])&unix.TP_STATUS_VLAN_VALID != 0 {
			tag := binary.BigEndian.AppendUint16(nil, ne.Uint16(m.Data[tpidOff:]))
			tag = binary.BigEndian.AppendUint16(tag, ne.Uint16(m.Data[tciOff:]))
			frame = append(append(append([]byte(nil), frame[:12]...), tag...), frame[12:]...)
		}
	}
	return frame
}

// TestKernel gives the kernel the same unfinished frames, on an interface that
// does nothing by itself, and compares what it makes of them.
func TestKernel(t *testing.T) {
	lab := netlab.Setup(t, "a", "b")
	lab.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{Offloads: map[string]bool{
		"tx-tcp-segmentation": false, "tx-tcp6-segmentation": false, "tx-tcp-ecn-segmentation": false, "tx-udp-segmentation": false,
		"tx-checksum-ip-generic": false, "tx-tcp-mangleid-segmentation": false, "tx-gso-list": false, "rx-gro": false,
	}})
	out, index := packetSocket(t, lab.NS("a"), "a0", 0, unix.PACKET_VNET_HDR)
	in, _ := packetSocket(t, lab.NS("b"), "b0", unix.ETH_P_ALL, unix.PACKET_AUXDATA)
	r := rand.New(rand.NewPCG(9, 10))
	for i := range 300 {
		f := randomFlow(r)
		f.size = 300 + r.IntN(1000)
		f.payload = f.payload[:min(len(f.payload), 30*f.size)]
		f.ip6opt = false
		f.tags = f.tags[:min(1, len(f.tags))] // the kernel knows 0x9100 and more than one tag not everywhere
		if len(f.tags) == 1 && f.tags[0] == etherQinQ1 {
			f.tags[0] = etherVLAN
		}
		finish := i%3 == 0 || len(f.payload) <= f.size
		if finish {
			f.payload = f.payload[:min(len(f.payload), 1000)]
		}
		frame, v := f.super(t)
		if finish {
			v.GSOType, v.GSOSize = ring.VnetGSONone, 0
		}
		msg := make([]byte, ring.VnetLen, ring.VnetLen+len(frame))
		v.Encode(msg)
		if err := unix.Sendto(out, append(msg, frame...), 0, &unix.SockaddrLinklayer{Ifindex: index}); err != nil {
			t.Fatalf("%v: send: %v", f, err)
		}
		if finish {
			if err := Checksum(frame, &v); err != nil {
				t.Fatal(err)
			}
			compare(t, f, [][]byte{frame}, [][]byte{receiveFrame(t, in)})
			continue
		}
		got := cut(t, frame, &v)
		want := make([][]byte, len(got))
		for i := range want {
			want[i] = receiveFrame(t, in)
		}
		compare(t, f, got, want)
	}
}
