/* SPDX-License-Identifier: Apache-2.0 */
/* endpoint.c - choose and check the address and the port of rank 0 */
#include "config.h"

#include "endpoint.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "contract.h"
#include "nodelist.h"

enum { PORT_MAX = 65535 };

int ddp_ports_parse(const char *text, const char *what, struct ddp_port_range *range,
		    struct ddp_message *message)
{
	const char *dash = strchr(text, '-');
	size_t n = dash ? (size_t)(dash - text) : strlen(text);
	uint64_t lo, hi;

	if (ddp_parse_number_n(text, n, 1, PORT_MAX, &lo) < 0)
		goto wrong;
	hi = lo;
	if (dash && ddp_parse_number(dash + 1, lo, PORT_MAX, &hi) < 0)
		goto wrong;
	range->lo = (uint32_t)lo;
	range->hi = (uint32_t)hi;
	return 0;
wrong:
	return ddp_fail(message,
			"%s=%.100s is not a port or a range of ports. Write P or LO-HI, with "
			"numbers from 1 to %d.",
			what, text, PORT_MAX);
}

size_t ddp_ports_reserved(const char *list, uint32_t *ports, size_t n)
{
	size_t found = 0;

	while (found < n) {
		size_t length = strcspn(list, ","), first = strcspn(list, ",-");
		uint64_t lo, hi;

		if (ddp_parse_number_n(list, first, 1, PORT_MAX, &lo) < 0)
			return 0;
		hi = lo;
		if (first < length &&
		    ddp_parse_number_n(list + first + 1, length - first - 1, lo, PORT_MAX, &hi) < 0)
			return 0;
		for (; lo <= hi && found < n; lo++)
			ports[found++] = (uint32_t)lo;
		if (list[length] == '\0')
			break;
		list += length + 1;
	}
	return found;
}

/* This is FNV-1a with a finalizer, so that the ports of successive job ids are far apart. */
uint64_t ddp_job_hash(const char *cluster, uint32_t job, uint32_t attempt)
{
	char text[512];
	uint64_t h = 0xcbf29ce484222325;

	snprintf(text, sizeof(text), "%u.%u.%s", job, attempt, cluster);
	for (const unsigned char *p = (const unsigned char *)text; *p; p++)
		h = (h ^ *p) * 0x100000001b3;
	h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9;
	h = (h ^ (h >> 27)) * 0x94d049bb133111eb;
	return h ^ (h >> 31);
}

/* Count the pairs of an even port and the next port that are both in [range]. */
static uint32_t count_pairs(struct ddp_port_range range)
{
	uint32_t lo = range.lo + (range.lo & 1);

	return range.hi > lo ? (range.hi - lo + 1) / 2 : 0;
}

uint32_t ddp_port_compute(struct ddp_port_range range, struct ddp_port_range ephemeral,
			  uint64_t index)
{
	struct ddp_port_range below = range, above = range;
	uint32_t n_below, n_above, k;

	if (below.hi >= ephemeral.lo)
		below.hi = ephemeral.lo ? ephemeral.lo - 1 : 0;
	if (above.lo <= ephemeral.hi)
		above.lo = ephemeral.hi + 1;
	if (range.hi < ephemeral.lo)
		above.hi = 0; /* the whole range is in [below] */
	n_below = below.hi >= below.lo ? count_pairs(below) : 0;
	n_above = above.hi >= above.lo ? count_pairs(above) : 0;
	if (n_below + n_above == 0) {
		below = range;
		n_below = count_pairs(range);
	}
	if (n_below + n_above == 0)
		return range.lo;
	k = (uint32_t)(index % (n_below + n_above));
	if (k < n_below)
		return below.lo + (below.lo & 1) + 2 * k;
	return above.lo + (above.lo & 1) + 2 * (k - n_below);
}

int ddp_address_choose(const char *name, const char *addr, const char *suffix, char *buf,
		       size_t size)
{
	if (suffix && *suffix)
		return ddp_format(buf, size, "%s%s", name, suffix);
	return ddp_format(buf, size, "%s", addr && *addr ? addr : name);
}

int ddp_suffix_check(const char *suffix, const char *what, struct ddp_message *message)
{
	if (*suffix == '\0')
		return ddp_fail(
			message,
			"%s is empty. Set it to the text that follows the node's name, such as "
			"-ib.",
			what);
	if (strlen(suffix) > 64)
		return ddp_fail(message, "%s is longer than 64 characters", what);
	for (const char *p = suffix; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr(".-_", *p))
			return ddp_fail(
				message,
				"%s=%s has a character that no host name has. Use only letters, "
				"digits, '.', '-' and '_'.",
				what, suffix);
	return 0;
}

/* Whether [address] means the local host on every host, such as "localhost" or "0.0.0.0". */
static bool is_loopback(const char *address)
{
	static const char *const prefixes[] = {"localhost", "ip6-localhost", "127.", "::ffff:127."};
	static const char *const numbers[] = {"::1", "[::1]", "::", "[::]", "0.0.0.0"};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (strncasecmp(address, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (strcmp(address, numbers[i]) == 0)
			return true;
	return false;
}

bool ddp_address_is_node(const char *address, const char *node)
{
	size_t n = strcspn(address, "."), m = strcspn(node, ".");

	if (strcasecmp(address, node) == 0)
		return true;
	/* A numeric address has no short form without a domain, so it must be equal as a whole. */
	if (address[strspn(address, "0123456789.")] == '\0' || strchr(address, ':'))
		return false;
	return n == m && strncasecmp(address, node, n) == 0 && (!address[n] || !node[m]);
}

struct ddp_endpoint ddp_endpoint_choose(const struct ddp_channel *ch, char *const *env)
{
	const char *list = ddp_env_filled(env, "SLURM_STEP_RESV_PORTS");
	struct ddp_endpoint endpoint = {
		.address = ddp_users_value(env, DDP_NAME(MASTER_ADDR)),
		.port = ddp_users_value(env, DDP_NAME(MASTER_PORT)),
		.number = ch->port,
		.from = ch->port_from,
	};
	uint32_t reserved[2] = {0, 0};
	uint64_t number;

	if (endpoint.port) {
		/* The next port may belong to another step, so there is no port for RAS. */
		endpoint.from = "yours";
		endpoint.number = 0;
		if (ddp_parse_number(endpoint.port, 1, 65535, &number) == 0)
			endpoint.number = (uint32_t)number;
	} else if (ch->reserved_first && list && ddp_ports_reserved(list, reserved, 2) > 0) {
		endpoint.from = "reserved by Slurm";
		endpoint.number = reserved[0];
		endpoint.ras = reserved[1];
	} else if (ch->port < 65535) {
		endpoint.ras = ch->port + 1;
	}
	return endpoint;
}

/*
 * Returns whether [address] is the name of a node of the job on which rank 0 does not run. If so,
 * sets [name] to the node.
 */
static bool is_other_node(const struct ddp_channel *ch, char *const *task_env, const char *address,
			  char *name, size_t size)
{
	static const char *const lists[] = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"};
	struct ddp_nodelist list;

	if (ddp_address_is_node(address, ch->node))
		return false;
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		ddp_nodelist_begin(&list, ddp_env_filled(task_env, lists[i]));
		while (ddp_nodelist_next(&list, name, size) == 0)
			if (ddp_address_is_node(address, name))
				return true;
	}
	return false;
}

/* Whether [address] can be neither a host's name nor an address, such as "n1:29500" or "n[1-2]". */
static bool is_no_address(const char *address)
{
	const char *colon = strchr(address, ':');

	return strpbrk(address, " \t\n/,;@") || (strchr(address, '[') && !colon) ||
	       (colon && !strchr(colon + 1, ':'));
}

int ddp_endpoint_check(const struct ddp_channel *ch, char *const *step_env, char *const *task_env,
		       uint32_t nodes, struct ddp_message *message)
{
	struct ddp_endpoint endpoint = ddp_endpoint_choose(ch, step_env);
	char name[DDP_NODE_SIZE];

	if (endpoint.number == 0)
		return ddp_fail(
			message,
			DDP_USAGE_ERROR
			"MASTER_PORT=%.100s of your environment is not a port from 1 to 65535. "
			"Unset it, and a port is chosen.",
			endpoint.port);
	if (!endpoint.address || strcmp(endpoint.address, ch->address) == 0)
		return 0;
	if (is_no_address(endpoint.address))
		return ddp_fail(
			message,
			DDP_USAGE_ERROR
			"MASTER_ADDR=%.100s of your environment is not the name or address of a host. "
			"Unset MASTER_ADDR, and the address of rank 0's node is set.",
			endpoint.address);
	if (nodes > 1 && is_loopback(endpoint.address))
		return ddp_fail(
			message,
			DDP_USAGE_ERROR
			"MASTER_ADDR=%.100s of your environment is a different host on each of the %u "
			"nodes. Unset MASTER_ADDR, and the address of rank 0's node is set.",
			endpoint.address, nodes);
	if (is_other_node(ch, task_env, endpoint.address, name, sizeof(name)))
		return ddp_fail(
			message,
			DDP_USAGE_ERROR
			"MASTER_ADDR=%.100s of your environment is node %s, but rank 0 runs on "
			"%s. Unset MASTER_ADDR, and the address of rank 0's node is set.",
			endpoint.address, name, ch->node);
	return 0;
}
