package lagg

import (
	"errors"
	"fmt"
	"time"
)

// Proto is how a group chooses.
type Proto uint8

const (
	Failover Proto = iota
	RoundRobin
	LoadBalance
	Broadcast
)

var protoNames = [...]string{"failover", "roundrobin", "loadbalance", "broadcast"}

func (p Proto) String() string {
	if int(p) < len(protoNames) {
		return protoNames[p]
	}
	return "unknown"
}

// Defaults of [Options].
const (
	DefaultHoldDown    = 100 * time.Millisecond
	DefaultHoldDownMax = 10 * time.Second
)

// minStrideBytes bounds the turns that a member with debts is passed over.
const minStrideBytes = 1024

// Options of a [Group]. The zero value is valid: failover, the first member
// primary.
type Options struct {
	Proto Proto

	Stride      uint32 // of RoundRobin: frames a member; 0 means 1
	StrideBytes uint32 // of RoundRobin: bytes a member, in place of Stride

	// Of LoadBalance. Hash 0 means all layers; Seed 0 a random one. FlowID
	// takes the driver's own hash of a frame (ring.Meta), shifted right by
	// FlowIDShift, in place of ours where there is one.
	Hash        Fields
	Seed        uint64
	Symmetric   bool
	Inner       bool
	FlowID      bool
	FlowIDShift uint8
	Weights     []uint32 // shares of the members, in their order; nil means equal ones

	// FlowletGap, of LoadBalance and Failover, is how long a flow must be
	// silent before it may go back to its member although the other's queue
	// has not drained; 0: only when that has. In Failover all is one flow.
	FlowletGap time.Duration

	Primary int  // of Failover: index of the member
	RxAll   bool // of Failover: members that do not send may deliver all the same

	// HoldDown is how long a link must be up before it is used again, after
	// it went down; doubled with each flap, to HoldDownMax at most. Twice that
	// time without a flap forgives those before. A link that goes down is not used
	// any more at once. 0 means the defaults, negative none.
	HoldDown    time.Duration
	HoldDownMax time.Duration
}

// Validate reports the first field that does not fit a group of n members.
func (o *Options) Validate(n int) error {
	switch {
	case n < 1 || n > MaxMembers:
		return fmt.Errorf("%d members: must be 1 to %d", n, MaxMembers)
	case int(o.Proto) >= len(protoNames):
		return fmt.Errorf("protocol %d: unknown", o.Proto)
	case o.Proto != RoundRobin && (o.Stride != 0 || o.StrideBytes != 0):
		return fmt.Errorf("a stride goes with roundrobin, not with %v", o.Proto)
	case o.Stride != 0 && o.StrideBytes != 0:
		return errors.New("stride in frames and in bytes: choose one")
	case o.StrideBytes != 0 && o.StrideBytes < minStrideBytes:
		return fmt.Errorf("stride of %d bytes: must be at least %d; for single frames use a stride of 1 frame", o.StrideBytes, minStrideBytes)
	case o.Proto != LoadBalance && (o.Hash != 0 || o.Symmetric || o.Inner || o.FlowID || o.Weights != nil):
		return fmt.Errorf("hash, symmetric, inner, flowid and weights go with loadbalance, not with %v", o.Proto)
	case o.Proto != LoadBalance && o.Proto != Failover && o.FlowletGap != 0:
		return fmt.Errorf("a flowlet gap goes with loadbalance and failover, not with %v", o.Proto)
	case o.Hash > L2|L3|L4:
		return fmt.Errorf("hash fields %#x: unknown", o.Hash)
	case o.FlowIDShift != 0 && !o.FlowID:
		return errors.New("a flowid shift without flowid: set flowid=on")
	case o.FlowIDShift > 31:
		return fmt.Errorf("flowid shift %d: must be 0 to 31", o.FlowIDShift)
	case o.Weights != nil && len(o.Weights) != n:
		return fmt.Errorf("%d weights for %d members: give one for each, as 3+1", len(o.Weights), n)
	case o.Primary < 0 || o.Primary >= n:
		return fmt.Errorf("primary %d: there are members 0 to %d", o.Primary, n-1)
	case o.Proto != Failover && (o.Primary != 0 || o.RxAll):
		return fmt.Errorf("primary and rx-all go with failover, not with %v", o.Proto)
	case o.FlowletGap < 0 || o.FlowletGap > time.Minute || o.FlowletGap != 0 && ticks(o.FlowletGap) == 0:
		return fmt.Errorf("flowlet gap %v: must be 0, or 66us to 1m", o.FlowletGap)
	case o.HoldDownMax < 0 || o.HoldDown > o.HoldDownMax && o.HoldDownMax != 0:
		return fmt.Errorf("hold-down %v, at most %v: must not be above its maximum", o.HoldDown, o.HoldDownMax)
	}
	for i, w := range o.Weights {
		if w == 0 || w > 1<<16 {
			return fmt.Errorf("weight %d of member %d: must be 1 to 65536", w, i)
		}
	}
	return nil
}
