/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "nodelist.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "text.h"

enum { NODES_MAX = 1000000, GROUPS_MAX = 8, DIGITS_MAX = 18 };

/* One bracket of one list element: text between '[' and ']', and how many names it stands for. */
struct group {
	const char *begin, *end;
	size_t count;
};

/* One element of the list, "r[1-2]n[0-9]x": its brackets and the number of its names. */
struct element {
	const char *begin, *end;
	struct group groups[GROUPS_MAX];
	size_t n_groups;
	size_t count;
};

/* One range of a bracket, "01-03" or "7"; the width keeps leading zeros. */
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

/*
 * Walk the ranges of [group]. With [skip] given, stop in the range that holds the name
 * of that index and leave the number and its width. Returns 0 or -1.
 */
static int walk_group(struct group *group, const size_t *skip, uint64_t *number, int *width)
{
	size_t count = 0;
	const char *p = group->begin;

	for (;;) {
		const char *end = find(p, group->end, ',');
		struct range range;

		if (parse_range(p, end, &range) < 0)
			return -1;
		if (skip && *skip < count + (range.hi - range.lo + 1)) {
			*number = range.lo + (*skip - count);
			*width = range.width;
			return 0;
		}
		count += range.hi - range.lo + 1;
		if (count > NODES_MAX)
			return -1;
		if (end == group->end)
			break;
		p = end + 1;
	}
	group->count = count;
	return skip ? -1 : 0;
}

/* Read the element that begins at [p]; a comma inside brackets does not end it. */
static int parse_element(const char *p, struct element *e)
{
	e->begin = p;
	e->n_groups = 0;
	e->count = 1;
	for (; *p && *p != ','; p++) {
		struct group *group = &e->groups[e->n_groups];

		if (*p == ']' || (unsigned char)*p <= ' ')
			return -1;
		if (*p != '[')
			continue;
		if (e->n_groups == GROUPS_MAX)
			return -1;
		group->begin = ++p;
		p = strchr(p, ']');
		if (!p)
			return -1;
		group->end = p;
		if (walk_group(group, NULL, NULL, NULL) < 0)
			return -1;
		e->count *= group->count;
		if (e->count > NODES_MAX)
			return -1;
		e->n_groups++;
	}
	e->end = p;
	return e->end > e->begin ? 0 : -1;
}

/* Write name [index] of [e]; the last bracket turns fastest, as in Slurm. */
static int print_element(struct element *e, size_t index, char *name, size_t size)
{
	size_t place[GROUPS_MAX] = {0};
	const char *p = e->begin;
	size_t used = 0;

	for (size_t g = e->n_groups; g-- > 0;) {
		place[g] = index % e->groups[g].count;
		index /= e->groups[g].count;
	}
	for (size_t g = 0; g <= e->n_groups; g++) {
		const char *stop = g < e->n_groups ? e->groups[g].begin - 1 : e->end;
		size_t n = (size_t)(stop - p);
		uint64_t number;
		int width;

		if (used + n >= size)
			return -1;
		memcpy(name + used, p, n);
		used += n;
		name[used] = '\0';
		if (g == e->n_groups)
			break;
		if (walk_group(&e->groups[g], &place[g], &number, &width) < 0 ||
		    ddp_format(name + used, size - used, "%0*llu", width,
			       (unsigned long long)number) < 0)
			return -1;
		used += strlen(name + used);
		p = e->groups[g].end + 1;
	}
	return 0;
}

int ddp_nodelist_nth(const char *list, size_t index, char *name, size_t size)
{
	struct element e;

	for (const char *p = list; p && size > 0; p = e.end + 1) {
		if (parse_element(p, &e) < 0)
			return -1;
		if (index < e.count)
			return print_element(&e, index, name, size);
		index -= e.count;
		if (*e.end == '\0')
			break;
	}
	return -1;
}

long ddp_nodelist_count(const char *list)
{
	struct element e;
	size_t count = 0;

	for (const char *p = list; p; p = e.end + 1) {
		if (parse_element(p, &e) < 0)
			return -1;
		count += e.count;
		if (count > NODES_MAX)
			return -1;
		if (*e.end == '\0')
			return (long)count;
	}
	return -1;
}

/* Read one "2(x3)", or "2", which is the same as "2(x1)", that ends at [end]. */
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
