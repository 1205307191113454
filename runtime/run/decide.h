/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decide.h - what to do after an attempt: pure functions
 */
#ifndef DDP_RUN_DECIDE_H
#define DDP_RUN_DECIDE_H

#include <stdbool.h>

/* How an attempt ended. The first is 0. */
#define RUN_ENDS(X)                                                                    \
	X(GOOD, "good")		   /* srun's exit status is 0 */                       \
	X(EXIT, "exit")		   /* a rank exited with another status */             \
	X(SIGNAL, "signal")	   /* a signal killed a rank */                        \
	X(NODE, "node")		   /* a node was lost */                               \
	X(HANG, "hang")		   /* no output and no heartbeat */                    \
	X(CANCELLED, "cancelled")  /* a user or a signal ended it */                   \
	X(TIME_LIMIT, "timelimit") /* Slurm ended the job at its time limit */         \
	X(STEP_LIMIT, "steplimit") /* Slurm ended the step at srun's --time */         \
	X(PREEMPTED, "preempted")  /* Slurm ended the job for another job */           \
	X(WARNED, "warned")	   /* after SIGUSR1 or SIGUSR2, or Slurm's --signal */ \
	X(STOPPED, "stopped")	   /* on request, as rank 0 recorded */                \
	X(REFUSED, "refused")	   /* by srun or the nodes: no rank ran */

enum run_end {
#define RUN_END(id, name) RUN_END_##id,
	RUN_ENDS(RUN_END)
#undef RUN_END
};

/* Exit statuses of ddp-run besides srun's. BAD: srun's is 0, but the attempt was not good. */
enum { RUN_STATUS_BAD = 1, RUN_STATUS_STUCK = 93, RUN_STATUS_NODES = 94 };

enum run_act { RUN_STOP, RUN_RESTART, RUN_REQUEUE };

struct run_rules {
	int restarts;
	int min_nodes; /* 0: as many as the first attempt had */
	bool requeue;
};

/* After so many attempts in a row that end at one point, more are of no use. */
enum { RUN_SAME = 3 };

/* An attempt that has ended. */
struct run_past {
	enum run_end end;
	int status;	 /* srun's */
	bool forced;	 /* srun received a signal that ended it, and ddp-run did not */
	bool again;	 /* it was refused, but a later try may succeed */
	char point[512]; /* ddp_verdict_point(); "": not known */
	char node[128];	 /* of the first rank that failed; "": not known */
	double took;	 /* seconds */
	double left;	 /* seconds of the job's time, at its end */
	double saved; /* time of the newest checkpoint; 0: there is none; less than 0: not known */
};

struct run_nodes {
	int wanted; /* of the first attempt */
	int usable; /* of the job, spares included */
	bool fixed; /* the number cannot change */
	const char *why;
};

struct run_decision {
	enum run_act act;
	int status; /* ddp-run's, if it stops here */
	int nodes;  /* of the next attempt */
	char why[256];
};

/*
 * What to do after [count] attempts, at least one. [past] are the last RUN_SAME of them, or all if there were fewer. [nodes] counts if a
 * restart is possible.
 */
struct run_decision run_decide(const struct run_rules *rules, const struct run_past *past,
			       int count, const struct run_nodes *nodes);

/* The node whose rank failed first in both of the last two of [count] attempts; NULL: none. [past] is as above. */
const char *run_bad_node(const struct run_past *past, int count);

/*
 * Whether a job that was [requeued] so many times may be requeued again: fewer than [most] times, or its newest checkpoint, [saved], may
 * be from its last run. That run ended when the job was [submitted] again, and lasted at most [limit] seconds.
 */
bool run_may_requeue(int requeued, int most, double saved, double submitted, double limit);

const char *run_end_name(enum run_end end);

#endif /* DDP_RUN_DECIDE_H */
