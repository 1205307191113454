/* SPDX-License-Identifier: Apache-2.0 */
/*
 * facts.h - what happened in an attempt, per rank and node, by the files in its failure directory
 *
 * run/ is the program ddp-run. It calls base/ and the names of contract.h; commands of Slurm are run, not linked. Start
 * reading in ddp-run.c (attempts), then run-event-loop.c (one srun); the line below is how a failure becomes a report.
 *
 * srun's output and records of ranks -> files -> facts (facts.c) -> verdict (verdict.c) -> report (failure-report.c)
 *
 * <base>/.ddp/failed-<cluster>-<job>.<step>/ may have these files, each written by one of
 *
 *     the plugin       task-<rank>         "<node> <pid>"
 *     libddp           rank-<rank>, summary    comm/recorder.h
 *     PyTorch          error-<rank>.json   the exception that @record caught, with its traceback
 *                      fr-<rank>           a dump of its flight recorder; decode-dumps.py
 *     ddp-run          attempt.json        how the attempt was started and how it ended; see facts.c
 *                      tail-<rank>.txt     the last lines of the rank's output
 *                      tail.txt            the last lines of all ranks, in the order in which they came
 *                      nodes.txt           scontrol -o show node, of the nodes concerned
 *     inspect.c        proc-<rank>.txt     a hung rank: lines of "<name> <value>", then /proc/<pid>/status
 *                      stacks-<rank>.txt   its stacks
 *                      memory-<node>.txt   "oom_kill <count>", of the job's cgroup
 *                      ras.txt             the answer of NCCL's RAS
 *     failure-report.c report.txt, report.json
 */
#ifndef DDP_RUN_FACTS_H
#define DDP_RUN_FACTS_H

#include <limits.h>
#include <stdbool.h>

#include "base/arrival.h"
#include "base/error.h"
#include "nodes.h"
#include "patterns.h"

enum { FACTS_WHY = 256 };

struct facts_rank {
	char node[FACTS_NAME]; /* "": not known */
	long pid;	       /* 0: not known */
	enum facts_how
		how; /* by srun's message; verdict_judge() adds ranks that srun did not name */
	int code;    /* exit status, number of the signal, or seconds of srun's --wait */
	int order;   /* of srun's message about it, from 1; 0: there was none */
	double time; /* of this message; 0: not known */

	const char *message;   /* exception or error, in a line or more; NULL: none */
	bool libddp;	       /* the message is libddp's */
	const char *traceback; /* NULL: none */
	double raised;	  /* time of the exception in whole seconds, by @record; 0: not known */
	const char *tail; /* NULL: none */

	/* Set for hung ranks only. */
	char state; /* of its process, as ps shows it; '-': it has no process; 0: not known */
	char wchan[FACTS_NAME];
	char parent[32]; /* name of the parent process; "": not known */
	const char *command;
	double heartbeat_age; /* seconds since its last heartbeat; less than 0: it never had one */
	bool stacks;

	/* Set by verdict_judge(). */
	bool follows;	     /* it ended because another rank did */
	char why[FACTS_WHY]; /* the reason for that; or why the first rank, or a hung one, stands out */
};

struct facts_node {
	char name[FACTS_NAME];
	bool silent; /* it did not answer ddp-run */
	const char *state, *reason;
	long oom_kills; /* processes that were killed for want of memory, by the job's cgroup */
};

struct facts {
	char dir[PATH_MAX];

	/* Members of attempt.json; 0, NULL or an empty list if it does not have them. Lists end with NULL. */
	const char *run_id, *kind, *next, *next_why, *refusal;
	const char **command, **nodes, **next_nodes;
	double job, step, attempt, restarts, started, ended, status, quiet, next_ranks, next_after;

	int size; /* number of ranks, as far as is known */
	struct facts_rank *ranks;
	struct ddp_arrival *arrivals; /* of each rank: libddp's, else PyTorch's */
	struct facts_node *known;     /* nodes of which something is known */
	int known_count;
	char collectives[512]; /* ranks that did not arrive in a collective; "" without records */
	const char *tail;      /* tail.txt; NULL: none */
	int dumps;	       /* of PyTorch's flight recorder */
	char undecoded[128];   /* why these were not decoded; "" if that did not fail */
	bool ras;

	int first; /* set by verdict_judge() */

	void **kept; /* memory that the texts and lists above are in */
	size_t kept_count;
};

/*
 * Read the files of [dir]. A file that cannot be read or parsed counts as missing. Python decodes PyTorch's dumps, once for several calls.
 * Returns 0 with [facts], which facts_free() frees; or DDP_ERR_FILE if [dir] cannot be opened.
 */
int facts_read(struct facts *facts, const char *dir, struct ddp_error *error);
void facts_free(struct facts *facts);

/* Read nodes.txt again. */
void facts_read_nodes(struct facts *facts);

/* The node [name], which is added if it is not known yet. */
struct facts_node *facts_node(struct facts *facts, const char *name);

/* Whether the attempt ended in this way: "node", "hang". */
bool facts_is_kind(const struct facts *facts, const char *kind);

/*
 * If rank 0 left in its error file in [dir] that it stopped on request, copy the reason, "time; checkpoint of step 12", into [why] of [size]
 * bytes, without control characters; else "".
 */
void facts_stopped(const char *dir, char *why, size_t size);

/* The name of a signal: "SIGSEGV", "signal 42"; ddp_show() says how long it lives. */
struct ddp_shown facts_signal(int number);

/* Remove [dir] of an attempt that ended well, and the .ddp that it is in if that is empty then. */
void ddp_evidence_discard(const char *dir);

#endif /* DDP_RUN_FACTS_H */
