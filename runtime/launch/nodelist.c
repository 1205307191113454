/* SPDX-License-Identifier: Apache-2.0 */
/* nodelist.c - expand Slurm's lists of nodes and of tasks per node */
#include "config.h"

#include "nodelist.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "format.h"

enum { NODES_MAX = 1000000, DIGITS_MAX = 18 };

/* One range in a bracket, "01-03" or "7"; the width preserves leading zeros. */
struct range {
	uint64_t lo, hi;
	int width;
};

static const char *find(const char *begin, const char *end, char c)
{
	const char *p = memchr(begin, c, (size_t)(end - begin));

	return p ? p : end;
}

static int parse_range(const char *begin, const char *end, struct range *range)
{
	const char *dash = find(begin, end, '-');

	if (dash - begin > DIGITS_MAX || end - dash > DIGITS_MAX + 1)
		return -1;
	if (ddp_parse_number_n(begin, (size_t)(dash - begin), 0, UINT64_MAX, &range->lo) < 0)
		return -1;
	range->hi = range->lo;
	if (dash != end && ddp_parse_number_n(dash + 1, (size_t)(end - dash - 1), range->lo,
					      UINT64_MAX, &range->hi) < 0)
		return -1;
	range->width = (int)(dash - begin);
	return range->hi - range->lo < NODES_MAX ? 0 : -1;
}

/* Parse the range at group->at, and move group->at to the end of the range. Returns 0 or -1. */
static int next_range(struct ddp_nodelist_group *group)
{
	const char *end = find(group->at, group->end, ',');
	struct range range;

	if (parse_range(group->at, end, &range) < 0)
		return -1;
	group->number = range.lo;
	group->last = range.hi;
	group->width = range.width;
	group->at = end;
	return 0;
}

/* Count the names that [group] expands to, and move [group] to its first name. Returns 0 or -1. */
static int count_group(struct ddp_nodelist_group *group, size_t *count)
{
	*count = 0;
	for (group->at = group->begin;; group->at++) {
		if (next_range(group) < 0)
			return -1;
		*count += group->last - group->number + 1;
		if (*count > NODES_MAX)
			return -1;
		if (group->at == group->end)
			break;
	}
	group->at = group->begin;
	return next_range(group);
}

/* Move [group] to its next number. Returns false if [group] wrapped around to the first number. */
static bool next_number(struct ddp_nodelist_group *group)
{
	bool over = group->number == group->last && group->at == group->end;

	if (group->number < group->last) {
		group->number++;
		return true;
	}
	group->at = over ? group->begin : group->at + 1;
	(void)next_range(group); /* cannot fail: it was parsed before */
	return !over;
}

/* Parse the element at [p] and count its names. A comma in brackets does not end it. */
static int parse_element(const char *p, struct ddp_nodelist *e)
{
	size_t count;

	e->begin = p;
	e->n_groups = 0;
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
		if (count_group(group, &count) < 0)
			return -1;
		e->count *= count;
		if (e->count > NODES_MAX)
			return -1;
		e->n_groups++;
	}
	e->end = p;
	return e->end > e->begin ? 0 : -1;
}

static int print_element(const struct ddp_nodelist *e, char *name, size_t size)
{
	const char *p = e->begin;
	size_t used = 0;

	for (size_t g = 0; g <= e->n_groups; g++) {
		const struct ddp_nodelist_group *group = &e->groups[g];
		const char *stop = g < e->n_groups ? group->begin - 1 : e->end;
		size_t n = (size_t)(stop - p);

		if (used + n >= size)
			return -1;
		memcpy(name + used, p, n);
		used += n;
		name[used] = '\0';
		if (g == e->n_groups)
			break;
		if (ddp_format(name + used, size - used, "%0*llu", group->width,
			       (unsigned long long)group->number) < 0)
			return -1;
		used += strlen(name + used);
		p = group->end + 1;
	}
	return 0;
}

void ddp_nodelist_begin(struct ddp_nodelist *list, const char *text)
{
	list->next = text;
	list->count = 0;
}

static int open_element(struct ddp_nodelist *list)
{
	if (!list->next || parse_element(list->next, list) < 0)
		return -1;
	list->next = *list->end ? list->end + 1 : NULL;
	return 0;
}

/* As in Slurm, the last bracket changes fastest. */
static void advance(struct ddp_nodelist *list)
{
	list->count--;
	for (size_t g = list->n_groups; g-- > 0 && !next_number(&list->groups[g]);)
		;
}

int ddp_nodelist_next(struct ddp_nodelist *list, char *name, size_t size)
{
	if ((list->count == 0 && open_element(list) < 0) || size == 0 ||
	    print_element(list, name, size) < 0)
		return -1;
	advance(list);
	return 0;
}

int ddp_nodelist_nth(const char *text, size_t index, char *name, size_t size)
{
	struct ddp_nodelist list;

	ddp_nodelist_begin(&list, text);
	do {
		if (open_element(&list) < 0)
			return -1;
		if (index >= list.count) {
			index -= list.count;
			list.count = 0;
		}
	} while (list.count == 0);
	for (; index > 0; index--)
		advance(&list);
	return ddp_nodelist_next(&list, name, size);
}

bool ddp_nodelist_is_plain(const char *text)
{
	struct ddp_nodelist list;
	struct ddp_nodelist_group *group = &list.groups[0];

	ddp_nodelist_begin(&list, text);
	if (open_element(&list) < 0 || list.next || list.n_groups > 1)
		return false;
	if (list.n_groups == 0)
		return true;
	while (group->at < group->end) {
		uint64_t last = group->last;
		int width = group->width;

		group->at++;
		(void)next_range(group); /* cannot fail: it was parsed before */
		if (group->number <= last || group->width != width)
			return false;
	}
	return group->end + 1 == list.end;
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

/* Parse one element, "2(x3)" or "2" (the same as "2(x1)"), which ends at [end]. */
static int parse_tasks(const char *begin, const char *end, uint64_t *tasks, uint64_t *times)
{
	const char *open = find(begin, end, '(');

	*times = 1;
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
	const char *stop = tasks + strlen(tasks);
	uint64_t first = 0, value, times;
	bool uneven = false;

	for (const char *p = tasks;;) {
		const char *end = find(p, stop, ',');

		if (parse_tasks(p, end, &value, &times) < 0)
			return -1;
		if (p == tasks)
			first = value;
		uneven |= value != first;
		if (end == stop)
			return uneven;
		p = end + 1;
	}
}

int ddp_tasks_most(const char *tasks, uint64_t nodes, uint64_t *most)
{
	const char *stop = tasks + strlen(tasks), *end;
	uint64_t seen = 0, value, times;

	*most = 0;
	for (const char *p = tasks; seen < nodes; p = end + 1) {
		end = find(p, stop, ',');
		if (parse_tasks(p, end, &value, &times) < 0)
			return -1;
		seen += times;
		if (value > *most)
			*most = value;
		if (end == stop)
			break;
	}
	return seen < nodes ? -1 : 0;
}

bool ddp_tasks_within(const char *tasks, uint64_t nodes, uint64_t least, uint64_t limit)
{
	const char *stop = tasks + strlen(tasks), *end = tasks;
	uint64_t seen = 0, value, times;

	for (const char *p = tasks; seen < nodes; p = end + 1) {
		end = find(p, stop, ',');
		if (parse_tasks(p, end, &value, &times) < 0)
			return false;
		if (value >= least && value < limit)
			return true;
		seen += times;
		if (end == stop)
			break;
	}
	return false;
}
