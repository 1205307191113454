/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nodes.h - commands of Slurm and their answers; lists of nodes; steps that ddp-run starts on nodes to ask them
 */
#ifndef DDP_RUN_NODES_H
#define DDP_RUN_NODES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/text.h"

/* --- Commands ---------------------------------------------------------------------------------- */

/*
 * Run [argv], a list of words that ends with NULL, for [limit] seconds at most, without ddp's variables, which would set up ranks. The
 * first 256 KiB of its output are added to [out].
 * Returns its exit status, 128 and the signal, 127 if the command does not exist, or -1 if it was ended at the limit.
 */
int evidence_run(char *const argv[], double limit, struct ddp_text *out);

/*
 * Drop ddp's variables from this process, and those of Slurm that request resources: for srun on nodes that a step of the user has, too.
 */
void nodes_drop_requests(void);

/* The value of "KEY=" in an answer of scontrol -o, "" if the answer does not have it; [size] is set to its length. */
const char *nodes_field(const char *answer, const char *key, size_t *size);

/* The same in seconds, of "[DAYS-]HOURS:MINUTES:SECONDS"; INFINITY if it is something else. */
double nodes_seconds(const char *answer, const char *key);

/* The same of a date, "2026-11-25T16:45:52", in seconds since 1970; 0 if it is something else. */
double nodes_date(const char *answer, const char *key);

/* --- Lists ------------------------------------------------------------------------------------- */

enum { FACTS_NAME = 128 }; /* bytes of a node's name */

struct node_list {
	char (*name)[FACTS_NAME];
	size_t count;
};

/* Add [name], unless [list] has it. */
void nodes_add(struct node_list *list, const char *name);
bool nodes_have(const struct node_list *list, const char *name);
void nodes_free(struct node_list *list);

/* The names, with commas between; freed by free(). */
char *nodes_joined(const struct node_list *list);

/* Add the nodes that the first [size] characters of [hosts] name, "n[1-2,4]". */
void nodes_expand(struct node_list *list, const char *hosts, size_t size);

/*
 * The nodes of job [job] on which steps can run, in Slurm's order; those of them that are drained are added to [drained],
 * unless that is NULL. With [gone] the nodes on which none can run are in the list as well, and are added to [gone];
 * and, if the job is that of this process, those that Slurm has removed from it since they are down. [state] of [size] bytes
 * is the job's, "RUNNING"; "" if Slurm does not answer.
 */
struct node_list nodes_of_job(const char *job, char *state, size_t size, struct node_list *drained,
			      struct node_list *gone);

/* --- Steps of ddp-run -------------------------------------------------------------------------- */

/* The name of these steps. */
#define EVIDENCE_STEP "ddp-run"

/* Exit status of ddp-run --look and --sweep on a node that has no process of the step. */
enum { NODES_NO_PROCESS = 3 };

/* Answers of nodes; {.with_ranks = 0} at first, ended by nodes_answers_free(). */
struct nodes_answers {
	size_t with_ranks;	 /* number of nodes that have processes of the step */
	struct node_list silent; /* did not answer */
	struct node_list unasked;
	char why[256]; /* these could not be asked */
};

/*
 * Look for processes of step [step] of job [job] on each of [nodes], by a step of its own for each, all at once; with
 * [kill] they are killed. A node that does not answer within [limit] seconds, or on which Slurm starts no more steps, is silent.
 */
void nodes_probe(const struct node_list *nodes, const char *job, const char *step, bool kill,
		 double limit, struct nodes_answers *answers);
void nodes_answers_free(struct nodes_answers *answers);

/*
 * Inspect the ranks of step [job].[step] on [nodes], names with commas between, by one step of its own, for [limit] seconds at most.
 * Results go into [dir]; see inspect.h.
 * Returns 0; DDP_ERR_SYSTEM; or DDP_ERR_TIMEOUT if a node did not answer, with the results of the others.
 */
int ddp_evidence_gather(const char *dir, const char *job, const char *step, const char *nodes,
			double limit, struct ddp_error *error);

/* The path of [name], which is relative to the directory of ddp-run's executable. Returns false if it is not known, or longer than [size]. */
bool nodes_find_beside(const char *name, char *path, size_t size);

#endif /* DDP_RUN_NODES_H */
