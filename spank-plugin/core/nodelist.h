/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nodelist.h - Slurm's two compressed lists, and one of ours
 *
 * A node list reads "gpu[01-03,7],login-2,r[1-2]n[0-9]x"; the tasks of its nodes read "2(x3),1"; an order
 * of nodes, by Slurm's numbers, reads "2-3,0,1". Slurm's own parser is not used because its interface
 * changed between releases (hostlist_t in 23.11), and ours can be tested without Slurm.
 */
#ifndef DDP_CORE_NODELIST_H
#define DDP_CORE_NODELIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Room for one node name, its end included. */
#define DDP_NODE_SIZE 256

enum { DDP_NODELIST_GROUPS = 8 }; /* brackets of one element */

/* One bracket of an element, and the number that it is at, from the range before [at]. */
struct ddp_nodelist_group {
	const char *begin, *end, *at;
	uint64_t number, last;
	int width;
};

/* A way through a list. The element that it is in, "r[1-2]n[0-9]x", has [count] names to come. */
struct ddp_nodelist {
	const char *next; /* element, NULL: none */
	const char *begin, *end;
	struct ddp_nodelist_group groups[DDP_NODELIST_GROUPS];
	size_t n_groups, count;
};

/* Begin with the first name of [text], which must stay; NULL is an empty list. */
void ddp_nodelist_begin(struct ddp_nodelist *list, const char *text);

/*
 * Write the next name into [name].
 * Returns 0, or -1 at the end, where the list is malformed, or the name does not fit.
 */
int ddp_nodelist_next(struct ddp_nodelist *list, char *name, size_t size);

/*
 * Write the name of node [index] of [list] into [name].
 * Returns 0, or -1 if the list is malformed up to there, too short, or the name does not fit.
 */
int ddp_nodelist_nth(const char *list, size_t index, char *name, size_t size);

/*
 * Returns the number of nodes of [list], or -1 if it is malformed or has more than a million.
 */
long ddp_nodelist_count(const char *list);

/*
 * Returns whether [list] is one name, or has one prefix and one bracket with ascending numbers of one width,
 * "n[1-3,7]". In any other list the order of the names may differ from the order in which Slurm lays tasks out.
 */
bool ddp_nodelist_is_plain(const char *list);

/*
 * Tell whether the nodes of [tasks] ("2(x3),1") have different numbers of tasks.
 * Returns 1 if so, 0 if all have the same, -1 if the text is malformed.
 */
int ddp_tasks_uneven(const char *tasks);

/*
 * Find the most tasks that one of the first [nodes] nodes of [tasks] has; 0 for no nodes.
 * Returns 0, or -1 if the text is malformed or has fewer nodes.
 */
int ddp_tasks_most(const char *tasks, uint64_t nodes, uint64_t *most);

/*
 * Write the order of the [count] nodes whose numbers are [nodes]; "" where each stands where its number says.
 * Returns 0, or -1 with "" if it does not fit.
 */
int ddp_order_print(const uint32_t *nodes, size_t count, char *order, size_t size);

/*
 * Find the place of [node] in [order]: its own number where the order does not name it.
 * Returns 0, or -1 if the order is malformed.
 */
int ddp_order_place(const char *order, uint32_t node, uint32_t *place);

#endif /* DDP_CORE_NODELIST_H */
