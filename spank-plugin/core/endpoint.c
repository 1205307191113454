/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "endpoint.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

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
			"%s=%.100s is not a port or a range of ports; write P or LO-HI, 1 to %d",
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

/* FNV-1a and a finalizer, so that neighbouring job ids do not give neighbouring ports. */
uint64_t ddp_step_hash(const char *cluster, uint32_t job, uint32_t step, uint32_t attempt)
{
	char text[512];
	uint64_t h = 0xcbf29ce484222325;

	snprintf(text, sizeof(text), "%u.%u.%u.%s", job, step, attempt, cluster);
	for (const unsigned char *p = (const unsigned char *)text; *p; p++)
		h = (h ^ *p) * 0x100000001b3;
	h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9;
	h = (h ^ (h >> 27)) * 0x94d049bb133111eb;
	return h ^ (h >> 31);
}

/* Count the even ports in [range] whose next port is also in [range]. */
static uint32_t count_pairs(struct ddp_port_range range)
{
	uint32_t lo = range.lo + (range.lo & 1);

	return range.hi > lo ? (range.hi - lo + 1) / 2 : 0;
}

uint32_t ddp_port_compute(struct ddp_port_range range, struct ddp_port_range ephemeral,
			  uint64_t hash)
{
	struct ddp_port_range below = range, above = range;
	uint32_t n_below, n_above, k;

	if (below.hi >= ephemeral.lo)
		below.hi = ephemeral.lo ? ephemeral.lo - 1 : 0;
	if (above.lo <= ephemeral.hi)
		above.lo = ephemeral.hi + 1;
	if (range.hi < ephemeral.lo)
		above.hi = 0; /* [below] has the whole range */
	n_below = below.hi >= below.lo ? count_pairs(below) : 0;
	n_above = above.hi >= above.lo ? count_pairs(above) : 0;
	if (n_below + n_above == 0) {
		below = range;
		n_below = count_pairs(range);
	}
	if (n_below + n_above == 0)
		return range.lo;
	k = (uint32_t)(hash % (n_below + n_above));
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
			"%s is empty; set it to the text after the node's name, such as -ib", what);
	if (strlen(suffix) > 64)
		return ddp_fail(message, "%s is longer than 64 characters", what);
	for (const char *p = suffix; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr(".-_", *p))
			return ddp_fail(
				message,
				"%s=%s: a host name has letters, digits, '.', '-' and '_' only",
				what, suffix);
	return 0;
}
