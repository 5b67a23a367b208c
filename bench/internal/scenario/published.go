//go:build linux

package scenario

import "fmt"

// Where published figures are from.
const (
	// earlier is a measurement of other programs before this project had any, on
	// a machine that BENCHMARKS.md describes.
	earlier     = "Intel VM"
	netmapPaper = "netmap, USENIX ATC 2012: 10 GbE (Intel 82599), FreeBSD"
	netmapMan   = "netmap(4)"
	valeMan     = "vale(4)"
	dragonfly   = "DragonFly BSD, commit message"
	openbsd     = "OpenBSD, commit message"
)

const otherMachine = "Another processor: only the order of the rows carries over."

// published returns the figures from elsewhere that belong beside a scenario's.
// Each Why has to stay true whatever is measured here.
func published(name string) []Published {
	switch name {
	case "forward60":
		return publishedForward()
	case "tcp":
		return []Published{{
			What: "vnetfwd against the kernel bridge, TCP IPv4", Figure: "6.51 to 8.99 Gbit/s, 0.72 times", Source: earlier,
			Case: "TCP IPv4: " + cVnetFwd, Metric: mBits, Against: "TCP IPv4: kernel bridge", Digits: 2, Unit: " times", Why: otherMachine,
		}}
	case "send60":
		return publishedSend()
	case "xdptx60", "xdpforward60", "live60", "xdprx60":
		return publishedXDP(name)
	case "memory":
		return publishedMemory()
	case "livelock":
		const why = "There the source offered all it could (1.5 Mpps), here four times the capacity as far as it can. How little is left to a " +
			"forwarder depends on that, and on when the scheduler lets it in between softirqs."
		return []Published{
			{What: "testpmd io, net_af_packet, softirq on its core", Figure: "18 kpps (754 with the softirq elsewhere)", Source: earlier,
				Case: overloadName(cTestpmd, 4), Metric: mPPS, Scale: 1e3, Unit: " kpps", Why: why},
			{What: "gopacket/afpacket loop, softirq on its core", Figure: "49 kpps (667 with the softirq elsewhere)", Source: earlier,
				Case: overloadName(cGopacket, 4), Metric: mPPS, Scale: 1e3, Unit: " kpps", Why: why},
		}
	case "stage":
		return publishedStage()
	case "prio":
		const why = "There a stack that sends by itself, streams at 0.9 Gbit/s, here a bridge between shaped veths and eight clients in a closed loop. " +
			"The gain is the queueing delay that a handshake is spared, so it follows from how long the bulk's queue is: from its limits and from the rate."
		var all []Published
		for _, rate := range []string{"100mbit", "1gbit"} {
			all = append(all, Published{What: "connections a second, with priority for SYN and ACK against without; " + rate,
				Figure: "1.80 times with segmentation offload (8,867 to 15,988), 1.60 without (11,371 to 18,128)", Source: dragonfly,
				Case: prioName(rate, "on", "on"), Metric: mConns, Against: prioName(rate, "off", "off"), Digits: 2, Unit: " times", Why: why})
		}
		return all
	case "lagg-tcp":
		const why = "There two ports of 10 GbE, so that a second link adds bandwidth and frames in flight on both really overtake each other. Here the links " +
			"are memory without a rate of their own, and one thread reads both: only the cost of reordering, and of cutting what TCP sends in one piece, is left."
		var all []Published
		for _, seg := range []string{"off", "on"} {
			all = append(all, Published{What: "one TCP flow, a long stride against stride 1; segmentation " + seg, Figure: "3.80 to 9.74 Gbit/s, 2.56 times",
				Source: dragonfly + ", ixgbe", Case: laggTCPName("stride 32", seg), Metric: mBits, Against: laggTCPName("stride 1", seg),
				Digits: 2, Unit: " times", Why: why})
		}
		return all
	}
	return nil
}

func publishedForward() []Published {
	p := []Published{{
		What: "netmap's emulated mode, which like ours works with any driver", Figure: "2 to 5 Mpps", Source: netmapMan,
		Case: cNetring, Metric: mPPS, Scale: 1e6, Digits: 2, Unit: " Mpps",
		Why: "Emulated mode takes the driver's buffers inside of the kernel, on hardware. Here each frame is copied into a ring, an skb is made and freed on each " +
			"side of it, and a veth adds a softirq run per frame.",
	}, {
		What: "the same against raw sockets", Figure: "3 to 5 times", Source: netmapMan,
		Case: cNetring, Metric: mPPS, Against: cGopacket, Digits: 2, Unit: " times",
		Why: "The loop that ours is compared with reads from a mapped ring already and only sends by a system call each, so less is left to be gained.",
	}}
	for _, r := range []struct{ name, figure string }{
		{cTestpmd, "754 [738 to 934]"}, {cNetsniff, "840 [626 to 937]"}, {cGopacket, "667 [436 to 677]"},
		{cKernel, "717 [660 to 772]"}, {cKernelRPS, "731 [695 to 828]"},
	} {
		p = append(p, Published{What: r.name, Figure: r.figure + " kpps", Source: earlier, Case: r.name, Metric: mPPS, Scale: 1e3, Unit: " kpps", Why: otherMachine})
	}
	return p
}

func publishedSend() []Published {
	p := []Published{{
		What: "netmap's pkt-gen, one core", Figure: "14.88 Mpps at 900 MHz, the line rate of 10 GbE", Source: netmapPaper,
		Case: cGenRing, Metric: mPPS, Scale: 1e6, Digits: 2, Unit: " Mpps",
		Why: "netmap fills the NIC's own descriptors. A packet socket makes an skb of each frame, and the veth's other end receives it in the sender's time. " +
			"`--engine xdp` is the one that is comparable: see live60.",
	}, {
		What: "FreeBSD's netsend, one core", Figure: "1.05 Mpps", Source: "slides on netmap, same hardware",
		Case: cTxRing, Metric: mPPS, Scale: 1e6, Digits: 2, Unit: " Mpps",
		Why: "The same way through a stack with a buffer structure per packet, on another system and a real NIC.",
	}}
	for _, r := range []struct{ name, figure string }{
		{cTxRing, "906 [688 to 1117]"}, {cTrafgen, "852 [721 to 1048]"}, {cTrafgenQ, "984 [733 to 1150]"},
		{cTcpreplay, "770 [711 to 1073]"}, {cPmdTX, "789 [728 to 1002]"},
	} {
		p = append(p, Published{What: r.name, Figure: r.figure + " kpps", Source: earlier, Case: r.name, Metric: mPPS, Scale: 1e3, Unit: " kpps", Why: otherMachine})
	}
	return p
}

func publishedXDP(scenario string) []Published {
	switch scenario {
	case "xdptx60":
		return []Published{{
			What: "AF_XDP sender on mlx5", Figure: "1.73 Mpps in copy mode, 16.5 with zero copy", Source: "xdp-project/bpf-examples, issue 61",
			Case: cGenXDP, Metric: mPPS, Scale: 1e6, Digits: 2, Unit: " Mpps", Why: "Copy mode makes an skb of each frame here as there; a veth has no other.",
		}, {
			What: "a sender over AF_XDP on veth", Figure: "about 1 Mpps", Source: "xdp-project/xdp-tutorial, issue 110",
			Case: cGenXDP, Metric: mPPS, Scale: 1e6, Digits: 2, Unit: " Mpps", Why: "The same path on another processor and an older kernel.",
		}, {
			What: cPmdXDPTX, Figure: "1423 [1084 to 1682] kpps", Source: earlier, Case: cPmdXDPTX, Metric: mPPS, Scale: 1e3, Unit: " kpps", Why: otherMachine,
		}}
	case "xdpforward60":
		return []Published{
			{What: cPmdXDP, Figure: "997 [859 to 1181] kpps", Source: earlier, Case: cPmdXDP, Metric: mPPS, Scale: 1e3, Unit: " kpps", Why: otherMachine},
			{What: cPmdXDPCalm, Figure: "1169 [882 to 1214] kpps", Source: earlier, Case: cPmdXDPCalm, Metric: mPPS, Scale: 1e3, Unit: " kpps", Why: otherMachine},
		}
	case "live60":
		return []Published{{
			What: "netmap's pkt-gen, one core", Figure: "14.88 Mpps at 900 MHz", Source: netmapPaper,
			Case: cGenLive, Metric: mPPS, Scale: 1e6, Digits: 2, Unit: " Mpps",
			Why: "There the NIC bounds the rate and the core only writes descriptors. Here the same core also runs the receiving end of the veth, its softirq and the " +
				"program that drops.",
		}, {
			What: "the same", Figure: "14.88 Mpps at 900 MHz", Source: netmapPaper, Case: cGenLive + farSink, Metric: mPPS, Scale: 1e6, Digits: 2, Unit: " Mpps",
			Why: "With the far end on another core, what is left to the sender is comparable: a page and a header per frame, instead of a descriptor.",
		}, {
			What: cLive, Figure: "13.23 [10.42 to 15.80] Mpps", Source: earlier, Case: cLive, Metric: mPPS, Scale: 1e6, Digits: 2, Unit: " Mpps", Why: otherMachine,
		}}
	case "xdprx60":
		const why = "There the source made skbs (1.1 Mpps at most), here it makes none: that one was bound by its source, this one may be bound by the receiver."
		return []Published{
			{What: cPmdRX, Figure: "834 [684 to 900] kpps", Source: earlier, Case: cPmdRX, Metric: mReceived, Scale: 1e3, Unit: " kpps", Why: why},
			{What: cPmdRXCalm, Figure: "1053 [938 to 1244] kpps", Source: earlier, Case: cPmdRXCalm, Metric: mReceived, Scale: 1e3, Unit: " kpps", Why: why},
		}
	}
	return nil
}

func publishedStage() []Published {
	const why = "There a doorbell is a write to a register of a NIC. Here it is a system call, dearer, but inside of it each frame still costs an skb and a softirq " +
		"run, which no staging saves; and a round ends with a doorbell in any case."
	full, paced := "full load", fmt.Sprintf("%.0f kpps", pacedStage/1e3)
	return []Published{{
		What: "4 packets a doorbell against 1, packets a second", Figure: "1.11 times (ix), 1.17 (em), 1.22 (myx)", Source: openbsd,
		Case: stageName(4, full), Metric: mPPS, Against: stageName(1, full), Digits: 2, Unit: " times", Why: why,
	}, {
		What: "16 packets a doorbell against 1, CPU for the same packets", Figure: "0.8 times (20 % saved at 1.48 Mpps)", Source: dragonfly,
		Case: stageName(16, paced), Metric: mNanos, Against: stageName(1, paced), Digits: 2, Unit: " times", Why: why,
	}, {
		What: "8 and 16 packets a doorbell, packets a second", Figure: "80 kpps more (normal forwarding), 30 (fast forwarding)", Source: dragonfly,
		Case: stageName(16, full), Metric: mPPS, Against: stageName(1, full), Digits: 2, Unit: " times", Why: why,
	}}
}
