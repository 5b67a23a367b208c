// livemax: the most that a program can do with live frames. BPF_PROG_TEST_RUN
// runs an XDP program of four instructions over and over on pages that hold the
// same frame, and the kernel hands each frame to the interface without ever
// making an skb of it: the limit that a generator of this kind is measured
// against. Plain system calls, so nothing needs installing.
//
// The interface must take redirected frames; a veth does if its peer has an XDP
// program or GRO. -b is the number of frames handed over at once.
#include <errno.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <sys/syscall.h>
#include "sender.h"

// A system call sets up its pages anew and waits, at its end, until nobody can be
// using them any more, so one lasts until SIGTERM interrupts it.
static const uint32_t repeat = 1u << 31;

static long bpf(int command, union bpf_attr *attr)
{
	return syscall(__NR_bpf, command, attr, sizeof *attr);
}

// return bpf_redirect(ifindex, 0)
static int load(int ifindex)
{
	const struct bpf_insn program[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_1, .imm = ifindex},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_2, .imm = 0},
		{.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect},
		{.code = BPF_JMP | BPF_EXIT},
	};
	union bpf_attr attr;

	memset(&attr, 0, sizeof attr);
	attr.prog_type = BPF_PROG_TYPE_XDP;
	attr.insns = (uintptr_t)program;
	attr.insn_cnt = sizeof program / sizeof program[0];
	attr.license = (uintptr_t)"Dual BSD/GPL";
	long fd = bpf(BPF_PROG_LOAD, &attr);
	if (fd < 0)
		fail("load the program");
	return (int)fd;
}

int main(int argc, char **argv)
{
	struct options o = parse_options(argc, argv, 64);
	static uint8_t frame[FRAME_ROOM];
	union bpf_attr attr;
	unsigned long long calls = 0;

	stop_on_signals();
	int ifindex = (int)if_nametoindex(o.ifname);
	if (!ifindex)
		fail(o.ifname);
	if (o.rate || o.flows != 1 || o.vnet) {
		fprintf(stderr, "livemax: sends one flow as fast as it can\n");
		return 2;
	}
	make_frame(frame, o.len, o.dst, 0);
	memset(&attr, 0, sizeof attr);
	attr.test.prog_fd = (uint32_t)load(ifindex);
	attr.test.data_in = (uintptr_t)frame;
	attr.test.data_size_in = o.len;
	attr.test.repeat = repeat;
	attr.test.flags = BPF_F_TEST_XDP_LIVE_FRAMES;
	attr.test.batch_size = o.burst;
	for (; !told_to_stop; calls++)
		if (bpf(BPF_PROG_TEST_RUN, &attr) < 0 && errno != EINTR)
			fail("run the program");
	printf("{\"calls\":%llu}\n", calls);
	return 0;
}
