/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "task.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>
#include <unistd.h>

/* --- Listening ports --------------------------------------------------------------------- */

/*
 * Ask the kernel for listening sockets over netlink. Binding the port instead would occupy it for a
 * moment, and rank 0 may bind with other options. /proc/net/tcp lists every connection, and reading
 * it takes milliseconds.
 */

enum { STATE_LISTEN = 0x0a };

/*
 * Search a table with a header line and "sl: address:port address:port state queues timer retr uid"
 * lines.
 */
static bool find_in_table(const char *path, uint32_t port, uid_t *uid)
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

static int send_query(int fd, int family, uint32_t port)
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

/* Returns 1 with the owner, 0 if no process listens, -1 if the kernel does not answer. */
static int receive_answer(int fd, uint32_t port, uid_t *uid)
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

static int find_by_netlink(uint32_t port, uid_t *uid)
{
	static const int families[] = {AF_INET, AF_INET6};
	const struct timeval limit = {.tv_sec = 1};
	int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	int rv = fd < 0 ? -1 : 0;

	if (rv == 0)
		(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	for (size_t i = 0; rv == 0 && i < 2; i++)
		rv = send_query(fd, families[i], port) < 0 ? -1 : receive_answer(fd, port, uid);
	if (fd >= 0)
		close(fd);
	return rv;
}

/*
 * Whether a TCP socket of this network namespace listens on [port]. Sets [uid] to its owner.
 * Also returns false if the kernel does not answer.
 */
static bool is_port_in_use(uint32_t port, uid_t *uid)
{
	int rv = find_by_netlink(port, uid);

	if (rv >= 0)
		return rv > 0;
	return find_in_table("/proc/net/tcp", port, uid) ||
	       find_in_table("/proc/net/tcp6", port, uid);
}

bool ddp_task_port_in_use(uint32_t port)
{
	uid_t uid;

	return is_port_in_use(port, &uid);
}

int ddp_task_check_port(const struct ddp_facts *facts, const struct ddp_plan *plan,
			struct ddp_message *message)
{
	const struct ddp_change *address = ddp_plan_find(plan, DDP_NAME(MASTER_ADDR));
	const struct ddp_change *port = ddp_plan_find(plan, DDP_NAME(MASTER_PORT));
	bool users = port && port->action == DDP_ACTION_KEEP;
	uint64_t number;
	uid_t uid = 0;

	if (facts->task.rank != 0 || !port || !port->value ||
	    (address && address->action == DDP_ACTION_KEEP))
		return 0;
	if (ddp_parse_number(port->value, 1, 65535, &number) < 0)
		return ddp_fail(message, "MASTER_PORT=%.100s is not a port", port->value);
	if (!is_port_in_use((uint32_t)number, &uid))
		return 0;
	return ddp_fail(message,
			"port %s of %s, where rank 0 runs, is taken by a process of user %u; %s",
			port->value, facts->host, uid,
			users ? "unset MASTER_PORT and a free one is chosen"
			      : "start the step again, or choose another with --ddp-port=LO-HI");
}

/* --- The plan ---------------------------------------------------------------------------- */

static bool prints_note(const struct ddp_task *id, enum ddp_speaker speaker)
{
	return speaker == DDP_SPEAKER_STEP ? id->rank == 0 : id->local_rank == 0;
}

/*
 * Whether variable [name] authenticates a peer. Its value is not printed, since other users can
 * often read the output.
 */
static bool is_secret(const char *name)
{
	return strcmp(name, DDP_NAME(NCCL_SOCKET_MAGIC)) == 0 ||
	       strcmp(name, DDP_NAME(DDP_OURS)) == 0;
}

static const char *value_in(const struct ddp_plan *plan, const char *name)
{
	const struct ddp_change *change = ddp_plan_find(plan, name);

	return change && change->value ? change->value : "-";
}

void ddp_task_say_plan(const struct ddp_facts *facts, const struct ddp_plan *plan,
		       void (*say)(const char *format, ...))
{
	static const char *const verbs[] = {"set", "unset", "kept"};
	const struct ddp_task *id = &facts->task;

	for (size_t i = 0; i < plan->n_notes; i++)
		if (prints_note(id, plan->notes[i].speaker))
			say("%s", plan->notes[i].text);
	if (!facts->channel->verbose)
		return;
	if (id->rank != 0) {
		say("rank %u of %u on %s: local %u of %u, LOCAL_RANK=%s, device %s, share %s",
		    id->rank, id->size, facts->host, id->local_rank, id->local_size,
		    value_in(plan, DDP_NAME(LOCAL_RANK)), value_in(plan, DDP_NAME(DDP_DEVICE)),
		    value_in(plan, DDP_NAME(DDP_SHARE)));
		return;
	}
	for (size_t i = 0; i < plan->n_changes; i++) {
		const struct ddp_change *c = &plan->changes[i];
		bool shown = c->value && !(c->action == DDP_ACTION_SET && is_secret(c->name));

		say("rank 0 on %s: %s %s%s%s (%s)", facts->host, verbs[c->action], c->name,
		    shown ? "=" : "", shown ? c->value : "", c->why);
	}
}

uint32_t ddp_task_cpus(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 0;
}
