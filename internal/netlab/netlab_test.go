//go:build linux

package netlab_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/netring/netring/internal/netlab"
	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"
)

// helperEnv names what a copy of the test binary is to do instead of testing.
const helperEnv = "NETLAB_TEST_HELPER"

func TestMain(m *testing.M) {
	if h := os.Getenv(helperEnv); h != "" {
		os.Exit(helper(h))
	}
	netlab.Main(m)
}

// helper is what the programs do that the tests start.
func helper(what string) int {
	switch what {
	case "names": // of the interfaces that it sees
		ifs, err := net.Interfaces()
		if err != nil {
			return 1
		}
		for _, i := range ifs {
			fmt.Println(i.Name)
		}
		return 0
	case "hang": // for ever, holding the pipe on descriptor 3 open
		select {}
	case "lab": // make a lab with a program inside and hang
		lab, err := netlab.New("x")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if err := startHang(lab.NS("x")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Println("ready")
		select {}
	}
	return reexecHelper(what)
}

// startHang starts a program in the namespace that holds descriptor 3 open.
func startHang(n *netlab.NS) error {
	c := n.Command("/proc/self/exe")
	c.Env = append(os.Environ(), helperEnv+"=hang")
	c.ExtraFiles = []*os.File{os.NewFile(3, "pipe")}
	return c.Start()
}

func TestVeth(t *testing.T) {
	lab := netlab.Setup(t, "gen", "dut")
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 7}
	lab.Pair(t, "gen", "g0", "dut", "d0", netlab.VethOpts{MTU: 9000, Queues: 2, MACB: mac})
	dut := lab.NS("dut")
	if got, err := dut.MAC("d0"); err != nil || got.String() != mac.String() {
		t.Errorf("address of d0 is %v, %v; want %v", got, err, mac)
	}
	l, err := dut.Netlink().LinkByName("d0")
	if err != nil {
		t.Fatal(err)
	}
	if a := l.Attrs(); a.MTU != 9000 || a.NumTxQueues != 2 || a.NumRxQueues != 2 {
		t.Errorf("d0 has MTU %d, %d TX and %d RX queues; want 9000, 2, 2", a.MTU, a.NumTxQueues, a.NumRxQueues)
	}
	const frames, size = 100, 9014
	if err := lab.NS("gen").Do(func() error { return send("g0", frames, size) }); err != nil {
		t.Fatal(err)
	}
	// A veth delivers before the send returns, and nobody else sends: exact.
	c, err := dut.Counters("d0")
	if err != nil {
		t.Fatal(err)
	}
	if c.RxPackets != frames || c.RxBytes != frames*size || c.TxPackets != 0 {
		t.Errorf("d0 counts %+v; want %d frames of %d bytes received, none sent", c, frames, size)
	}
}

// send sends n frames through an interface.
func send(name string, n, size int) error {
	ifc, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	frame := make([]byte, size)
	copy(frame, []byte{2, 0, 0, 0, 0, 7, 2, 0, 0, 0, 0, 1, 0x88, 0xb5})
	for range n {
		if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: ifc.Index}); err != nil {
			return err
		}
	}
	return nil
}

func threadNS(t *testing.T) string {
	t.Helper()
	s, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDo(t *testing.T) {
	lab := netlab.Setup(t, "a", "b")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home := threadNS(t)
	seen := map[string]bool{home: true}
	for _, name := range []string{"a", "b"} {
		want := errors.New("mine")
		err := lab.NS(name).Do(func() error { seen[threadNS(t)] = true; return want })
		if err != want {
			t.Errorf("Do returned %v, want the error of its function", err)
		}
	}
	if len(seen) != 3 {
		t.Errorf("saw namespaces %v, want three", seen)
	}
	if threadNS(t) != home {
		t.Error("the caller's thread has changed its namespace")
	}
}

// TestDoRestores checks that no thread stays in the namespace for others to
// run on.
func TestDoRestores(t *testing.T) {
	lab := netlab.Setup(t, "a")
	home := threadNS(t)
	for range 50 {
		if err := lab.NS("a").Do(func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	got := make(chan string)
	for range 20 {
		go func() {
			s, _ := os.Readlink("/proc/thread-self/ns/net")
			runtime.Gosched()
			got <- s
		}()
	}
	for range 20 {
		if s := <-got; s != home {
			t.Fatalf("a goroutine runs in %s, want %s", s, home)
		}
	}
}

func TestDoPanic(t *testing.T) {
	lab := netlab.Setup(t, "a")
	defer func() {
		p := fmt.Sprint(recover())
		if !strings.Contains(p, "oops") || !strings.Contains(p, `"a"`) {
			t.Errorf("recovered %q, want the panic of the function and the namespace", p)
		}
	}()
	_ = lab.NS("a").Do(func() error { panic("oops") })
	t.Error("Do returned after a panic")
}

func TestDoGoexit(t *testing.T) {
	lab := netlab.Setup(t, "a")
	after := false
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = lab.NS("a").Do(func() error { runtime.Goexit(); return nil })
		after = true
	}()
	<-done
	if after {
		t.Error("the caller went on after Goexit")
	}
}

func TestExec(t *testing.T) {
	lab := netlab.Setup(t, "a", "b")
	lab.Pair(t, "a", "inner0", "b", "outer0", netlab.VethOpts{})
	c := lab.NS("a").Command("/proc/self/exe")
	c.Env = append(os.Environ(), helperEnv+"=names")
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(out)); len(got) != 2 || got[0] != "lo" || got[1] != "inner0" {
		t.Errorf("a program in the namespace sees %v, want lo and inner0", got)
	}
	if _, err := lab.NS("a").Exec("false"); err == nil || !strings.Contains(err.Error(), "false") {
		t.Errorf("error of a program that fails: %v; want one with its name", err)
	}
}

// eof waits until all that hold the write end of the pipe have ended.
func eof(t *testing.T, r *os.File) {
	t.Helper()
	if err := r.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("a program that was started in the lab still runs: %v", err)
	}
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

func TestCloseKills(t *testing.T) {
	netlab.NeedNet(t)
	lab, err := netlab.New("a")
	if err != nil {
		t.Fatal(err)
	}
	r, w := pipe(t)
	c := lab.NS("a").Command("/proc/self/exe")
	c.Env = append(os.Environ(), helperEnv+"=hang")
	c.ExtraFiles = []*os.File{w}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if err := lab.Close(); err != nil {
		t.Error(err)
	}
	eof(t, r)
	if err := lab.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if err := lab.NS("a").Do(func() error { return nil }); err == nil {
		t.Error("Do works after Close")
	}
	if err := lab.NS("a").Command("true").Run(); err == nil {
		t.Error("Command works after Close")
	}
}

// TestKill checks that nothing is left of a lab whose process dies at once.
func TestKill(t *testing.T) {
	netlab.NeedNet(t)
	r, w := pipe(t)
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), helperEnv+"=lab")
	c.ExtraFiles = []*os.File{w}
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	line := make([]byte, 6)
	if _, err := out.Read(line); err != nil || string(line) != "ready\n" {
		t.Fatalf("the helper said %q, %v", line, err)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	eof(t, r)
}

func TestLinkStates(t *testing.T) {
	lab := netlab.Setup(t, "a", "b")
	lab.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	a, b := lab.NS("a"), lab.NS("b")
	if err := b.Down("b0"); err != nil {
		t.Fatal(err)
	}
	if err := a.WaitCarrier("a0", time.Millisecond); err == nil {
		t.Error("a0 has carrier while its other end is down")
	}
	if err := b.Up("b0"); err != nil {
		t.Fatal(err)
	}
	if err := a.WaitCarrier("a0", 5*time.Second); err != nil {
		t.Error(err)
	}
	if err := a.SetMTU("a0", 1400); err != nil {
		t.Error(err)
	}
	if err := b.Delete("b0"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Index("a0"); err == nil {
		t.Error("a0 exists after its other end was deleted")
	}
}

func TestAddresses(t *testing.T) {
	lab := netlab.Setup(t, "a", "b")
	lab.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	a, b := lab.NS("a"), lab.NS("b")
	mac, err := b.MAC("b0")
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		a.AddAddr("a0", "10.9.0.1/24"), b.AddAddr("b0", "10.9.0.2/24"),
		a.AddAddr("a0", "fd00:9::1/64"), b.AddAddr("b0", "fd00:9::2/64"),
		a.AddNeigh("a0", "10.9.0.2", mac), a.AddNeigh("a0", "fd00:9::2", mac),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, addr := range []string{"10.9.0.2:0", "[fd00:9::2]:0"} {
		var srv net.PacketConn
		if err := b.Do(func() (err error) { srv, err = net.ListenPacket("udp", addr); return err }); err != nil {
			t.Fatal(err)
		}
		defer srv.Close()
		// A datagram may be lost, the first one to an address that the kernel
		// is still checking for duplicates, say.
		buf, n := make([]byte, 16), 0
		for deadline := time.Now().Add(10 * time.Second); n == 0 && time.Now().Before(deadline); {
			err := a.Do(func() error {
				c, err := net.Dial("udp", srv.LocalAddr().String())
				if err != nil {
					return err
				}
				defer c.Close()
				_, err = c.Write([]byte("hello"))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := srv.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			n, _, _ = srv.ReadFrom(buf)
		}
		if string(buf[:n]) != "hello" {
			t.Errorf("%s received %q", addr, buf[:n])
		}
	}
}

func TestOffload(t *testing.T) {
	lab := netlab.Setup(t, "a", "b")
	want := map[string]bool{"rx-gro": true, "tx-tcp-segmentation": false, "tx-checksum-ip-generic": false}
	lab.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{Offloads: want})
	for _, end := range [][2]string{{"a", "a0"}, {"b", "b0"}} {
		err := lab.NS(end[0]).Do(func() error {
			e, err := ethtool.NewEthtool()
			if err != nil {
				return err
			}
			defer e.Close()
			got, err := e.Features(end[1])
			if err != nil {
				return err
			}
			for k, v := range want {
				if got[k] != v {
					t.Errorf("%s: %s is %v, want %v", end[1], k, got[k], v)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := lab.NS("a").Offload("a0", map[string]bool{"no-such-feature": true}); err == nil {
		t.Error("an unknown feature is accepted")
	}
}

func TestRPS(t *testing.T) {
	lab := netlab.Setup(t, "a", "b")
	lab.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{Queues: 2})
	err := lab.NS("a").RPS("a0", 1)
	switch {
	case netlab.Root() && err != nil:
		t.Error(err)
	case !netlab.Root() && !errors.Is(err, os.ErrPermission):
		t.Errorf("in a user namespace: %v, want a permission error", err)
	}
	if err := lab.NS("a").RPS("none", 1); err == nil {
		t.Error("RPS of an interface that does not exist")
	}
}

func TestRefusals(t *testing.T) {
	lab := netlab.Setup(t, "a")
	if _, err := lab.Add("a"); err == nil {
		t.Error("two namespaces of one name")
	}
	if err := lab.NS("nope").Up("lo"); err == nil || !strings.Contains(err.Error(), `"nope"`) {
		t.Errorf("unknown namespace: %v", err)
	}
	for _, o := range []netlab.VethOpts{{MTU: 67}, {MTU: 65536}, {Queues: -1}, {MACA: net.HardwareAddr{1}}} {
		if err := lab.Veth("a", "x0", "a", "x1", o); err == nil {
			t.Errorf("options %+v are accepted", o)
		}
	}
	if err := lab.Veth("a", "x0", "nope", "x1", netlab.VethOpts{}); err == nil {
		t.Error("veth to an unknown namespace")
	}
}
