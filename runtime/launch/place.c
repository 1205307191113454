/* SPDX-License-Identifier: Apache-2.0 */
/* place.c - read the task, the step and rank 0's address from Slurm's variables */
#include "config.h"

#include "place.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "endpoint.h"
#include "nodelist.h"

/* Higher step numbers are reserved for batch scripts, interactive shells and the like. */
#define LAST_ORDINARY_STEP 0xfffffff0u

static bool read_number(char *const *env, const char *name, uint64_t most, uint64_t *number)
{
	return ddp_parse_number(ddp_env_filled(env, name), 0, most, number) == 0;
}

/* Returns the value of the variable "[name]_HET_GROUP_[group]". */
static const char *of_group(char *const *env, const char *name, unsigned group)
{
	char full[64];

	snprintf(full, sizeof(full), "%s_HET_GROUP_%u", name, group);
	return ddp_env_filled(env, full);
}

enum place place_find(char *const *env, struct ddp_message *message)
{
	const char *job = ddp_env_filled(env, "SLURM_JOB_ID");
	const char *tasks = ddp_env_filled(env, "SLURM_NTASKS");
	uint64_t step = UINT32_MAX;

	if (job && ddp_env_filled(env, "SLURM_PROCID")) {
		/* In a batch script SLURM_STEP_ID is unset or, since Slurm 26.05, negative. */
		if (read_number(env, "SLURM_STEP_ID", UINT32_MAX, &step) &&
		    step <= LAST_ORDINARY_STEP && place_job(env))
			return PLACE_TASK;
		if (step <= LAST_ORDINARY_STEP)
			ddp_fail(message,
				 "ddp-exec cannot be used in a heterogeneous step, which has "
				 "several components. Start the program in one component, "
				 "with --het-group=N.");
		else
			ddp_fail(message,
				 "this is the script or shell of job %s, not a task. Write srun "
				 "ddp-exec, with srun's options before ddp-exec.",
				 job);
		return PLACE_WRONG;
	}
	if (tasks && strcmp(tasks, "1") != 0) {
		ddp_fail(message,
			 "SLURM_NTASKS is %.32s, but srun did not start this process, so it would "
			 "be a single rank. Write srun ddp-exec, or unset SLURM_NTASKS.",
			 tasks);
		return PLACE_WRONG;
	}
	return PLACE_ALONE;
}

/* --- The step ------------------------------------------------------------------------------ */

bool place_is_set_up(char *const *env)
{
	const char *name = ddp_env_filled(env, DDP_NAME(DDP_JOB));
	const char *step = ddp_env_filled(env, "SLURM_STEP_ID");
	const char *rank = ddp_env_filled(env, DDP_NAME(DDP_RANK));
	const char *id = ddp_env_filled(env, "SLURM_PROCID");
	char end[32];
	int n = snprintf(end, sizeof(end), ".%u.%.10s", place_job(env), step ? step : "");

	return name && strlen(name) > (size_t)n && strcmp(name + strlen(name) - n, end) == 0 &&
	       rank && id && strcmp(rank, id) == 0;
}

/*
 * Parse a list such as "0,1,4" into [ranks], which has space for [capacity] ranks. Returns the
 * number of ranks, or 0 if [list] has another form.
 */
static uint32_t read_ranks(const char *list, uint32_t *ranks, size_t capacity)
{
	uint32_t count = 0;

	for (;; list++) {
		size_t digits = strspn(list, "0123456789");
		uint64_t number;

		if (count == capacity ||
		    ddp_parse_number_n(list, digits, 0, UINT32_MAX, &number) < 0)
			return 0;
		ranks[count++] = (uint32_t)number;
		list += digits;
		if (*list != ',')
			return *list ? 0 : count;
	}
}

int place_read_task(char *const *env, struct ddp_task *task, uint32_t **ranks,
		    struct ddp_message *message)
{
	const char *list = ddp_env_filled(env, "SLURM_GTIDS");
	size_t capacity = list ? strlen(list) / 2 + 1 : 0;
	uint32_t count;
	bool found = false, valid = true;

	*ranks = calloc(capacity + 1, sizeof(**ranks));
	if (!*ranks)
		return ddp_fail(message, "out of memory");
	count = list ? read_ranks(list, *ranks, capacity) : 0;
	if (count == 0)
		return ddp_fail(message,
				"SLURM_GTIDS%s%.200s is not the list of this node's ranks, which "
				"srun sets. Do not change this variable.",
				list ? "=" : "", list ? list : "");
	if (ddp_task_read(env, count, 0, task, message) < 0)
		return -1;
	for (uint32_t i = 0; i < count; i++) {
		found |= (*ranks)[i] == task->rank;
		valid &= (*ranks)[i] < task->size;
	}
	if (!found || !valid)
		return ddp_fail(message,
				"SLURM_GTIDS=%.200s contradicts SLURM_PROCID=%u of %u, so the "
				"variables belong to two steps. Start ddp-exec with srun.",
				list, task->rank, task->size);
	return 0;
}

/* Whether [list] contains each node of [nodes]. */
static bool list_has(const char *list, const char *nodes)
{
	struct ddp_nodelist wanted, given;
	char name[DDP_NODE_SIZE], other[DDP_NODE_SIZE];
	bool found = true;

	ddp_nodelist_begin(&wanted, nodes);
	while (found && ddp_nodelist_next(&wanted, name, sizeof(name)) == 0) {
		found = false;
		ddp_nodelist_begin(&given, list);
		while (!found && ddp_nodelist_next(&given, other, sizeof(other)) == 0)
			found = strcmp(other, name) == 0;
	}
	return found;
}

uint32_t place_job(char *const *env)
{
	const char *job = ddp_env_filled(env, "SLURM_JOB_ID"), *id, *list;
	const char *nodes = ddp_env_filled(env, "SLURM_STEP_NODELIST");
	uint64_t components, number = 0;

	/*
	 * No node belongs to two components of a job, so the nodes of the step show its component.
	 */
	if (read_number(env, "SLURM_HET_SIZE", UINT32_MAX, &components) && components > 1)
		for (unsigned i = 0; i < components; i++) {
			id = of_group(env, "SLURM_JOB_ID", i);
			list = of_group(env, "SLURM_JOB_NODELIST", i);
			job = id && list && nodes && list_has(list, nodes) ? id : NULL;
			if (job)
				break;
		}
	(void)ddp_parse_number(job, 0, UINT32_MAX, &number);
	return (uint32_t)number;
}

/* --- Rank 0 -------------------------------------------------------------------------------- */

int place_first_node(char *const *env, const struct ddp_task *task, char *node, size_t size,
		     struct ddp_message *message)
{
	const char *list = ddp_env_filled(env, "SLURM_STEP_NODELIST");
	const char *own = ddp_env_filled(env, "SLURMD_NODENAME");
	const char *distribution = ddp_env_filled(env, "SLURM_DISTRIBUTION");
	const char *pattern = ddp_env_filled(env, "SLURM_TOPOLOGY_ADDR_PATTERN");
	char at[DDP_NODE_SIZE];
	bool is_first = task->node_id == 0 && task->local_rank == 0;

	/*
	 * The list of nodes does not show on which node rank 0 is, if Slurm places tasks by the
	 * network topology (since Slurm 26.05).
	 */
	if (!list || !own || ddp_env_filled(env, "SLURM_HOSTFILE") ||
	    (distribution && strncmp(distribution, "arbitrary", strlen("arbitrary")) == 0) ||
	    (pattern && strcmp(pattern, "node") != 0) ||
	    (task->nodes > 1 && !ddp_nodelist_is_plain(list)) ||
	    ddp_nodelist_count(list) != (long)task->nodes ||
	    ddp_nodelist_nth(list, task->node_id, at, sizeof(at)) < 0 || strcmp(at, own) != 0 ||
	    is_first != (task->rank == 0) || ddp_nodelist_nth(list, 0, node, size) < 0)
		return ddp_fail(
			message,
			"the node of rank 0 is unknown, because the tasks may be placed in "
			"another order than the nodes in SLURM_STEP_NODELIST=%.200s. Give a "
			"directory that all nodes share with --ddp-rdzv=DIR, or set MASTER_ADDR.",
			list ? list : "");
	return 0;
}

bool place_resolves(const char *name)
{
	const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	struct addrinfo *found = NULL;

	if (getaddrinfo(name, NULL, &hints, &found) != 0)
		return false;
	freeaddrinfo(found);
	return true;
}

/* Find the first address of an interface that is up and not a loopback. */
static int numeric_address(char *address, size_t size)
{
	struct ifaddrs *list = NULL;
	int rv = -1;

	if (getifaddrs(&list) < 0)
		return -1;
	for (const struct ifaddrs *at = list; at && rv < 0; at = at->ifa_next) {
		char text[INET_ADDRSTRLEN];

		if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET ||
		    !(at->ifa_flags & IFF_UP) || (at->ifa_flags & IFF_LOOPBACK))
			continue;
		if (inet_ntop(AF_INET,
			      &((const struct sockaddr_in *)(const void *)at->ifa_addr)->sin_addr,
			      text, sizeof(text)))
			rv = ddp_format(address, size, "%s", text);
	}
	freeifaddrs(list);
	return rv;
}

int place_own_address(const char *node, const char *suffix, char *address, size_t size,
		      struct ddp_message *message)
{
	char host[DDP_NAME_SIZE] = "";

	if (*suffix || place_resolves(node))
		return ddp_address_choose(node, "", suffix, address, size) < 0
			       ? ddp_fail(message, "the address of %.200s is too long", node)
			       : 0;
	if (gethostname(host, sizeof(host) - 1) == 0 && place_resolves(host))
		return ddp_format(address, size, "%s", host);
	if (numeric_address(address, size) == 0)
		return 0;
	return ddp_fail(
		message,
		"neither %.200s nor the host's name %.200s resolves, and no interface has an "
		"address. Set MASTER_ADDR to an address of rank 0's node.",
		node, host);
}
