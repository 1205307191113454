/* SPDX-License-Identifier: Apache-2.0 */
/* nodes.h - run Slurm's commands and parse their answers; lists of nodes; steps that probe nodes */
#ifndef DDP_RUN_NODES_H
#define DDP_RUN_NODES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/text.h"

/* --- Commands ------------------------------------------------------------------------------ */

/*
 * Run the command [argv], a NULL-terminated list of words, for at most [limit] seconds. Its
 * environment lacks the variables of slurm-ddp, which would set up ranks. Adds the first 256 KiB of
 * its output to [out]. Returns its exit status, 128 plus the signal number if a signal ended it,
 * 127 if it does not exist, or -1 if it was ended at the limit.
 */
int nodes_run(char *const argv[], double limit, struct ddp_text *out);

/*
 * Remove variables of slurm-ddp, and Slurm's variables that request resources, from this process.
 * srun can then start steps on nodes that a step of the user occupies.
 */
void nodes_drop_requests(void);

/*
 * Returns the value after "KEY=" in an answer of scontrol -o, and sets [size] to its length.
 * Returns "" if the field is missing.
 */
const char *nodes_field(const char *answer, const char *key, size_t *size);

/*
 * Like nodes_field(), but returns a duration "[DAYS-]HOURS:MINUTES:SECONDS" in seconds, or INFINITY
 * if the value has another form.
 */
double nodes_seconds(const char *answer, const char *key);

/*
 * Like nodes_field(), but returns a date such as "2026-11-25T16:45:52" in seconds since 1970, or 0
 * if the value has another form.
 */
double nodes_date(const char *answer, const char *key);

/* --- Lists --------------------------------------------------------------------------------- */

enum { FACTS_NAME = 128 }; /* bytes of a node's name */

struct node_list {
	char (*name)[FACTS_NAME];
	size_t count;
};

/* Add [name], unless it is already in [list]. */
void nodes_add(struct node_list *list, const char *name);
void nodes_add_all(struct node_list *list, const struct node_list *more);
bool nodes_have(const struct node_list *list, const char *name);
bool nodes_have_any(const struct node_list *list, const struct node_list *names);
void nodes_free(struct node_list *list);

/* Returns the names separated by commas. The caller frees the text with free(). */
char *nodes_joined(const struct node_list *list);

/* Add the nodes in the first [size] characters of [hosts], such as "n[1-2,4]". */
void nodes_expand(struct node_list *list, const char *hosts, size_t size);

/*
 * Returns the nodes of job [job] on which steps can run, in Slurm's order. Adds the drained ones to
 * [drained], unless that is NULL. Unless [gone] is NULL, nodes on which no step can run are also
 * returned, and added to [gone]; if [job] is the job of this process, this includes nodes that are
 * down and that Slurm has removed from the job. Sets [state], of [size] bytes, to the job's state,
 * such as "RUNNING"; "" if Slurm does not answer.
 */
struct node_list nodes_of_job(const char *job, char *state, size_t size, struct node_list *drained,
			      struct node_list *gone);

/* --- Steps of ddp-run ---------------------------------------------------------------------- */

/* Name of the steps in which ddp-run probes and inspects nodes. */
#define NODES_STEP "ddp-run"

/* Exit status of ddp-run --look and --sweep on a node without a process of the step. */
enum { NODES_NO_PROCESS = 3 };

/*
 * Answers of nodes to a probe. Initialize with {.with_ranks = 0}; free with nodes_answers_free().
 */
struct nodes_answers {
	size_t with_ranks;	 /* number of nodes that have processes of the step */
	struct node_list silent; /* nodes that did not answer */
	struct node_list unasked;
	char why[256]; /* why the nodes in [unasked] could not be probed */
};

/*
 * On each of [nodes], find the processes of step [step] of job [job], by starting a new step. The
 * new steps are started at the same time. With [kill], also kill the processes. A node counts as
 * silent if it does not answer within [limit] seconds, or if Slurm no longer starts steps on it.
 */
void nodes_probe(const struct node_list *nodes, const char *job, const char *step, bool kill,
		 double limit, struct nodes_answers *answers);
void nodes_answers_free(struct nodes_answers *answers);

/*
 * The program of a rank: the process that Slurm started, or, if that is a shell or a launcher such
 * as torchrun, the first process below it that is neither. torchrun's workers are all programs of
 * one rank.
 */
struct nodes_program {
	int rank;
	long pid;
	unsigned long long written; /* bytes that its main thread has written; 0: unknown */
	int place;		    /* enum stack_place of its main thread */
};

/* Format of a line of ddp-run --programs, for printf() and sscanf(). */
#define NODES_PROGRAM_OUT "program %d pid %ld written %llu place %d"

struct nodes_programs {
	struct nodes_program *all;
	size_t count;
};

/*
 * Find the programs of step [job].[step] on [nodes], names separated by commas, in a new step.
 * Reads the stacks of [ranks], such as "3,17?", or of none if that is "-". A "?" after a rank means
 * that its program may be healthy, so no debugger stops the program while its main thread runs.
 * Returns false if some nodes did not answer within [limit] seconds; their programs are missing.
 * Free programs->all with free().
 */
bool nodes_find_programs(const char *job, const char *step, const char *nodes, const char *ranks,
			 double limit, struct nodes_programs *programs);

/*
 * Whether the main thread of a program has written between two calls of nodes_find_programs(). If
 * so, sets [rank] to the program's rank. Other threads do not count, because they may write even if
 * the program hangs: servers of a store, loggers, event loops.
 */
bool nodes_have_written(const struct nodes_programs *before, const struct nodes_programs *after,
			int *rank);

/*
 * Inspect the ranks of step [job].[step] on [nodes], names separated by commas, in a new step, for
 * at most [limit] seconds. Writes the results to [dir]; see inspect.h. Returns 0, DDP_ERR_SYSTEM,
 * or DDP_ERR_TIMEOUT if a node did not answer; the results of the other nodes are written then.
 */
int nodes_gather(const char *dir, const char *job, const char *step, const char *nodes,
		 double limit, struct ddp_error *error);

/*
 * Get the path of [name], which is relative to the directory that contains ddp-run. Returns false
 * if the directory is unknown, or if the path does not fit into [size] bytes.
 */
bool nodes_find_beside(const char *name, char *path, size_t size);

#endif /* DDP_RUN_NODES_H */
