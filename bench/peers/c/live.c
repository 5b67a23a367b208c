// live: a source for loads that a sender of packets one by one cannot offer. The
// kernel runs a program over and over (BPF_PROG_RUN with live frames, Linux 5.18)
// on pages that hold the frame, and sends those that it lets through without
// making an skb of them. The program paces itself: it sends a burst when that is
// due and lets go of the page, unsent, when not. One run lasts until SIGTERM.
//
// The peer of a veth takes such frames only if it has NAPI, which GRO or an XDP
// program give it.
#include <errno.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <stddef.h>
#include <sys/syscall.h>
#include "sender.h"

enum { BATCH = 64, LATE = 2000000 }; // the driver gets that many at once, at most; ns

// The value of the program's map.
struct state {
	uint64_t next;   // when the next burst is due, ns
	uint64_t credit; // frames of this burst still to go
};

static int bpf(int cmd, union bpf_attr *attr) { return (int)syscall(SYS_bpf, cmd, attr, sizeof *attr); }

static int make_map(void)
{
	union bpf_attr a = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = sizeof(struct state), .max_entries = 1};
	int fd = bpf(BPF_MAP_CREATE, &a);

	if (fd < 0)
		fail("create a BPF map");
	return fd;
}

#define INSN(c, d, s, o, i) {.code = (c), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (int32_t)(i)}
#define LOAD(d, s, o) INSN(BPF_LDX | BPF_MEM | BPF_DW, d, s, o, 0)
#define STORE(d, o, s) INSN(BPF_STX | BPF_MEM | BPF_DW, d, s, o, 0)
#define COPY(d, s) INSN(BPF_ALU64 | BPF_MOV | BPF_X, d, s, 0, 0)
#define SET(d, i) INSN(BPF_ALU64 | BPF_MOV | BPF_K, d, 0, 0, i)
#define ADD(d, i) INSN(BPF_ALU64 | BPF_ADD | BPF_K, d, 0, 0, i)
#define CALL(f) INSN(BPF_JMP | BPF_CALL, 0, 0, 0, f)
#define EXIT INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)

static int load_program(int map, unsigned ifindex, unsigned burst, unsigned period)
{
	enum { NEXT = offsetof(struct state, next), CREDIT = offsetof(struct state, credit) };
	const struct bpf_insn prog[] = {
		INSN(BPF_LD | BPF_IMM | BPF_DW, 6, BPF_PSEUDO_MAP_VALUE, 0, map), INSN(0, 0, 0, 0, 0),
		LOAD(1, 6, CREDIT),
		INSN(BPF_JMP | BPF_JNE | BPF_K, 1, 0, 10, 0), // to send
		CALL(BPF_FUNC_ktime_get_ns),
		LOAD(2, 6, NEXT),
		INSN(BPF_JMP | BPF_JLT | BPF_X, 0, 2, 13, 0), // to wait
		COPY(3, 0),
		INSN(BPF_ALU64 | BPF_SUB | BPF_X, 3, 2, 0, 0),
		INSN(BPF_JMP | BPF_JLE | BPF_K, 3, 0, 1, LATE),
		COPY(2, 0), // lost time is not made up for
		ADD(2, period),
		STORE(6, NEXT, 2),
		SET(1, burst),
		ADD(1, -1), // send:
		STORE(6, CREDIT, 1),
		SET(1, ifindex),
		SET(2, 0),
		CALL(BPF_FUNC_redirect),
		EXIT,
		SET(0, XDP_DROP), // wait:
		EXIT,
	};
	static char log[1 << 16];
	union bpf_attr a = {.prog_type = BPF_PROG_TYPE_XDP, .insns = (uintptr_t)prog, .insn_cnt = sizeof prog / sizeof *prog,
		.license = (uintptr_t)"Dual BSD/GPL", .log_buf = (uintptr_t)log, .log_size = sizeof log, .log_level = 1};
	int fd = bpf(BPF_PROG_LOAD, &a);

	if (fd < 0) {
		fputs(log, stderr);
		fail("load a BPF program");
	}
	return fd;
}

int main(int argc, char **argv)
{
	struct options o = parse_options(argc, argv, BATCH);
	uint8_t frame[FRAME_ROOM];
	uint64_t runs = 0;

	stop_on_signals();
	make_frame(frame, o.len, o.dst, 0);
	int prog = load_program(make_map(), if_nametoindex(o.ifname), o.burst, o.rate ? (unsigned)(o.burst * 1000000000ull / o.rate) : 0);
	for (; !told_to_stop; runs++) {
		union bpf_attr a = {.test = {.prog_fd = (uint32_t)prog, .data_in = (uintptr_t)frame, .data_size_in = o.len,
			.repeat = 1u << 31, .flags = BPF_F_TEST_XDP_LIVE_FRAMES, .batch_size = BATCH}};

		if (bpf(BPF_PROG_TEST_RUN, &a) && errno != EINTR)
			fail("run a BPF program on live frames");
	}
	printf("{\"runs\":%llu}\n", (unsigned long long)runs);
	return 0;
}
