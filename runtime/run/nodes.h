/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nodes.h - Slurm's answers: the job, its nodes, and which of them answer
 */
#ifndef DDP_RUN_NODES_H
#define DDP_RUN_NODES_H

#include <stdbool.h>
#include <stddef.h>

#include "facts.h"

struct node_list {
	char (*name)[FACTS_NAME];
	size_t count;
};

void nodes_add(struct node_list *list, const char *name);
bool nodes_have(const struct node_list *list, const char *name);
void nodes_free(struct node_list *list);

/* The names, with commas between; freed by free(). */
char *nodes_joined(const struct node_list *list);

/* Those of the first [size] characters of [hosts], "n[1-2,4]", as Slurm reads them; added to [list]. */
void nodes_expand(struct node_list *list, const char *hosts, size_t size);

/* What follows "KEY=" in an answer of scontrol -o, "" where it is not in it; [size] is set to its length. */
const char *nodes_field(const char *answer, const char *key, size_t *size);

/*
 * Look for processes of step [step] of job [job] on each of [nodes], by a step of its own for each, all at once; with
 * [kill] they are killed. Nodes that do not answer within [limit] seconds are added to [silent].
 * Returns how many of the others have such processes, or had them.
 */
size_t nodes_probe(const struct node_list *nodes, const char *job, const char *step, bool kill,
		   double limit, struct node_list *silent);

/*
 * The nodes of job [job] that Slurm has not given up, in its order; none where Slurm does not answer. [state] of [size] bytes is
 * the job's, "RUNNING", "".
 */
struct node_list nodes_of_job(const char *job, char *state, size_t size);

#endif /* DDP_RUN_NODES_H */
