package sched

// Stager decides when a device is told of new packets (the doorbell): once a
// number of packets or of bytes has come together, or at the end of the
// caller's round, whichever is first. It is the staging of DragonFly's
// sub-queues with one owner; without a byte bound it is the bundling of
// OpenBSD's interface queues (4 packets at first, 16 today).
//
// The zero value does not stage: every packet rings. One goroutine.
type Stager struct {
	maxPackets int
	maxBytes   uint64
	packets    int
	bytes      uint64
}

// The published bounds.
const (
	StagePackets  = 16   // DragonFly and OpenBSD today
	BundlePackets = 4    // both in their first version
	StageBytes    = 1460 // an Ethernet MTU without the smallest TCP/IPv4 headers
)

// NewStager returns a stager that rings with the maxPackets-th packet, or with
// the packet that brings the bytes to maxBytes. maxPackets of 1 or less rings
// with every packet; maxBytes of 0 or less is no bound.
func NewStager(maxPackets, maxBytes int) Stager {
	return Stager{maxPackets: maxPackets, maxBytes: uint64(max(maxBytes, 0))}
}

// Packet counts one more packet and returns how many must be handed over now,
// it included: 0 means that it may wait.
func (s *Stager) Packet(bytes uint32) (handed int) {
	s.packets++
	s.bytes += uint64(bytes)
	if s.packets < s.maxPackets && (s.maxBytes == 0 || s.bytes < s.maxBytes) {
		return 0
	}
	return s.Rollup()
}

// Rollup ends a round, or notes that the doorbell was rung for another reason:
// it returns how many packets were waiting for it.
func (s *Stager) Rollup() (handed int) {
	handed = s.packets
	s.packets, s.bytes = 0, 0
	return handed
}

// Waiting is the number of packets that the device has not been told of.
func (s *Stager) Waiting() int { return s.packets }
