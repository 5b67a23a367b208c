package gate

import (
	"encoding/binary"

	"github.com/cilium/ebpf/asm"
)

// The values of the program's maps, all of them 64-bit words.
const (
	// The limits, which we write and the program reads.
	limWindow  = 0 // nanoseconds
	limBudget  = 8 // packets
	limControl = 16
	limSize    = 24
	// The state of the window, the program's own.
	winStart   = 0 // bpf_ktime_get_ns
	winCount   = 8 // packets that asked to pass since then
	winControl = 16
	winSize    = 24
	// The counters of one CPU.
	cntPassed  = 0
	cntDropped = 8
	cntControl = 16 // passed as control frames
	cntSize    = 24
)

const (
	mdData    = 0 // struct xdp_md
	mdDataEnd = 4
	etherLen  = 14
	etherType = 12

	xdpDrop = 1
	xdpPass = 2
)

// controlTypes are the EtherTypes of frames that keep a link alive. They pass
// beside the budget, up to a small one of their own.
var controlTypes = [...]uint16{
	0x0806, // ARP
	0x8809, // slow protocols: LACP, marker
	0x88cc, // LLDP
	0x888e, // 802.1X
}

// instructions is the gate's program. It counts packets in windows of time and
// lets through what is within the budget.
//
//	R6 context, R7 time, R8 limits, R9 state of the window
//
// The test for a new window is not atomic: two CPUs that meet there both start
// it, and the few packets between are counted in neither.
func instructions(limits, window, counters int) asm.Instructions {
	in := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.FnKtimeGetNs.Call(),
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.LoadMapValue(asm.R8, limits, 0),
		asm.LoadMapValue(asm.R9, window, 0),
		asm.LoadMem(asm.R2, asm.R9, winStart, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.Sub.Reg(asm.R1, asm.R2),
		asm.LoadMem(asm.R3, asm.R8, limWindow, asm.DWord),
		asm.JLT.Reg(asm.R1, asm.R3, "same"),
		asm.StoreMem(asm.R9, winStart, asm.R7, asm.DWord),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.R9, winCount, asm.R1, asm.DWord),
		asm.StoreMem(asm.R9, winControl, asm.R1, asm.DWord),

		asm.LoadMem(asm.R2, asm.R6, mdData, asm.Word).WithSymbol("same"),
		asm.LoadMem(asm.R3, asm.R6, mdDataEnd, asm.Word),
		asm.Mov.Reg(asm.R1, asm.R2),
		asm.Add.Imm(asm.R1, etherLen),
		asm.JGT.Reg(asm.R1, asm.R3, "ordinary"),
		asm.LoadMem(asm.R1, asm.R2, etherType, asm.Half),
	}
	for _, t := range controlTypes {
		in = append(in, asm.JEq.Imm(asm.R1, int32(networkOrder(t)), "control"))
	}
	return append(in,
		asm.Mov.Imm(asm.R1, 1).WithSymbol("ordinary"),
		fetchAdd(asm.R9, winCount, asm.R1),
		asm.LoadMem(asm.R2, asm.R8, limBudget, asm.DWord),
		asm.Mov.Imm(asm.R6, xdpPass),
		asm.Mov.Imm(asm.R7, cntPassed),
		asm.JLT.Reg(asm.R1, asm.R2, "count"),
		asm.Mov.Imm(asm.R6, xdpDrop),
		asm.Mov.Imm(asm.R7, cntDropped),
		asm.Ja.Label("count"),

		asm.Mov.Imm(asm.R1, 1).WithSymbol("control"),
		fetchAdd(asm.R9, winControl, asm.R1),
		asm.LoadMem(asm.R2, asm.R8, limControl, asm.DWord),
		asm.JGE.Reg(asm.R1, asm.R2, "ordinary"),
		asm.Mov.Imm(asm.R6, xdpPass),
		asm.Mov.Imm(asm.R7, cntControl),

		// R6 is the verdict, R7 the counter.
		asm.Mov.Imm(asm.R1, 0).WithSymbol("count"),
		asm.StoreMem(asm.RFP, -4, asm.R1, asm.Word),
		asm.LoadMapPtr(asm.R1, counters),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Add.Reg(asm.R0, asm.R7),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.Mov.Reg(asm.R0, asm.R6).WithSymbol("out"),
		asm.Return(),
	)
}

// fetchAdd adds reg to the word at base+off and leaves the old value in reg
// (Linux 5.12). The constant, BPF_FETCH, has to be said twice: the assembler
// encodes what it finds there before it takes the operation apart.
func fetchAdd(base asm.Register, off int16, reg asm.Register) asm.Instruction {
	in := asm.FetchAdd.Mem(base, reg, asm.DWord, off)
	in.Constant = 1
	return in
}

// networkOrder is how a program sees a 16-bit field of a packet that it loads
// without conversion.
func networkOrder(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return binary.NativeEndian.Uint16(b[:])
}
