// vnetfwd IF IF: a bridge of two packet sockets, recv and send, one frame a
// call. It passes the virtio-net header on, so super-frames and unfinished
// checksums get across, and shows what that alone is worth for TCP.
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>
#include "base.h"

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

enum { TURN = 64 }; // frames taken from one side before the other has its turn

static void option(int fd, int level, int name, int value, const char *what)
{
	if (setsockopt(fd, level, name, &value, sizeof value))
		fail(what);
}

static int join(const char *ifname)
{
	int fd = socket(AF_PACKET, SOCK_RAW, 0);
	struct sockaddr_ll addr = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)if_nametoindex(ifname)};
	struct packet_mreq promisc = {.mr_ifindex = addr.sll_ifindex, .mr_type = PACKET_MR_PROMISC};

	if (fd < 0)
		fail("open a packet socket");
	option(fd, SOL_PACKET, PACKET_VNET_HDR, 1, "PACKET_VNET_HDR");
	option(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1, "PACKET_IGNORE_OUTGOING");
	option(fd, SOL_SOCKET, SO_RCVBUFFORCE, 32 << 20, "enlarge the receive buffer");
	option(fd, SOL_SOCKET, SO_SNDBUFFORCE, 32 << 20, "enlarge the send buffer");
	if (setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promisc, sizeof promisc))
		fail("promiscuous mode");
	if (bind(fd, (struct sockaddr *)&addr, sizeof addr))
		fail(ifname);
	return fd;
}

// Returns whether anything arrived.
static int turn(int from, int to, uint64_t *sent, uint64_t *lost)
{
	static uint8_t buf[1 << 17];
	int n = 0;

	while (n < TURN) {
		ssize_t len = recv(from, buf, sizeof buf, MSG_DONTWAIT);

		if (len <= 0)
			break;
		if (send(to, buf, (size_t)len, 0) == len)
			++*sent;
		else
			++*lost;
		n++;
	}
	return n != 0;
}

int main(int argc, char **argv)
{
	uint64_t sent = 0, lost = 0;

	if (argc != 3) {
		fprintf(stderr, "usage: vnetfwd IF IF\n");
		return 2;
	}
	stop_on_signals();
	struct pollfd side[2] = {{.fd = join(argv[1]), .events = POLLIN}, {.fd = join(argv[2]), .events = POLLIN}};
	while (!told_to_stop) {
		int busy = turn(side[0].fd, side[1].fd, &sent, &lost);

		busy |= turn(side[1].fd, side[0].fd, &sent, &lost);
		if (!busy)
			poll(side, 2, -1);
	}
	printf("{\"sent\":%llu,\"lost\":%llu}\n", (unsigned long long)sent, (unsigned long long)lost);
	return 0;
}
