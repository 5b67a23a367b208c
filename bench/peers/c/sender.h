// What the senders have in common: their command line, pacing, and the frame
// that they send.
#ifndef BENCH_SENDER_H
#define BENCH_SENDER_H

#include <time.h>
#include "base.h"

enum { FRAME_ROOM = 2048, FRAME_MIN = 60, FRAME_MAX = 1900 };

static uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

// Pacing: packet number k is due at start + k / rate. The loop spins, since the
// sender has a core of its own and a sleep would overshoot. A sender that falls
// more than 2 ms behind starts counting anew instead of making up for it.
struct pacer {
	uint64_t rate;  // packets a second, 0 for no pacing
	uint64_t start; // ns
	uint64_t count; // packets since start
};

static inline void pace(struct pacer *p, unsigned burst)
{
	if (!p->rate)
		return;
	uint64_t due = p->start + (uint64_t)((double)p->count * 1e9 / (double)p->rate);
	uint64_t now = clock_ns();

	if (now > due + 2000000u) {
		p->start = now;
		p->count = 0;
	}
	while (now < due && !told_to_stop)
		now = clock_ns();
	p->count += burst;
}

// The burst for a rate: one every 50 us, at most most.
static unsigned burst_for(uint64_t rate, unsigned most)
{
	uint64_t b = rate / 20000;

	if (!rate || b >= most)
		return most;
	return b ? (unsigned)b : 1;
}

static uint16_t ip_sum(const uint8_t *hdr)
{
	uint32_t sum = 0;

	for (int i = 0; i < 20; i += 2)
		sum += (uint32_t)(hdr[i] << 8 | hdr[i + 1]);
	sum = (sum >> 16) + (sum & 0xffff);
	sum += sum >> 16;
	return (uint16_t)~sum;
}

static void put16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

// UDP from 10.99.0.1 to 10.99.0.2, discard port, no UDP checksum; the flow
// number goes into the source port. len counts from the MAC address to the end
// of the payload, without FCS.
static void make_frame(uint8_t *f, unsigned len, const uint8_t dst[6], unsigned flow)
{
	static const uint8_t src[6] = {2, 0, 0, 0, 0, 1};
	static const uint8_t addrs[8] = {10, 99, 0, 1, 10, 99, 0, 2};
	uint8_t *ip = f + 14, *udp = ip + 20;

	memset(f, 0, len);
	memcpy(f, dst, 6);
	memcpy(f + 6, src, 6);
	put16(f + 12, 0x0800);
	ip[0] = 0x45;
	put16(ip + 2, len - 14);
	ip[8] = 64;
	ip[9] = 17;
	memcpy(ip + 12, addrs, 8);
	put16(ip + 10, ip_sum(ip));
	put16(udp, 1024 + flow);
	put16(udp + 2, 9);
	put16(udp + 4, len - 34);
}

static void parse_mac(const char *s, uint8_t mac[6])
{
	if (sscanf(s, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", mac, mac + 1, mac + 2, mac + 3, mac + 4, mac + 5) != 6) {
		fprintf(stderr, "%s: not a MAC address\n", s);
		exit(2);
	}
}

// Options of both senders.
struct options {
	const char *ifname;
	unsigned len, burst, flows;
	uint64_t rate;
	uint8_t dst[6];
	int vnet;
};

// -i IF [-l LEN] [-r PPS] [-b BURST] [-f FLOWS] [-d MAC] [-v]
static struct options parse_options(int argc, char **argv, unsigned burst)
{
	struct options o = {.len = 60, .burst = burst, .flows = 1, .dst = {2, 0, 0, 0, 0, 4}};
	int c;

	while ((c = getopt(argc, argv, "i:l:r:b:f:d:v")) != -1) {
		switch (c) {
		case 'i': o.ifname = optarg; break;
		case 'l': o.len = (unsigned)atoi(optarg); break;
		case 'r': o.rate = strtoull(optarg, NULL, 10); break;
		case 'b': o.burst = (unsigned)atoi(optarg); break;
		case 'f': o.flows = (unsigned)atoi(optarg); break;
		case 'd': parse_mac(optarg, o.dst); break;
		case 'v': o.vnet = 1; break;
		default: exit(2);
		}
	}
	if (!o.ifname || o.len < FRAME_MIN || o.len > FRAME_MAX || !o.burst || o.burst > 1024 || !o.flows || o.flows > 60000) {
		fprintf(stderr, "usage: %s -i IF [-l %d..%d] [-r PPS] [-b 1..1024] [-f FLOWS] [-d MAC] [-v]\n", argv[0], FRAME_MIN, FRAME_MAX);
		exit(2);
	}
	o.burst = burst_for(o.rate, o.burst);
	return o;
}

#endif
