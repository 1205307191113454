/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decide.h - what to do after an attempt, from what is known alone
 */
#ifndef DDP_RUN_DECIDE_H
#define DDP_RUN_DECIDE_H

#include <stdbool.h>

/* How an attempt ended. */
#define RUN_ENDS(X)                                                          \
	X(GOOD, "good")		   /* srun's status is 0 */                  \
	X(EXIT, "exit")		   /* of a rank, not 0 */                    \
	X(SIGNAL, "signal")	   /* that killed a rank */                  \
	X(NODE, "node")		   /* was lost */                            \
	X(HANG, "hang")		   /* nothing moved */                       \
	X(CANCELLED, "cancelled")  /* somebody told it to end */             \
	X(TIME_LIMIT, "timelimit") /* Slurm did, for the job's limit */      \
	X(STEP_LIMIT, "steplimit") /* Slurm did, for srun's --time */        \
	X(PREEMPTED, "preempted")  /* Slurm did, for a better job */         \
	X(WARNED, "warned")	   /* after SIGUSR1 or SIGUSR2 to ddp-run */ \
	X(STOPPED, "stopped")	   /* on request, as rank 0 recorded */      \
	X(REFUSED, "refused") /* no rank ever ran: srun, or the system on the nodes, would not */

enum run_end {
#define RUN_END(id, name) RUN_END_##id,
	RUN_ENDS(RUN_END)
#undef RUN_END
};

/* Statuses of ddp-run besides srun's; BAD where srun's is 0 and nothing is good. */
enum { RUN_STATUS_BAD = 1, RUN_STATUS_STUCK = 93, RUN_STATUS_NODES = 94 };

enum run_act { RUN_STOP, RUN_RESTART, RUN_REQUEUE };

struct run_rules {
	int restarts;
	int min_nodes; /* 0: as many as at first */
	bool requeue;
};

/* Attempts in a row that end at one point, after which more of them are of no use. */
enum { RUN_SAME = 3 };

/* An attempt that is over. */
struct run_past {
	enum run_end end;
	int status;	 /* srun's */
	bool forced;	 /* srun received a signal that ended it, and ddp-run did not */
	bool again;	 /* it was refused, and one before it was not */
	char point[512]; /* ddp_verdict_point(); "": nobody knows */
	char node[128];	 /* of the first rank that failed; "": not known */
	double left;	 /* seconds of the job's time, at its end */
	double saved; /* when the newest checkpoint was written; 0: there is none; less: nobody knows */
};

struct run_nodes {
	int wanted; /* what the first attempt had */
	int usable; /* that answer, with spares */
	bool fixed; /* their number cannot be changed, for the reason that is in why */
	const char *why;
};

struct run_decision {
	enum run_act act;
	int status; /* of ddp-run, if it stops here, also where it need not */
	int nodes;  /* of the next attempt */
	char why[256];
};

/* What to do after [count] attempts, one at least; [past] are the last RUN_SAME of them, or all; [nodes] is looked at where the program may be started again. */
struct run_decision run_decide(const struct run_rules *rules, const struct run_past *past,
			       int count, const struct run_nodes *nodes);

/* The node whose rank failed first in both of the last two of [count] attempts, [past] as above; NULL: there is none. */
const char *run_bad_node(const struct run_past *past, int count);

/*
 * Whether a job that was [requeued] so many times may be again: fewer than [most], or its newest checkpoint, [saved] as in struct
 * run_past, is not older than its last run can have been. That run ended when the job was [submitted] again, and lasted [limit] seconds at
 * most.
 */
bool run_may_requeue(int requeued, int most, double saved, double submitted, double limit);

const char *run_end_name(enum run_end end);

#endif /* DDP_RUN_DECIDE_H */
