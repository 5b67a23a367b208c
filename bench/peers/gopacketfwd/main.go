//go:build linux && cgo

// Command gopacketfwd is the forwarder that one writes first with
// gopacket/afpacket: a goroutine per direction that reads a frame without
// copying and writes it to the other side. It is the baseline that a reader of
// the package's documentation would get.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/google/gopacket/afpacket"
)

func main() {
	both := flag.Bool("both", false, "forward both ways")
	retire := flag.Duration("retire", time.Millisecond, "block timeout of the receive ring")
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: gopacketfwd [--both] [--retire D] IF IF")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), flag.Arg(1), *both, *retire); err != nil {
		fmt.Fprintln(os.Stderr, "gopacketfwd:", err)
		os.Exit(1)
	}
}

func run(in, out string, both bool, retire time.Duration) error {
	a, err := open(in, retire)
	if err != nil {
		return err
	}
	b, err := open(out, retire)
	if err != nil {
		return err
	}
	go forward(b, a)
	if both {
		go forward(a, b)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
	return nil // the readers are cut off: the counts are the interfaces'
}

// open takes rings of 8 MiB, as large as those of the other contenders.
func open(name string, retire time.Duration) (*afpacket.TPacket, error) {
	t, err := afpacket.NewTPacket(afpacket.OptInterface(name), afpacket.OptFrameSize(4096),
		afpacket.OptBlockSize(512<<10), afpacket.OptNumBlocks(16), afpacket.OptBlockTimeout(retire))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return t, nil
}

func forward(to, from *afpacket.TPacket) {
	for {
		frame, _, err := from.ZeroCopyReadPacketData()
		if err != nil {
			continue
		}
		_ = to.WritePacketData(frame) // a full queue loses the frame; the interfaces count
	}
}
