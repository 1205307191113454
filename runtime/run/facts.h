/* SPDX-License-Identifier: Apache-2.0 */
/*
 * facts.h - what a failure directory says, and who failed first
 *
 * In <base>/.ddp/failed-<cluster>-<job>.<step>/ there may be, each file written by one of
 *
 *     the plugin       task-<rank>         "<node> <pid>"
 *     libddp           rank-<rank>, summary    comm/recorder.h
 *     PyTorch          error-<rank>.json   @record's: the exception and its traceback
 *                      fr-<rank>           a dump of its flight recorder; flight.h
 *     ddp-run          attempt.json        what it started, and how that ended; see facts.c
 *                      tail-<rank>.txt     the last lines of the rank's output, as they came; where nothing tells
 *                                          whose they are, of all ranks:
 *                      tail.txt
 *     evidence.c       nodes.txt           scontrol -o show node, of the nodes concerned
 *                      proc-<rank>.txt     a rank that hung: lines of "<word> <value>", then /proc/<pid>/status
 *                      stacks-<rank>.txt   its stacks
 *                      memory-<node>.txt   "oom_kill <count>", of the job's cgroup
 *                      ras.txt             what NCCL's RAS said
 *     verdict.c        report.txt, report.json
 */
#ifndef DDP_RUN_FACTS_H
#define DDP_RUN_FACTS_H

#include <limits.h>
#include <stdbool.h>

#include "base/arrival.h"
#include "base/error.h"
#include "base/text.h"
#include "flight.h"

enum { FACTS_NAME = 128, FACTS_WHY = 256 };

/* How a rank ended, by what srun said; facts_how_name() has the words for it. */
enum facts_how {
	FACTS_UNKNOWN,
	FACTS_EXIT,
	FACTS_SIGNAL,
	FACTS_OOM,
	FACTS_NODE,	  /* its node is gone */
	FACTS_SLURMSTEPD, /* its slurmstepd is, or hangs */
	FACTS_CANCELLED,
	FACTS_LATE, /* still ran [code] seconds after another rank had ended: srun's --wait */
};

struct facts_rank {
	char node[FACTS_NAME]; /* "": not known */
	long pid;	       /* 0: not known */
	enum facts_how how;
	int code;    /* exit status, or number of the signal */
	int order;   /* of srun's words about it, from 1; 0: there were none */
	double time; /* of these; 0: not known */

	char *message;	 /* its exception or error in a line or more; NULL: none */
	char *traceback; /* NULL: none */
	double raised;	 /* when, in whole seconds as @record has it; 0: not known */
	char *tail;	 /* NULL: none */

	/* Of a rank that hung. */
	char state; /* of its process, as ps has it; '-': there is none; 0: nobody looked */
	char wchan[FACTS_NAME];
	char parent[32]; /* the name of what started it; "": not known */
	char *command;
	double beat; /* seconds since its heart beat; less than 0: it never did */
	bool stacks;

	bool follows;	     /* it ended because another did */
	char why[FACTS_WHY]; /* how that is known; or why the first, or one that hung, stands out */
};

struct facts_node {
	char name[FACTS_NAME];
	bool silent; /* it did not answer ddp-run */
	char *state, *reason;
	long kills; /* of processes for want of memory, by the job's cgroup */
};

struct facts {
	char dir[PATH_MAX];

	/* attempt.json; 0, NULL or "" where it does not say. */
	char *run_id, *kind, *next, *next_why, *refusal;
	char **command, **nodes, **next_nodes; /* lists that end with NULL; never NULL themselves */
	double job, step, attempt, restarts, started, ended, status, quiet, next_ranks, next_after;

	int size; /* ranks that there are, as far as is known */
	struct facts_rank *ranks;
	struct ddp_arrival *arrivals; /* one of each rank: libddp's, else PyTorch's */
	struct facts_node *known;     /* nodes of which something is known */
	int known_count;
	char collectives[512]; /* who did not arrive in which; "" where no rank left a record */
	char *tail;	       /* tail.txt; NULL: none */
	int dumps;	       /* of PyTorch's flight recorder */
	struct flight flight;  /* those of them that could be read */
	bool ras;

	int first; /* the rank that failed first, or stands out in a hang; -1: none does */
};

/*
 * Read all of [dir] and judge it. A file that cannot be read or understood counts as one that is not there.
 * Returns 0 with [facts], which facts_free() frees; or DDP_ERR_FILE where there is no such directory, DDP_ERR_MEMORY.
 */
int facts_read(struct facts *facts, const char *dir, struct ddp_error *error);
void facts_free(struct facts *facts);

/*
 * What rank 0 left in its error file in [dir] if it stopped on request: "time; checkpoint of step 12", after the word
 * "stopped: ". Copied into [why] of [size] bytes, without control characters; "" if the file has no "stopped: ".
 */
void facts_stopped(const char *dir, char *why, size_t size);

/* Whether attempt.json says that it ended in this way: "node", "hang". */
bool facts_is_kind(const struct facts *facts, const char *kind);

/* --- judge.c: who failed first, and who only followed ------------------------------------------- */

/*
 * Fill in what follows from the rest of [facts]: first, collectives, and of each rank follows and why; and its message
 * and place where only its output or libddp's record has them.
 *
 * A rank follows where it was ended with the step, where its own words are about another rank, or about a connection
 * that broke. Of the others the first is the one whose exception was raised earlier, or of which srun told earlier.
 * Where all follow, it is the one that most of them name, else one that did not arrive in the collective which others
 * wait in. In a hang the rank stands out whose node does not answer, that is stopped or gone, that did not arrive in that
 * collective, or whose heart stopped long before those of the others.
 */
void facts_judge(struct facts *facts);

/* --- For all of them ---------------------------------------------------------------------------- */

/* "exit", "oom", and so on; "" for FACTS_UNKNOWN. */
const char *facts_how_name(enum facts_how how);

/* "SIGSEGV", "signal 42"; the text lives to the end of the expression. */
struct ddp_shown facts_signal(int number);

/* The node [name] of [facts], which is added where it is not known yet; NULL: no memory. */
struct facts_node *facts_node(struct facts *facts, const char *name);

/* Read nodes.txt. */
void facts_read_nodes(struct facts *facts);

/*
 * Ask Slurm about nodes that the failure concerns, and leave the answer in nodes.txt; nothing where there are none, or
 * that is there already.
 */
void evidence_ask_nodes(struct facts *facts);

/*
 * Whether this process was started by a task of step [step] of job [job], as far as /proc shows it. Variables do not: a job that was
 * submitted from inside a step inherits them.
 */
bool evidence_in_step(const char *job, const char *step);

/*
 * The variable by which a launcher other than srun tells us that we are one of its ranks; NULL: there is none. What a job's
 * script has as well came with it from where the job was submitted.
 */
const char *evidence_launcher(void);

/*
 * Run [argv], a list of words that ends with NULL, for [limit] seconds at most, with its output added to [out].
 * Returns its exit status, 128 and the signal, or 127 where there is no such command; -1 where it was ended.
 */
int evidence_run(char *const argv[], double limit, struct ddp_text *out);

/* The same for output of [most] bytes, in place of the 256 KiB that are enough elsewhere. */
int evidence_ask(char *const argv[], double limit, size_t most, struct ddp_text *out);

/* The name of the steps in which nodes are asked. */
#define EVIDENCE_STEP "ddp-run"

enum evidence_found {
	EVIDENCE_NONE,
	EVIDENCE_SOME,
	EVIDENCE_SILENT, /* the node does not answer */
	EVIDENCE_UNKNOWN /* nobody could ask it: srun was refused, or Slurm did not answer */
};

/*
 * Whether node [node] has processes of step [step] of job [job], which a step there says within [limit] seconds; with [kill]
 * they are killed. For EVIDENCE_UNKNOWN the reason goes to [why] of [size] bytes. To be called by several threads at once.
 */
enum evidence_found evidence_look_for(const char *job, const char *step, const char *node,
				      bool kill, double limit, char *why, size_t size);

#endif /* DDP_RUN_FACTS_H */
