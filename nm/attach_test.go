package nm_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/netring/netring/internal/netlab"
	"github.com/netring/netring/nm"
	"github.com/netring/netring/ring"
)

// TestAttach: an interface is a port of a switch like others.
func TestAttach(t *testing.T) {
	netlab.NeedNet(t)
	l := netlab.Setup(t, "sw", "out")
	l.Pair(t, "sw", "n0", "out", "f0", netlab.VethOpts{})
	s := &nm.Space{}
	a, b := in(t, l, "sw", s, "vale0:a"), in(t, l, "sw", s, "vale0:b@conf:slots=16")
	nic := in(t, l, "sw", s, "vale0:n0@tpacket:profile=lowmem")
	far := in(t, l, "out", &nm.Space{}, "f0@tpacket:vnet=off")
	if len(nic.RxRings())+len(nic.TxRings()) != 0 {
		t.Error("the program has rings of an attached interface")
	}
	if _, err := nic.Poll(limit(t), -1, nm.In|nm.Out); err == nil {
		t.Error("polling an attached interface says nothing")
	}
	f := etherFrame(bcast, macC, 1, 60)
	send(t, far, f)
	want(t, "from the interface", a, f)
	want(t, "from the interface", b, f)
	f = etherFrame(macC, macA, 2, 1514)
	send(t, a, f)
	want(t, "to the interface", far, f)
	want(t, "known, not to b", b)
	st := stats(t, a, 2)
	if !st.Interface || st.Name != "n0" || st.Rx != 1 || st.Tx != 1 || st.Err != nil {
		t.Errorf("port of the interface: %+v", st)
	}
	// Another switch may not have it exclusively named, nor this one twice.
	must(t, l.NS("sw").Do(func() error {
		if _, err := nm.Open("vale0:n0", nm.Options{Space: s}); !errors.Is(err, nm.ErrBusy) {
			t.Errorf("attached twice: %v", err)
		}
		for name, why := range map[string]string{
			"vale0:n0/r": "netmap:n0", "vale1:n0/R": "leave /R", "vale1:n0@2": "leave @N", "vale1:n0@conf:rings=2": "one ring pair",
			"vale1:a@tpacket:version=3": "goes with an interface", "vale1:n0^": "host rings", "vale1:none/t": "no open port",
		} {
			if _, err := nm.Open(name, nm.Options{Space: s}); err == nil || !strings.Contains(err.Error(), why) {
				t.Errorf("%s: %v, want %q", name, err, why)
			}
		}
		return nil
	}))
	// Links go and come: what is sent meanwhile is lost, with a count.
	must(t, l.NS("sw").Down("n0"))
	until(t, "link down", func() bool { return errors.Is(stats(t, a, 2).Err, ring.ErrLinkDown) })
	send(t, a, etherFrame(macC, macA, 3, 60), etherFrame(bcast, macA, 4, 60))
	want(t, "flooded, as the table forgot", b, etherFrame(macC, macA, 3, 60), etherFrame(bcast, macA, 4, 60))
	if st := stats(t, a, 2); st.Dropped[ring.DropLink] != 2 || st.Tx != 3 {
		t.Errorf("while down: %+v", st)
	}
	must(t, l.NS("sw").Up("n0"))
	until(t, "link up", func() bool { return stats(t, a, 2).Err == nil })
	f = etherFrame(bcast, macC, 5, 60)
	until(t, "frames again", func() bool {
		send(t, far, f)
		must(t, a.SyncRx())
		_, ok := a.NextPkt()
		return ok
	})
	must(t, l.NS("sw").Delete("n0"))
	until(t, "gone", func() bool { return errors.Is(stats(t, a, 2).Err, ring.ErrGone) })
	must(t, nic.Close())
	if n := len(a.Switch().Ports()); n != 2 {
		t.Errorf("%d ports after the interface was closed, want 2", n)
	}
}

// TestAttachFinishes: frames of a local sender, which counts on its device for
// the checksum and for segmentation, are complete when they reach a program.
func TestAttachFinishes(t *testing.T) {
	netlab.NeedNet(t)
	l := netlab.Setup(t, "sw", "out")
	l.Pair(t, "sw", "n0", "out", "f0", netlab.VethOpts{})
	s := &nm.Space{}
	a := in(t, l, "sw", s, "vale0:a") // before there is an interface
	in(t, l, "sw", s, "vale0:n0")
	b := in(t, l, "sw", s, "vale0:b") // and after
	ns := l.NS("out")
	must(t, ns.AddAddr("f0", "10.9.0.1/24"))
	mac := macA.Bytes()
	must(t, ns.AddNeigh("f0", "10.9.0.2", net.HardwareAddr(mac[:])))
	const n = 20
	must(t, ns.Do(func() error {
		c, err := net.Dial("udp4", "10.9.0.2:9")
		if err != nil {
			return err
		}
		defer c.Close()
		for i := range n {
			if _, err := fmt.Fprintf(c, "number %d", i); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				return err
			}
		}
		return nil
	}))
	for _, d := range []*nm.Desc{a, b} {
		ctx := limit(t)
		for got := 0; got < n; {
			if _, err := d.Poll(ctx, -1, nm.In); err != nil {
				t.Fatalf("after %d of %d datagrams: %v", got, n, err)
			}
			for p := range d.Packets() {
				f := p.Frame
				if len(f) < 42 || f[12] != 8 || f[13] != 0 || f[23] != 17 {
					continue // the host's own: neighbour discovery and the like
				}
				if p.Ring.Slot(p.Slot).Flags&ring.SlotVnet != 0 || !udpChecksum(f[14:]) {
					t.Fatalf("datagram %d is unfinished: % x", got, f)
				}
				got++
			}
		}
	}
}

// udpChecksum reports whether the checksum of an IPv4 datagram without options
// is right.
func udpChecksum(ip []byte) bool {
	ip = ip[:int(ip[2])<<8|int(ip[3])]
	sum := uint32(17) + uint32(len(ip)-20)
	for i := 12; i < len(ip); i += 2 {
		sum += uint32(ip[i]) << 8
		if i+1 < len(ip) {
			sum += uint32(ip[i+1])
		}
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return sum == 0xffff
}
