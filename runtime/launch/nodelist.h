/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nodelist.h - parse Slurm's compressed lists of nodes, and of numbers of tasks per node
 *
 * A list of nodes is a text such as "gpu[01-03,7],login-2,r[1-2]n[0-9]x". A list of numbers of
 * tasks is a text such as "2(x3),1". Slurm's own parser is not used, because its interface changed
 * between releases (hostlist_t in 23.11). Also, this parser can be tested without Slurm.
 */
#ifndef DDP_NODELIST_H
#define DDP_NODELIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Number of bytes of a node name, including the terminating zero. */
#define DDP_NODE_SIZE 256

enum { DDP_NODELIST_GROUPS = 8 }; /* maximum number of brackets in one element */

/* One range in a bracket, "01-03" or "7". [width] is the number of digits, for leading zeros. */
struct ddp_nodelist_range {
	uint64_t lo, hi;
	int width;
};

/*
 * One bracket of an element. [range] is the range that was read last. It ends at [at], and its
 * first number is number [first] of the bracket.
 */
struct ddp_nodelist_group {
	const char *begin, *end, *at;
	struct ddp_nodelist_range range;
	size_t count, first;
};

/*
 * An iterator over the names in a list. The text of the current element, such as "r[1-2]n[0-9]x",
 * is from [begin] to [end]. It has [count] names, and the next to be returned is [index].
 */
struct ddp_nodelist {
	const char *next; /* next element; NULL: none */
	const char *begin, *end;
	struct ddp_nodelist_group groups[DDP_NODELIST_GROUPS];
	size_t n_groups, index, count;
};

/* Start at the first name of [text], which must stay valid; NULL is an empty list. */
void ddp_nodelist_begin(struct ddp_nodelist *list, const char *text);

/*
 * Write the next name to [name].
 * Returns 0, or -1 at the end, if the list is malformed, or if the name does not fit.
 */
int ddp_nodelist_next(struct ddp_nodelist *list, char *name, size_t size);

/*
 * Write the name of node [index] of [list] to [name].
 * Returns 0. Returns -1 if [list] is too short, if it is malformed before that node, or if the name
 * does not fit.
 */
int ddp_nodelist_nth(const char *list, size_t index, char *name, size_t size);

/* Returns the number of nodes in [list], or -1 if it is malformed or has more than a million. */
long ddp_nodelist_count(const char *list);

/*
 * Returns whether [list] is one name, or one prefix with one bracket, as in "n[1-3,7]", in which
 * the numbers ascend and have equal widths. In other lists, the order of the names may differ from
 * the order in which Slurm places tasks.
 */
bool ddp_nodelist_is_plain(const char *list);

/*
 * Whether the nodes in [tasks], such as "2(x3),1", have different numbers of tasks.
 * Returns 1 if they do, 0 if they do not, or -1 if the text is malformed.
 */
int ddp_tasks_uneven(const char *tasks);

/*
 * Set [most] to the largest number of tasks on one of the first [nodes] nodes of [tasks], or to 0
 * if [nodes] is 0.
 * Returns 0, or -1 if [tasks] is malformed or has fewer nodes.
 */
int ddp_tasks_most(const char *tasks, uint64_t nodes, uint64_t *most);

/*
 * Returns whether one of the first [nodes] nodes of [tasks] has at least [least] and less than
 * [limit] tasks. Returns false if [tasks] is malformed.
 */
bool ddp_tasks_within(const char *tasks, uint64_t nodes, uint64_t least, uint64_t limit);

#endif /* DDP_NODELIST_H */
