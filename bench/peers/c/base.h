// What all the programs have in common: a stop on SIGTERM, and giving up.
#ifndef BENCH_BASE_H
#define BENCH_BASE_H

#include <arpa/inet.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t told_to_stop;

static void on_signal(int sig)
{
	(void)sig;
	told_to_stop = 1;
}

static void stop_on_signals(void)
{
	struct sigaction act = {.sa_handler = on_signal}; // no SA_RESTART: calls return EINTR

	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGINT, &act, NULL);
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

#endif
