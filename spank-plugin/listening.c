/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "listening.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { STATE_LISTEN = 0x0a };

/* One table has a header line, then "sl: address:port address:port state queues timer retr uid". */
static bool look(const char *path, uint32_t port, uid_t *uid)
{
	FILE *file = fopen(path, "re");
	char line[512];
	bool found = false;

	if (!file)
		return false;
	while (!found && fgets(line, sizeof(line), file)) {
		unsigned local, state, owner;

		if (sscanf(line, " %*u: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %u",
			   &local, &state, &owner) != 3)
			continue;
		if (state == STATE_LISTEN && local == port) {
			*uid = (uid_t)owner;
			found = true;
		}
	}
	fclose(file);
	return found;
}

/* One question to the kernel: who listens at [port]? */
static int ask(int fd, int family, uint32_t port)
{
	struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 body;
	} question = {
		.head = {.nlmsg_len = sizeof(question),
			 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
		.body = {.sdiag_family = (uint8_t)family,
			 .sdiag_protocol = IPPROTO_TCP,
			 .idiag_states = 1U << STATE_LISTEN,
			 .id.idiag_sport = htons((uint16_t)port)},
	};

	return send(fd, &question, sizeof(question), 0) == (ssize_t)sizeof(question) ? 0 : -1;
}

/* Returns 1 and the owner, 0 if nobody listens, -1 if the kernel does not say. */
static int hear(int fd, uint32_t port, uid_t *uid)
{
	union {
		struct nlmsghdr head;
		char bytes[8192];
	} answer;
	int found = 0;

	for (;;) {
		ssize_t n = recv(fd, &answer, sizeof(answer), 0);
		const struct nlmsghdr *h = &answer.head;

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		for (unsigned left = (unsigned)n; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
			const struct inet_diag_msg *m = NLMSG_DATA(h);

			if (h->nlmsg_type == NLMSG_DONE)
				return found;
			if (h->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
			    h->nlmsg_len < NLMSG_LENGTH(sizeof(*m)))
				return -1;
			if (ntohs(m->id.idiag_sport) == port) {
				*uid = m->idiag_uid;
				found = 1;
			}
		}
	}
}

static int look_by_netlink(uint32_t port, uid_t *uid)
{
	static const int families[] = {AF_INET, AF_INET6};
	const struct timeval limit = {.tv_sec = 1};
	int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	int rv = fd < 0 ? -1 : 0;

	if (rv == 0)
		(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	for (size_t i = 0; rv == 0 && i < 2; i++)
		rv = ask(fd, families[i], port) < 0 ? -1 : hear(fd, port, uid);
	if (fd >= 0)
		close(fd);
	return rv;
}

bool ddp_port_listening(uint32_t port, uid_t *uid)
{
	/* /proc/net/tcp takes milliseconds: it walks through all connections. */
	int rv = look_by_netlink(port, uid);

	if (rv >= 0)
		return rv > 0;
	return look("/proc/net/tcp", port, uid) || look("/proc/net/tcp6", port, uid);
}
