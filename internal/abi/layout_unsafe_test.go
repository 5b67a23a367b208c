package abi

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestLayout(t *testing.T) {
	var (
		v2 unix.Tpacket2Hdr
		v3 unix.Tpacket3Hdr
		va unix.TpacketHdrVariant1
		bd unix.TpacketBlockDesc
		b1 unix.TpacketHdrV1
		ll unix.RawSockaddrLinklayer
	)
	hdrVariant := unsafe.Offsetof(v3.Hv1)
	blockV1 := unsafe.Offsetof(bd.Hdr)
	for _, c := range []struct {
		name   string
		got    int
		kernel uintptr
	}{
		{"tpacket2_hdr.tp_status", V2Status, unsafe.Offsetof(v2.Status)},
		{"tpacket2_hdr.tp_len", V2Len, unsafe.Offsetof(v2.Len)},
		{"tpacket2_hdr.tp_snaplen", V2Snaplen, unsafe.Offsetof(v2.Snaplen)},
		{"tpacket2_hdr.tp_mac", V2Mac, unsafe.Offsetof(v2.Mac)},
		{"tpacket2_hdr.tp_sec", V2Sec, unsafe.Offsetof(v2.Sec)},
		{"tpacket2_hdr.tp_nsec", V2Nsec, unsafe.Offsetof(v2.Nsec)},
		{"tpacket2_hdr.tp_vlan_tci", V2TCI, unsafe.Offsetof(v2.Vlan_tci)},
		{"tpacket2_hdr.tp_vlan_tpid", V2TPID, unsafe.Offsetof(v2.Vlan_tpid)},
		{"sizeof tpacket2_hdr", SizeofV2, unsafe.Sizeof(v2)},
		{"tpacket3_hdr.tp_next_offset", V3Next, unsafe.Offsetof(v3.Next_offset)},
		{"tpacket3_hdr.tp_sec", V3Sec, unsafe.Offsetof(v3.Sec)},
		{"tpacket3_hdr.tp_nsec", V3Nsec, unsafe.Offsetof(v3.Nsec)},
		{"tpacket3_hdr.tp_snaplen", V3Snaplen, unsafe.Offsetof(v3.Snaplen)},
		{"tpacket3_hdr.tp_len", V3Len, unsafe.Offsetof(v3.Len)},
		{"tpacket3_hdr.tp_status", V3Status, unsafe.Offsetof(v3.Status)},
		{"tpacket3_hdr.tp_mac", V3Mac, unsafe.Offsetof(v3.Mac)},
		{"tpacket3_hdr.hv1.tp_rxhash", V3Hash, hdrVariant + unsafe.Offsetof(va.Rxhash)},
		{"tpacket3_hdr.hv1.tp_vlan_tci", V3TCI, hdrVariant + unsafe.Offsetof(va.Vlan_tci)},
		{"tpacket3_hdr.hv1.tp_vlan_tpid", V3TPID, hdrVariant + unsafe.Offsetof(va.Vlan_tpid)},
		{"sizeof tpacket3_hdr", SizeofV3, unsafe.Sizeof(v3)},
		{"tpacket_block_desc.block_status", BlockStatus, blockV1 + unsafe.Offsetof(b1.Block_status)},
		{"tpacket_block_desc.num_pkts", BlockPkts, blockV1 + unsafe.Offsetof(b1.Num_pkts)},
		{"tpacket_block_desc.offset_to_first_pkt", BlockFirst, blockV1 + unsafe.Offsetof(b1.Offset_to_first_pkt)},
		{"sizeof tpacket_block_desc", SizeofBlock, unsafe.Sizeof(bd)},
		{"sockaddr_ll.sll_pkttype", LLPktType, unsafe.Offsetof(ll.Pkttype)},
		{"sizeof sockaddr_ll", SizeofLL, unsafe.Sizeof(ll)},
		{"TPACKET_ALIGNMENT", Align, unix.TPACKET_ALIGNMENT},
	} {
		if uintptr(c.got) != c.kernel {
			t.Errorf("%s: %d here, %d in the kernel's structure", c.name, c.got, c.kernel)
		}
	}
}

// TestEthtoolLayout compares with linux/ethtool.h, of whose structure x/sys has
// no copy, and with the size of struct ifreq in x/sys.
func TestEthtoolLayout(t *testing.T) {
	var (
		c EthtoolChannels
		i IfreqData
	)
	for _, x := range []struct {
		name         string
		got, kernels uintptr
	}{
		{"ethtool_channels.cmd", unsafe.Offsetof(c.Cmd), 0},
		{"ethtool_channels.max_rx", unsafe.Offsetof(c.MaxRx), 4},
		{"ethtool_channels.max_tx", unsafe.Offsetof(c.MaxTx), 8},
		{"ethtool_channels.max_other", unsafe.Offsetof(c.MaxOther), 12},
		{"ethtool_channels.max_combined", unsafe.Offsetof(c.MaxCombined), 16},
		{"ethtool_channels.rx_count", unsafe.Offsetof(c.Rx), 20},
		{"ethtool_channels.tx_count", unsafe.Offsetof(c.Tx), 24},
		{"ethtool_channels.other_count", unsafe.Offsetof(c.Other), 28},
		{"ethtool_channels.combined_count", unsafe.Offsetof(c.Combined), 32},
		{"sizeof ethtool_channels", unsafe.Sizeof(c), 36},
		{"ifreq.ifr_data", unsafe.Offsetof(i.Data), unix.IFNAMSIZ},
		{"sizeof ifreq", unsafe.Sizeof(i), unsafe.Sizeof(unix.Ifreq{})},
	} {
		if x.got != x.kernels {
			t.Errorf("%s: %d here, %d in the kernel's structure", x.name, x.got, x.kernels)
		}
	}
}

// TestBPFLayout compares with union bpf_attr of linux/bpf.h, of which x/sys has
// no copy.
func TestBPFLayout(t *testing.T) {
	var a BPFTestRun
	for _, c := range []struct {
		name      string
		got, want uintptr
	}{
		{"data_in", unsafe.Offsetof(a.DataIn), 16},
		{"repeat", unsafe.Offsetof(a.Repeat), 32},
		{"ctx_size_in", unsafe.Offsetof(a.CtxSizeIn), 40},
		{"ctx_in", unsafe.Offsetof(a.CtxIn), 48},
		{"flags", unsafe.Offsetof(a.Flags), 64},
		{"batch_size", unsafe.Offsetof(a.BatchSize), 72},
		{"sizeof", unsafe.Sizeof(a), 80},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d here, %d in the kernel's structure", c.name, c.got, c.want)
		}
	}
}
