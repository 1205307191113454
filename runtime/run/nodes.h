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

/* The same in seconds, of "[DAYS-]HOURS:MINUTES:SECONDS"; INFINITY where it is something else. */
double nodes_seconds(const char *answer, const char *key);

/* The same of a date, "2026-11-25T16:45:52", in seconds since 1970; 0 if it is something else. */
double nodes_date(const char *answer, const char *key);

/* What nodes said; {.with_ranks = 0} at first, ended by nodes_answers_free(). */
struct nodes_answers {
	size_t with_ranks;	 /* how many have processes of the step, or had them */
	struct node_list silent; /* did not answer */
	struct node_list unasked;
	char why[256]; /* these could not be asked */
};

/*
 * Look for processes of step [step] of job [job] on each of [nodes], by a step of its own for each, all at once; with
 * [kill] they are killed. A node that does not answer within [limit] seconds, or that Slurm has given up, is silent.
 */
void nodes_probe(const struct node_list *nodes, const char *job, const char *step, bool kill,
		 double limit, struct nodes_answers *answers);
void nodes_answers_free(struct nodes_answers *answers);

/*
 * The nodes of job [job] that Slurm has not given up, in its order; those of them that are drained are added to [drained],
 * unless that is NULL. [state] of [size] bytes is the job's, "RUNNING"; "" where Slurm does not answer.
 */
struct node_list nodes_of_job(const char *job, char *state, size_t size, struct node_list *drained);

#endif /* DDP_RUN_NODES_H */
