package tpacket

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netring/netring/ring"
)

// The walkers on a kernel that costs next to nothing: what a frame costs here,
// beside the kernel's share.

const (
	benchSlots = 1024
	benchBatch = 256
)

func perPacket(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*benchBatch), "ns/pkt")
	b.ReportMetric(float64(b.N*benchBatch)/b.Elapsed().Seconds()/1e6, "Mpps")
}

func BenchmarkRx2(b *testing.B) {
	f := newFakeRx2(b, benchSlots, 2048, 10)
	for range benchSlots {
		f.deliver(packet{data: payload(60, 1)})
	}
	for k := range uint32(benchSlots) {
		word(f.d.mem, int(k)*2048).Store(unix.TP_STATUS_KERNEL)
	}
	k := uint32(0)
	b.ReportAllocs()
	for b.Loop() {
		for range uint32(benchBatch) {
			word(f.d.mem, int(k%benchSlots)*2048).Store(unix.TP_STATUS_USER)
			k++
		}
		pass(b, f.ring)
	}
	perPacket(b)
}

func BenchmarkRx3(b *testing.B) {
	f := newFakeRx3(b, benchSlots, 1<<18, 4, 10)
	for range 4 {
		for range benchBatch {
			f.deliver(packet{data: payload(60, 1)})
		}
		f.close()
	}
	pass(b, f.ring) // all blocks at once
	if err := f.ring.Sync(); err != nil {
		b.Fatal(err)
	}
	blk := uint32(0)
	b.ReportAllocs()
	for b.Loop() {
		word(f.d.area(blk%4), kBlockStatus).Store(unix.TP_STATUS_USER)
		blk++
		pass(b, f.ring)
	}
	perPacket(b)
}

// pass receives one batch and gives it back with the next.
func pass(b *testing.B, r *ring.Ring) {
	if err := r.Sync(); err != nil {
		b.Fatal(err)
	}
	if r.Space() < benchBatch {
		b.Fatalf("%d slots, want %d", r.Space(), benchBatch)
	}
	r.Head = r.Tail()
	r.Cur = r.Head
}

// instant is a kernel that has sent everything by the time that the doorbell
// returns.
type instant struct{ *fakeTx }

func (f instant) doorbell() (took int, e unix.Errno) {
	for w := word(f.d.at(f.head), 0); w.Load() == unix.TP_STATUS_SEND_REQUEST; w = word(f.d.at(f.head), 0) {
		w.Store(unix.TP_STATUS_AVAILABLE)
		took += int(u32(f.d.at(f.head), 4) - f.d.vnet)
		f.head++
	}
	return took, 0
}

func BenchmarkTx(b *testing.B) {
	f := newFakeTx(b, benchSlots, 10, 1500)
	f.d.bell = instant{f}
	r := f.ring
	b.ReportAllocs()
	for b.Loop() {
		for range benchBatch {
			r.Slot(r.Head).Len = 60
			r.Head++
		}
		r.Cur = r.Head
		if err := r.Sync(); err != nil {
			b.Fatal(err)
		}
	}
	if r.Stats.Packets.Load() != uint64(b.N)*benchBatch {
		b.Fatalf("%d sent, want %d", r.Stats.Packets.Load(), b.N*benchBatch)
	}
	perPacket(b)
}
