/* SPDX-License-Identifier: Apache-2.0 */
/*
 * facts.h - the facts about an attempt, per rank and node, from srun's messages, the output of the
 * ranks, and the files in the failure directory
 *
 * run/ is the program ddp-run. It calls base/ and, for the plugin's options and the .ddp directory,
 * launch/; it uses the names in contract.h. It runs Slurm's commands and is not linked with Slurm.
 * Start reading in ddp-run.c (attempts), then event-loop.c (one srun). A failure becomes a report
 * in these steps, each of which is done once:
 *
 * srun's output and files of ranks -> facts (facts.c) -> verdict (verdict.c)
 * -> report (failure-report.c)
 *
 * The directory <base>/.ddp/failed-<cluster>-<job>.<step>/ may contain these files, listed by their
 * writer:
 *
 *     the plugin       task-<rank>         "<node> <pid>"
 *     libddp           rank-<rank>         comm/recorder.h
 *     PyTorch          error-<rank>.json   the exception that @record caught, with its traceback
 *                      fr-<rank>           a dump of its flight recorder; decode-dumps.py
 *     ddp-run          report.txt          the report
 *                      report.json         the report, and the facts
 *                      tail-<rank>.txt     the last lines of the rank's output
 *                      tail.txt            the last lines of all ranks, in order of arrival
 *                      nodes.txt           scontrol -o show node, of the nodes concerned
 *     inspect.c        proc-<rank>.txt     a hung rank: "<name> <value>" lines, /proc/<pid>/status
 *                      stacks-<rank>.txt   its stacks
 *                      memory-<node>.txt   "oom_kill <count>", from the job's cgroup
 *                      ras.txt             the answer of NCCL's RAS service
 */
#ifndef DDP_RUN_FACTS_H
#define DDP_RUN_FACTS_H

#include <stdbool.h>

#include "base/arrival.h"
#include "decide.h"
#include "nodes.h"
#include "patterns.h"
#include "stacks.h"

enum { FACTS_WHY = 256 };

struct facts_rank {
	char node[FACTS_NAME]; /* "": unknown */
	long pid;	       /* 0: unknown */
	enum facts_how how;    /* from srun's message; set by verdict_judge() if there is none */
	int code;	       /* exit status, signal number, or seconds of srun's --wait */
	int order;   /* position of srun's message about the rank, from 1; 0: no message */
	double time; /* time of srun's message; 0: unknown */

	const char *message;   /* exception or error, one or more lines; NULL: none */
	bool libddp;	       /* libddp printed the message */
	bool uncaught;	       /* PyTorch's hook for uncaught exceptions printed it */
	bool logged;	       /* it is a traceback without this hook's prefix, perhaps logged */
	bool is_last;	       /* the rank printed nothing after it */
	const char *traceback; /* NULL: none */
	double raised; /* time of the uncaught exception; error files have whole seconds; 0: unknown */
	const char *tail; /* NULL: none */

	/* Set for hung ranks only. */
	char state; /* state of the process, as in ps; '-': no process; 0: unknown */
	char wchan[FACTS_NAME];
	char parent[32]; /* name of the parent process; "": unknown */
	const char *command;
	double heartbeat_age; /* seconds since the last heartbeat; negative: there was none */
	bool stacks;
	struct stack stack; /* stack of its program; .place is STACK_UNKNOWN without stacks */

	/* Set by verdict_judge(). */
	bool follows;	     /* the rank ended because another rank did */
	char why[FACTS_WHY]; /* why the rank follows, or was selected as first or hung */
};

struct facts_node {
	char name[FACTS_NAME];
	bool silent;	 /* the node did not answer ddp-run's probe */
	bool failed;	 /* srun reports that the node has failed */
	bool missed;	 /* srun could not start tasks on the node */
	bool stepd_lost; /* srun lost the node's slurmstepd */
	const char *state, *reason;
	long oom_kills; /* processes killed for lack of memory, from the job's cgroup */
};

struct facts {
	enum run_end end;	/* verdict_judge() corrects whether a rank exited or was killed */
	const char *missed_why; /* why srun could not start tasks on a node; "": none */
	const char *refused_by; /* node whose slurmstepd refused the step; "": none */
	bool lost;		/* srun reported that it lost a node or a slurmstepd */

	int size; /* number of ranks; a lower bound if unknown */
	struct facts_rank *ranks;
	struct ddp_arrival *arrivals; /* per rank; from libddp's records, else PyTorch's dumps */
	struct facts_node *known;     /* nodes about which there are facts */
	int known_count;
	char collectives[512]; /* ranks that did not arrive in a collective; "": no records */
	const char *tail;      /* last output of all ranks; NULL: none */
	int dumps;	       /* number of dumps of PyTorch's flight recorder */
	char undecoded[128];   /* why the dumps were not decoded; "": no error */
	bool ras;

	int first; /* rank that failed first, set by verdict_judge(); -1: none */

	void **kept; /* allocations that the texts and lists above point into */
	size_t kept_count;
};

struct attempt;

/*
 * Read what srun, Slurm and the ranks recorded about [attempt], which has failed. A file that
 * cannot be read or parsed counts as missing. PyTorch's dumps are decoded by a Python program. Free
 * [facts] with facts_free().
 */
void facts_read(struct facts *facts, const struct attempt *attempt);
void facts_free(struct facts *facts);

/*
 * Ask Slurm, for at most five seconds, about the nodes that the verdict and the facts mention.
 * Writes the answer to nodes.txt in the attempt's directory. Call verdict_judge() first.
 */
void facts_ask_nodes(struct facts *facts, const struct attempt *attempt);

/* Parse [lines], the output of "scontrol -o show node". The text is modified. */
void facts_read_nodes(struct facts *facts, char *lines);

/*
 * Read from rank 0's error file in [dir] whether rank 0 stopped on request. If so, copies the
 * reason to [why], such as "time; checkpoint of step 12", without control characters. Otherwise
 * sets [why] to "".
 */
void facts_stopped(const char *dir, char *why, size_t size);

/*
 * Returns the name of a signal, such as "SIGSEGV" or "signal 42". The text is valid as long as any
 * result of ddp_show().
 */
struct ddp_shown facts_signal(int number);

#endif /* DDP_RUN_FACTS_H */
