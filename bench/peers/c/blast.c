// blast: the source of the benchmarks. An AF_XDP socket in copy mode sends one
// kind of frame, at full speed or at a given rate, until SIGTERM; then it prints
// how many the kernel took. Plain system calls, so nothing needs installing.
//
// Two traps are taken care of. The kernel charges each frame under way to the
// socket's send buffer, and with the default size some 280 of them throttle the
// sender silently: hence SO_SNDBUFFORCE. And a queue stays bound for a moment
// after its last owner has ended: hence the patience with EBUSY.
#include <errno.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include "sender.h"

enum { SLOTS = 2048 };

struct shared_ring {
	uint32_t *producer, *consumer;
	void *entries;
};

struct xsk {
	int fd;
	uint8_t *frames;
	struct shared_ring tx, done;
};

static void set(int fd, int name, const void *value, socklen_t size, const char *what)
{
	if (setsockopt(fd, SOL_XDP, name, value, size))
		fail(what);
}

static struct shared_ring map_ring(int fd, const struct xdp_ring_offset *at, size_t entry, off_t page)
{
	uint8_t *m = mmap(NULL, at->desc + SLOTS * entry, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, page);

	if (m == MAP_FAILED)
		fail("map an AF_XDP ring");
	return (struct shared_ring){(uint32_t *)(m + at->producer), (uint32_t *)(m + at->consumer), m + at->desc};
}

static void bind_queue(int fd, unsigned ifindex)
{
	struct sockaddr_xdp addr = {.sxdp_family = AF_XDP, .sxdp_ifindex = ifindex, .sxdp_flags = XDP_COPY};

	for (int tries = 0; bind(fd, (struct sockaddr *)&addr, sizeof addr); tries++) {
		if (errno != EBUSY || tries == 500 || told_to_stop)
			fail("bind an AF_XDP socket");
		usleep(10000);
	}
}

static struct xsk open_xsk(const struct options *o)
{
	struct xsk x = {.fd = socket(AF_XDP, SOCK_RAW, 0)};
	int slots = SLOTS, sndbuf = 64 << 20;
	size_t area = (size_t)SLOTS * FRAME_ROOM;
	struct xdp_mmap_offsets at;
	socklen_t size = sizeof at;

	if (x.fd < 0)
		fail("open an AF_XDP socket");
	if (setsockopt(x.fd, SOL_SOCKET, SO_SNDBUFFORCE, &sndbuf, sizeof sndbuf))
		fail("enlarge the send buffer");
	x.frames = mmap(NULL, area, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (x.frames == MAP_FAILED)
		fail("allocate frames");
	struct xdp_umem_reg reg = {.addr = (uintptr_t)x.frames, .len = area, .chunk_size = FRAME_ROOM};
	set(x.fd, XDP_UMEM_REG, &reg, sizeof reg, "register the frames");
	set(x.fd, XDP_UMEM_FILL_RING, &slots, sizeof slots, "size the fill ring");
	set(x.fd, XDP_UMEM_COMPLETION_RING, &slots, sizeof slots, "size the completion ring");
	set(x.fd, XDP_TX_RING, &slots, sizeof slots, "size the tx ring");
	if (getsockopt(x.fd, SOL_XDP, XDP_MMAP_OFFSETS, &at, &size))
		fail("ask for the ring layout");
	x.tx = map_ring(x.fd, &at.tx, sizeof(struct xdp_desc), XDP_PGOFF_TX_RING);
	x.done = map_ring(x.fd, &at.cr, sizeof(uint64_t), XDP_UMEM_PGOFF_COMPLETION_RING);
	for (unsigned i = 0; i < SLOTS; i++)
		make_frame(x.frames + (size_t)i * FRAME_ROOM, o->len, o->dst, i % o->flows);
	bind_queue(x.fd, if_nametoindex(o->ifname));
	return x;
}

int main(int argc, char **argv)
{
	struct options o = parse_options(argc, argv, 64);
	struct pacer p = {.rate = o.rate, .start = clock_ns()};
	uint64_t calls = 0, errors = 0;
	uint32_t put = 0, freed = 0;

	stop_on_signals();
	struct xsk x = open_xsk(&o);
	struct xdp_desc *desc = x.tx.entries;
	while (!told_to_stop) {
		// Frame k always sits in slot k: completions come in order, so
		// what they name need not be read.
		freed = __atomic_load_n(x.done.producer, __ATOMIC_ACQUIRE);
		__atomic_store_n(x.done.consumer, freed, __ATOMIC_RELEASE);
		unsigned room = SLOTS - (put - freed), n = room < o.burst ? room : o.burst;

		pace(&p, n);
		for (unsigned i = 0; i < n; i++, put++)
			desc[put % SLOTS] = (struct xdp_desc){.addr = (uint64_t)(put % SLOTS) * FRAME_ROOM, .len = o.len};
		__atomic_store_n(x.tx.producer, put, __ATOMIC_RELEASE);
		calls++;
		if (sendto(x.fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 && errno != EAGAIN && errno != ENOBUFS && errno != EBUSY && errno != EINTR)
			errors++;
	}
	printf("{\"calls\":%llu,\"errors\":%llu,\"left\":%u}\n", (unsigned long long)calls, (unsigned long long)errors,
	       put - __atomic_load_n(x.tx.consumer, __ATOMIC_ACQUIRE));
	return errors != 0;
}
