package offload

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/ring"
	"github.com/safchain/ethtool"
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
			if err := Finish(frame, &v); err != nil {
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

func features(t *testing.T, ns *netlab.NS, name string) map[string]bool {
	t.Helper()
	var f map[string]bool
	if err := ns.Do(func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		f, err = e.Features(name)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFix(t *testing.T) {
	for _, c := range []struct {
		mode   Mode
		turned []string
		left   int // problems at the other end
	}{
		{ModeVnet, nil, 0},
		{ModePlain, []string{"rx-gro"}, 1},
		{ModeXDP, []string{"rx-vlan-hw-parse", "rx-vlan-stag-hw-parse"}, 1},
	} {
		lab := netlab.Setup(t, "a", "b")
		lab.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{Offloads: map[string]bool{"rx-gro": true}})
		before := features(t, lab.NS("a"), "a0")
		var change *Change
		var r Report
		if err := lab.NS("a").Do(func() (err error) { change, r, err = Fix("a0", c.mode); return err }); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(change.Turned(), " "); got != strings.Join(c.turned, " ") {
			t.Errorf("%v: turned off %q, want %q", c.mode, got, c.turned)
		}
		during := features(t, lab.NS("a"), "a0")
		for _, name := range c.turned {
			if during[name] {
				t.Errorf("%v: %s is still on", c.mode, name)
			}
		}
		if len(r.Problems) != c.left || r.Command() != "" || r.Driver != "veth" {
			t.Errorf("%v: afterwards %v", c.mode, &r)
		}
		for range 2 {
			if err := change.Restore(); err != nil {
				t.Errorf("%v: %v", c.mode, err)
			}
		}
		for name, was := range before {
			if now := features(t, lab.NS("a"), "a0")[name]; now != was {
				t.Errorf("%v: %s is %v afterwards, was %v", c.mode, name, now, was)
			}
		}
	}
}

func TestFixGone(t *testing.T) {
	lab := netlab.Setup(t, "a", "b")
	lab.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{Offloads: map[string]bool{"rx-gro": true}})
	var change *Change
	if err := lab.NS("a").Do(func() (err error) { change, _, err = Fix("a0", ModePlain); return err }); err != nil {
		t.Fatal(err)
	}
	if err := lab.NS("b").Delete("b0"); err != nil {
		t.Fatal(err)
	}
	if err := change.Restore(); err != nil {
		t.Errorf("of an interface that is gone: %v", err)
	}
	if err := lab.NS("a").Do(func() error { _, _, err := Fix("a0", ModePlain); return err }); !errors.Is(err, unix.ENODEV) {
		t.Errorf("Fix of an interface that is gone: %v", err)
	}
}

func TestJudge(t *testing.T) {
	all := map[string]bool{
		"rx-lro": true, "rx-gro": true, "rx-gro-hw": true, "rx-checksum": true, "rx-vlan-hw-parse": true,
		"rx-vlan-stag-hw-parse": true, "tx-tcp-segmentation": true, "tx-checksum-ip-generic": true, "rx-hashing": true,
	}
	for _, c := range []struct {
		driver  string
		mode    Mode
		on      map[string]bool
		command string
		other   bool
	}{
		{"ixgbe", ModeVnet, all, "ethtool -K p lro off", false},
		{"ixgbe", ModePlain, all, "ethtool -K p lro off gro off rx-gro-hw off", false},
		{"ixgbe", ModeXDP, all, "ethtool -K p lro off rx-gro-hw off rxvlan off rx-vlan-stag-hw-parse off", false},
		{"virtio_net", ModePlain, all, "ethtool -K p lro off gro off rx-gro-hw off rx off", false},
		{"virtio_net", ModeVnet, all, "ethtool -K p lro off", false},
		{"ixgbe", ModePlain, map[string]bool{"tx-tcp-segmentation": true, "rx-gro": false}, "", false},
		{"veth", ModeVnet, map[string]bool{"rx-gro": true}, "", false},
		{"veth", ModePlain, nil, "", true},
		{"veth", ModeXDP, nil, "", true},
		{"tun", ModePlain, nil, "", true},
	} {
		r := judge("p", c.driver, c.mode, c.on)
		if r.Command() != c.command {
			t.Errorf("%s, %v: command %q, want %q", c.driver, c.mode, r.Command(), c.command)
		}
		if r.OK() != (c.command == "" && !c.other) {
			t.Errorf("%s, %v: OK is %v", c.driver, c.mode, r.OK())
		}
		s := r.String()
		if c.command != "" && !strings.Contains(s, "do: "+c.command) || c.other && !strings.Contains(s, "the other end") || !strings.Contains(s, c.driver) {
			t.Errorf("%s, %v: report %q", c.driver, c.mode, s)
		}
	}
}
