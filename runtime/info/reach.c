/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "reach.h"

enum { CONNECT_MS = 3000 };

/* A socket that listens on the endpoint, or -1: the port is in use or not ours to test. */
static int listen_at(const struct addrinfo *address)
{
	int one = 1;
	int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, 64) == 0)
		return fd;
	close(fd);
	return -1;
}

/* Returns 0, or an errno. */
static int connect_to(const struct addrinfo *address)
{
	int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct pollfd poller = {.fd = fd, .events = POLLOUT};
	socklen_t size = sizeof(int);
	int number = 0;

	if (fd < 0)
		return errno;
	if (connect(fd, address->ai_addr, address->ai_addrlen) < 0)
		number = errno;
	if (number == EINPROGRESS) {
		number = ETIMEDOUT;
		if (poll(&poller, 1, CONNECT_MS) == 1)
			getsockopt(fd, SOL_SOCKET, SO_ERROR, &number, &size);
	}
	close(fd);
	return number;
}

/* The addresses of MASTER_ADDR, or NULL with the reason in card->why_not. */
static struct addrinfo *resolve(struct info_card *card)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *list = NULL;
	int status = getaddrinfo(getenv("MASTER_ADDR"), getenv("MASTER_PORT"), &hints, &list);

	if (status != 0)
		snprintf(card->why_not, sizeof(card->why_not), "%s", gai_strerror(status));
	return status == 0 ? list : NULL;
}

static void try_connect(struct info_card *card)
{
	struct addrinfo *list = resolve(card);
	int number = EADDRNOTAVAIL;

	card->reached = 0;
	if (!list)
		return;
	for (const struct addrinfo *at = list; at && number != 0; at = at->ai_next)
		number = connect_to(at);
	freeaddrinfo(list);
	card->reached = number == 0;
	if (number != 0)
		snprintf(card->why_not, sizeof(card->why_not), "%s", strerror(number));
}

static int open_listener(struct info_card *card)
{
	struct addrinfo *list = resolve(card);
	int fd = -1;

	for (const struct addrinfo *at = list; at && fd < 0; at = at->ai_next)
		fd = listen_at(at);
	if (list)
		freeaddrinfo(list);
	return fd;
}

int info_reach(struct ddp *ddp, struct info_card *card)
{
	int32_t listening = 0;
	int fd = -1;
	int status;

	if (ddp_world(ddp)->rank == 0 && card->endpoint[0]) {
		fd = open_listener(card);
		listening = fd >= 0;
	}
	status = ddp_broadcast(ddp, &listening, sizeof(listening), 0);
	if (status == 0 && listening && card->node_rank != 0 && card->local_rank == 0 &&
	    card->endpoint[0])
		try_connect(card);
	if (status == 0)
		status = ddp_barrier(ddp);
	if (fd >= 0)
		close(fd);
	return status;
}
