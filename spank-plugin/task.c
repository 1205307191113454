/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "task.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* --- Listening ports --------------------------------------------------------------------- */

/*
 * Read the kernel's tables of sockets. Binding the port instead would occupy it for a moment, and
 * rank 0 may bind with other options.
 */

enum { STATE_LISTEN = 0x0a };

/*
 * Search a table with a header line and "sl: address:port address:port state queues timer retr uid"
 * lines. Listening sockets come first, before what may be many connections.
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
 * Whether a TCP socket of this network namespace listens on [port]. Sets [uid] to its owner. Also
 * returns false if the tables cannot be read.
 */
static bool is_port_in_use(uint32_t port, uid_t *uid)
{
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
