/* SPDX-License-Identifier: Apache-2.0 */
/* task.c - functions of a task: check and claim the port, and print the plan */
#include "config.h"

#include "task.h"

#include <errno.h>
#include <netdb.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* --- Listening ports --------------------------------------------------------------------- */

/*
 * To find out whether a port is in use, read the kernel's tables of sockets. Trying to bind the
 * port would occupy it for a moment, and rank 0 may bind with other options.
 */

enum { STATE_LISTEN = 0x0a };

/*
 * Search a table with a header line and "sl: address:port address:port state queues timer retr uid"
 * lines. Listening sockets come first, so the search ends at the first connection.
 */
static bool find_in_table(const char *path, uint32_t port, uid_t *uid)
{
	FILE *file = fopen(path, "re");
	unsigned local, state = STATE_LISTEN, owner;
	bool found = false;
	char line[512];

	while (file && !found && state == STATE_LISTEN && fgets(line, sizeof(line), file)) {
		if (sscanf(line, " %*u: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %u",
			   &local, &state, &owner) != 3)
			continue;
		found = state == STATE_LISTEN && local == port;
		*uid = (uid_t)owner;
	}
	if (file)
		fclose(file);
	return found;
}

/*
 * Whether a TCP socket in this network namespace listens on [port]. If so, sets [uid] to its owner.
 * Returns false if the tables cannot be read.
 */
static bool is_listening(uint32_t port, uid_t *uid)
{
	return find_in_table("/proc/net/tcp", port, uid) ||
	       find_in_table("/proc/net/tcp6", port, uid);
}

/* Write to [at] the socket name that claims [port]. Returns the length of the address. */
static socklen_t name_claim(uint32_t port, struct sockaddr_un *at)
{
	*at = (struct sockaddr_un){.sun_family = AF_UNIX};
	/* The name of an abstract socket starts with a zero byte, and has none at its end. */
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)snprintf(at->sun_path + 1, sizeof(at->sun_path) - 1,
					    "slurm-ddp/%u", port));
}

/* Returns a descriptor, or -1 with errno; EADDRINUSE if [port] stays claimed for [limit_ms]. */
static int claim(uint32_t port, unsigned limit_ms)
{
	enum { POLL_MS = 20 };
	const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), error;
	struct sockaddr_un at;
	socklen_t length = name_claim(port, &at);
	uid_t uid;

	if (fd < 0)
		return -1;
	for (unsigned waited = 0;; waited += POLL_MS) {
		if (bind(fd, (const struct sockaddr *)&at, length) == 0)
			return fd;
		error = errno;
		if (error != EADDRINUSE || waited >= limit_ms || is_listening(port, &uid))
			break;
		nanosleep(&pause, NULL);
	}
	close(fd);
	errno = error;
	return -1;
}

bool ddp_task_port_in_use(uint32_t port)
{
	int fd = claim(port, 0);
	bool is_claimed = fd < 0 && errno == EADDRINUSE;
	uid_t uid;

	if (fd >= 0)
		close(fd);
	return is_claimed || is_listening(port, &uid);
}

/* Write why the port cannot be used: [reason] is a predicate such as "is in use". Returns -1. */
static int refuse_port(const struct ddp_endpoint *endpoint, const char *host, const char *reason,
		       struct ddp_message *message)
{
	return ddp_fail(message, "port %u of %s, where rank 0 runs, %s. %s", endpoint->number, host,
			reason,
			endpoint->port
				? "Unset MASTER_PORT, and a free port is chosen."
				: "Start the step again, or choose a port with --ddp-port=LO-HI.");
}

int ddp_task_claim_port(const struct ddp_endpoint *endpoint, const char *host, int *fd,
			struct ddp_message *message)
{
	enum { LIMIT_MS = 2000 };

	*fd = claim(endpoint->number, LIMIT_MS);
	if (*fd < 0 && errno == EADDRINUSE)
		return refuse_port(endpoint, host, "is used by another --ddp step", message);
	return 0;
}

bool ddp_task_has_claim(int fd, uint32_t port)
{
	struct sockaddr_un at, found;
	socklen_t length = name_claim(port, &at), size = sizeof(found);

	return getsockname(fd, (struct sockaddr *)&found, &size) == 0 && size == length &&
	       memcmp(&found, &at, length) == 0;
}

/* Returns the first port that a process without privileges may bind. */
static unsigned first_port(void)
{
	FILE *file = fopen("/proc/sys/net/ipv4/ip_unprivileged_port_start", "re");
	unsigned first = 1024;

	if (file) {
		if (fscanf(file, "%u", &first) != 1)
			first = 1024;
		fclose(file);
	}
	return first;
}

int ddp_task_check_port(const struct ddp_facts *facts, struct ddp_message *message)
{
	struct ddp_endpoint endpoint = ddp_endpoint_choose(facts->channel, facts->step_env);
	char reason[64];
	uid_t uid = 0;

	if (facts->task.rank != 0)
		return 0;
	if (geteuid() != 0 && endpoint.number < 1024 && endpoint.number < first_port())
		return ddp_fail(message, DDP_USAGE_ERROR "port %u is for root only. %s",
				endpoint.number,
				endpoint.port ? "Unset MASTER_PORT, and a free port is chosen."
					      : "Choose other ports with --ddp-port=LO-HI.");
	if (!is_listening(endpoint.number, &uid))
		return 0;
	snprintf(reason, sizeof(reason), "is in use by a process of user %u", uid);
	return refuse_port(&endpoint, facts->host, reason, message);
}

/* --- The plan ---------------------------------------------------------------------------- */

static bool prints_note(const struct ddp_task *id, enum ddp_speaker speaker)
{
	return speaker == DDP_SPEAKER_STEP ? id->rank == 0 : id->local_rank == 0;
}

/*
 * Whether variable [name] authenticates peers. Its value must not be printed, since other users can
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

/*
 * If the user's MASTER_ADDR does not resolve on this node, print this. Called only with
 * --ddp-verbose, since a resolver may need many seconds.
 */
static void say_unresolved(const struct ddp_facts *facts, void (*say)(const char *format, ...))
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	const char *address = ddp_endpoint_choose(facts->channel, facts->step_env).address;
	struct addrinfo *found = NULL;
	int error = address ? getaddrinfo(address, NULL, &hints, &found) : 0;

	if (error != 0)
		say("MASTER_ADDR=%.100s of your environment does not resolve on %s (%s). Unset "
		    "MASTER_ADDR, and the address of rank 0's node is set.",
		    address, facts->host,
		    error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
	if (found)
		freeaddrinfo(found);
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
	if (id->local_rank == 0)
		say_unresolved(facts, say);
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
