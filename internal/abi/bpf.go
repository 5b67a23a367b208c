package abi

// BPFTestRun is the member "test" of union bpf_attr, for BPF_PROG_TEST_RUN, as of
// Linux 5.18.
type BPFTestRun struct {
	ProgFD      uint32
	Retval      uint32
	DataSizeIn  uint32
	DataSizeOut uint32
	DataIn      uint64
	DataOut     uint64
	Repeat      uint32
	Duration    uint32
	CtxSizeIn   uint32
	CtxSizeOut  uint32
	CtxIn       uint64
	CtxOut      uint64
	Flags       uint32
	CPU         uint32
	BatchSize   uint32
	_           uint32
}

// BPFProgTestRun is the command BPF_PROG_TEST_RUN of bpf(2).
const BPFProgTestRun = 10
