// txring: the least that a program can do with a PACKET_TX_RING. It fills slots
// with the same frame and rings the doorbell, and is the limit that a generator
// over such a ring is measured against. -b is the number of frames a doorbell.
//
// -v puts a virtio-net header before each frame, whose hdr_len names the whole
// frame: the kernel then copies all of it into the packet's linear part instead
// of referring to the ring's pages, which is cheaper for small frames wherever
// the packet is going to be copied anyway.
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include "sender.h"

enum { SLOTS = 1024, BLOCK = 1 << 16 };

static int open_socket(const struct options *o)
{
	struct sockaddr_ll addr = {.sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex(o->ifname)};
	int fd = socket(AF_PACKET, SOCK_RAW, 0), version = TPACKET_V2, on = 1, sndbuf = 64 << 20;
	struct tpacket_req req = {.tp_block_size = BLOCK, .tp_block_nr = SLOTS * FRAME_ROOM / BLOCK,
		.tp_frame_size = FRAME_ROOM, .tp_frame_nr = SLOTS};

	if (fd < 0)
		fail("open a packet socket");
	if (o->vnet && setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on))
		fail("PACKET_VNET_HDR");
	if (setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version) ||
	    setsockopt(fd, SOL_PACKET, PACKET_LOSS, &on, sizeof on) ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &sndbuf, sizeof sndbuf) ||
	    setsockopt(fd, SOL_PACKET, PACKET_TX_RING, &req, sizeof req))
		fail("make a tx ring");
	if (bind(fd, (struct sockaddr *)&addr, sizeof addr))
		fail("bind a packet socket");
	return fd;
}

int main(int argc, char **argv)
{
	struct options o = parse_options(argc, argv, 64);
	struct pacer p = {.rate = o.rate, .start = clock_ns()};
	const size_t data = TPACKET2_HDRLEN - sizeof(struct sockaddr_ll);
	uint64_t sent = 0, calls = 0, errors = 0;
	unsigned at = 0;

	stop_on_signals();
	int fd = open_socket(&o);
	uint8_t *ring = mmap(NULL, (size_t)SLOTS * FRAME_ROOM, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (ring == MAP_FAILED)
		fail("map the tx ring");
	const unsigned before = o.vnet ? sizeof(struct virtio_net_hdr) : 0;
	const struct virtio_net_hdr whole = {.hdr_len = (uint16_t)o.len};
	for (unsigned i = 0; i < SLOTS; i++) {
		uint8_t *at_slot = ring + (size_t)i * FRAME_ROOM + data;

		memcpy(at_slot, &whole, before);
		make_frame(at_slot + before, o.len, o.dst, i % o.flows);
	}
	while (!told_to_stop) {
		unsigned n = 0;

		pace(&p, o.burst);
		for (; n < o.burst; n++, at = (at + 1) % SLOTS) {
			struct tpacket2_hdr *h = (void *)(ring + (size_t)at * FRAME_ROOM);

			if (__atomic_load_n(&h->tp_status, __ATOMIC_ACQUIRE) != TP_STATUS_AVAILABLE)
				break;
			h->tp_len = before + o.len;
			__atomic_store_n(&h->tp_status, TP_STATUS_SEND_REQUEST, __ATOMIC_RELEASE);
		}
		sent += n;
		calls++;
		if (send(fd, NULL, 0, MSG_DONTWAIT) < 0 && errno != EAGAIN && errno != ENOBUFS && errno != EINTR)
			errors++;
	}
	printf("{\"filled\":%llu,\"calls\":%llu,\"errors\":%llu}\n", (unsigned long long)sent, (unsigned long long)calls,
	       (unsigned long long)errors);
	return errors != 0;
}
