/* SPDX-License-Identifier: Apache-2.0 */
/* nodelist.c - expand Slurm's lists of nodes and of tasks per node */
#include "config.h"

#include "nodelist.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "format.h"

enum { NODES_MAX = 1000000, DIGITS_MAX = 18 };

static const char *find(const char *begin, const char *end, char c)
{
	const char *p = memchr(begin, c, (size_t)(end - begin));

	return p ? p : end;
}

/*
 * Parse the range at [begin] in a bracket, whose content ends at [end]. Returns the end of the
 * range, or NULL if it is malformed.
 */
static const char *parse_range(const char *begin, const char *end, struct ddp_nodelist_range *range)
{
	const char *stop = find(begin, end, ','), *dash = find(begin, stop, '-');

	if (dash - begin > DIGITS_MAX || stop - dash > DIGITS_MAX + 1 ||
	    ddp_parse_number_n(begin, (size_t)(dash - begin), 0, UINT64_MAX, &range->lo) < 0)
		return NULL;
	range->hi = range->lo;
	if (dash != stop && ddp_parse_number_n(dash + 1, (size_t)(stop - dash - 1), range->lo,
					       UINT64_MAX, &range->hi) < 0)
		return NULL;
	range->width = (int)(dash - begin);
	return range->hi - range->lo < NODES_MAX ? stop : NULL;
}

/* Count the numbers of [group], and set its current range to the last one. Returns 0 or -1. */
static int count_group(struct ddp_nodelist_group *group)
{
	group->count = 0;
	for (group->at = group->begin;; group->at++) {
		group->at = parse_range(group->at, group->end, &group->range);
		if (!group->at)
			return -1;
		group->first = group->count;
		group->count += group->range.hi - group->range.lo + 1;
		if (group->count > NODES_MAX)
			return -1;
		if (group->at == group->end)
			return 0;
	}
}

/*
 * Returns number [index] of [group], whose ranges must be well-formed. The search begins at the
 * current range, so it is fast if the numbers are read in order.
 */
static uint64_t find_number(struct ddp_nodelist_group *group, size_t index)
{
	if (index < group->first) {
		group->at = parse_range(group->begin, group->end, &group->range);
		group->first = 0;
	}
	while (index - group->first > group->range.hi - group->range.lo) {
		group->first += group->range.hi - group->range.lo + 1;
		group->at = parse_range(group->at + 1, group->end, &group->range);
	}
	return group->range.lo + (index - group->first);
}

/* Parse the element at [p], and count its names. A comma in brackets is part of the element. */
static int parse_element(const char *p, struct ddp_nodelist *e)
{
	e->begin = p;
	e->n_groups = 0;
	e->index = 0;
	e->count = 1;
	for (; *p && *p != ','; p++) {
		struct ddp_nodelist_group *group = &e->groups[e->n_groups];

		if (*p == ']' || (unsigned char)*p <= ' ')
			return -1;
		if (*p != '[')
			continue;
		if (e->n_groups == DDP_NODELIST_GROUPS)
			return -1;
		group->begin = ++p;
		p = strchr(p, ']');
		if (!p)
			return -1;
		group->end = p;
		if (count_group(group) < 0)
			return -1;
		e->count *= group->count;
		if (e->count > NODES_MAX)
			return -1;
		e->n_groups++;
	}
	e->end = p;
	return e->end > e->begin ? 0 : -1;
}

/* Write name [index] of the element. As in Slurm, the last bracket changes fastest. */
static int print_element(struct ddp_nodelist *e, size_t index, char *name, size_t size)
{
	const char *p = e->begin;
	size_t used = 0, left = e->count;

	for (size_t g = 0; g <= e->n_groups; g++) {
		struct ddp_nodelist_group *group = &e->groups[g];
		const char *stop = g < e->n_groups ? group->begin - 1 : e->end;
		size_t n = (size_t)(stop - p);
		uint64_t number;

		if (used + n >= size)
			return -1;
		memcpy(name + used, p, n);
		used += n;
		name[used] = '\0';
		if (g == e->n_groups)
			break;
		left /= group->count; /* number of names that share a number in this bracket */
		number = find_number(group, index / left);
		index %= left;
		if (ddp_format(name + used, size - used, "%0*llu", group->range.width,
			       (unsigned long long)number) < 0)
			return -1;
		used += strlen(name + used);
		p = group->end + 1;
	}
	return 0;
}

void ddp_nodelist_begin(struct ddp_nodelist *list, const char *text)
{
	list->next = text;
	list->index = list->count = 0;
}

static int open_element(struct ddp_nodelist *list)
{
	if (!list->next || parse_element(list->next, list) < 0)
		return -1;
	list->next = *list->end ? list->end + 1 : NULL;
	return 0;
}

int ddp_nodelist_next(struct ddp_nodelist *list, char *name, size_t size)
{
	if ((list->index == list->count && open_element(list) < 0) ||
	    print_element(list, list->index, name, size) < 0)
		return -1;
	list->index++;
	return 0;
}

int ddp_nodelist_nth(const char *text, size_t index, char *name, size_t size)
{
	struct ddp_nodelist list;

	for (ddp_nodelist_begin(&list, text); open_element(&list) == 0; index -= list.count)
		if (index < list.count)
			return print_element(&list, index, name, size);
	return -1;
}

bool ddp_nodelist_is_plain(const char *text)
{
	struct ddp_nodelist_range range, before = {.width = 0};
	struct ddp_nodelist list;
	const char *at;

	ddp_nodelist_begin(&list, text);
	if (open_element(&list) < 0 || list.next || list.n_groups > 1)
		return false;
	if (list.n_groups == 0)
		return true;
	for (at = list.groups[0].begin; at < list.groups[0].end; at++, before = range) {
		at = parse_range(at, list.groups[0].end, &range);
		if (before.width > 0 && (range.lo <= before.hi || range.width != before.width))
			return false;
	}
	return list.groups[0].end + 1 == list.end;
}

long ddp_nodelist_count(const char *text)
{
	struct ddp_nodelist list;
	size_t count = 0;

	ddp_nodelist_begin(&list, text);
	do {
		if (open_element(&list) < 0)
			return -1;
		count += list.count;
		if (count > NODES_MAX)
			return -1;
	} while (list.next);
	return (long)count;
}

/*
 * Parse the first element of [list], such as "2(x3)", or "2", which means "2(x1)". Then set [list]
 * to the next element, or to NULL after the last one.
 */
static int next_tasks(const char **list, uint64_t *tasks, uint64_t *times)
{
	const char *begin = *list, *end = begin + strcspn(begin, ",");
	const char *open = find(begin, end, '(');

	*times = 1;
	*list = *end ? end + 1 : NULL;
	if (ddp_parse_number_n(begin, (size_t)(open - begin), 0, UINT32_MAX, tasks) < 0)
		return -1;
	if (open == end)
		return 0;
	if (end - open < 4 || open[1] != 'x' || end[-1] != ')')
		return -1;
	return ddp_parse_number_n(open + 2, (size_t)(end - open - 3), 1, UINT32_MAX, times);
}

int ddp_tasks_uneven(const char *tasks)
{
	uint64_t first, value, times;
	bool uneven = false;

	if (next_tasks(&tasks, &first, &times) < 0)
		return -1;
	while (tasks) {
		if (next_tasks(&tasks, &value, &times) < 0)
			return -1;
		uneven |= value != first;
	}
	return uneven;
}

int ddp_tasks_most(const char *tasks, uint64_t nodes, uint64_t *most)
{
	uint64_t seen = 0, value, times;

	*most = 0;
	for (; tasks && seen < nodes; seen += times) {
		if (next_tasks(&tasks, &value, &times) < 0)
			return -1;
		if (value > *most)
			*most = value;
	}
	return seen < nodes ? -1 : 0;
}

bool ddp_tasks_within(const char *tasks, uint64_t nodes, uint64_t least, uint64_t limit)
{
	uint64_t value, times;

	for (uint64_t seen = 0; tasks && seen < nodes; seen += times) {
		if (next_tasks(&tasks, &value, &times) < 0)
			return false;
		if (value >= least && value < limit)
			return true;
	}
	return false;
}
