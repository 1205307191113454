/* SPDX-License-Identifier: Apache-2.0 */
/* decide.h - decide what to do after an attempt; functions without I/O */
#ifndef DDP_RUN_DECIDE_H
#define DDP_RUN_DECIDE_H

#include <stdbool.h>

#include "stacks.h"

/* How an attempt ended. The value of RUN_END_GOOD is 0. */
#define RUN_ENDS(X)                                                                               \
	X(GOOD, "good")		   /* srun's exit status is 0 */                                  \
	X(EXIT, "exit")		   /* a rank's exit status was not 0, or it did not exit */       \
	X(SIGNAL, "signal")	   /* a signal killed a rank */                                   \
	X(NODE, "node")		   /* a node was lost */                                          \
	X(HANG, "hang")		   /* the ranks showed no output and no heartbeat */              \
	X(CANCELLED, "cancelled")  /* a user or a signal ended the attempt */                     \
	X(TIME_LIMIT, "timelimit") /* Slurm ended the job at its time limit */                    \
	X(STEP_LIMIT, "steplimit") /* Slurm ended the step at srun's --time */                    \
	X(PREEMPTED, "preempted")  /* Slurm ended the job to start another */                     \
	X(WARNED, "warned")	   /* a rank failed after SIGUSR1, SIGUSR2 or Slurm's --signal */ \
	X(STOPPED, "stopped")	   /* rank 0 recorded that it ended on request */                 \
	X(REFUSED, "refused")	   /* srun or the nodes refused the step: no rank ran */

enum run_end {
#define RUN_END(id, name) RUN_END_##id,
	RUN_ENDS(RUN_END)
#undef RUN_END
};

/*
 * Exit statuses that ddp-run returns in addition to srun's. RUN_STATUS_BAD: the attempt failed
 * although srun exited with 0. RUN_STATUS_STUCK: the attempts make no progress. RUN_STATUS_NODES:
 * too few nodes can be used.
 */
enum { RUN_STATUS_BAD = 1, RUN_STATUS_STUCK = 93, RUN_STATUS_NODES = 94 };

enum run_act { RUN_STOP, RUN_RESTART, RUN_REQUEUE };

struct run_rules {
	int restarts;
	int min_nodes; /* minimum number of nodes; 0: as many as in the first attempt */
	bool requeue;
};

/* Number of attempts in a row without progress after which ddp-run stops. */
enum { RUN_SAME = 3 };

/* An attempt that has ended. */
struct run_past {
	enum run_end end;
	int status;	 /* srun's exit status */
	bool forced;	 /* srun was ended by a signal that ddp-run did not receive */
	bool again;	 /* the step was refused, but a retry may succeed */
	bool refused;	 /* a node refused the step, so no rank ran */
	char point[512]; /* where the attempt ended, see failure_point(); "": unknown */
	char node[128];	 /* node of the first rank that failed; "": unknown */
	double took;	 /* duration of the attempt, in seconds */
	double left;	 /* seconds left of the job's time when the attempt ended */
	double saved;	 /* time of the newest checkpoint; 0: there is none; negative: unknown */
};

struct run_nodes {
	int wanted; /* number of nodes of the first attempt */
	int usable; /* number of the job's nodes that can still be used, including spares */
	bool fixed; /* an attempt must have exactly [wanted] nodes */
	const char *why;
};

struct run_decision {
	enum run_act act;
	int status; /* exit status of ddp-run if it stops after this attempt */
	int nodes;  /* number of nodes of the next attempt */
	char why[256];
};

/*
 * Decide what to do after [count] attempts, at least one. [past] contains the last RUN_SAME
 * attempts, or all attempts if there were fewer. [nodes] is used only if a restart is possible.
 */
struct run_decision run_decide(const struct run_rules *rules, const struct run_past *past,
			       int count, const struct run_nodes *nodes);

/*
 * Returns the node whose rank failed first in both of the last two of [count] attempts; NULL: none.
 * [past] is as in run_decide().
 */
const char *run_bad_node(const struct run_past *past, int count);

/*
 * Whether a job that was requeued [requeued] times is allowed another requeue: if [requeued] is
 * less than [most], or if its newest checkpoint, written at [saved], is from its last run. That run
 * ended when the job was submitted again, at [submitted], and lasted at most [limit] seconds.
 */
bool run_may_requeue(int requeued, int most, double saved, double submitted, double limit);

/* A rank that has printed a traceback, and nothing shows that it has exited. */
struct run_raised {
	enum stack_place
		place;	 /* what its main thread does; STACK_UNKNOWN if it cannot be inspected */
	bool uncaught;	 /* PyTorch's hook for uncaught exceptions printed the traceback */
	bool active;	 /* the rank has printed more, or sent a heartbeat, since its last check */
	bool is_checked; /* this is not the first check since the traceback */
	bool others;	 /* any rank has printed more since the last check of this one */
};

/*
 * Whether the rank cannot continue: its main thread has ended, or only ends the program, while
 * other threads may run for ever. If the program only logged the traceback, these threads may train
 * or save results, so a second check must also find that nothing was printed since the first.
 * Without stacks, an uncaught exception and no later activity decide.
 */
bool run_cannot_continue(const struct run_raised *rank);

/*
 * Whether a rank that may continue is checked again. Without stacks: if the exception is uncaught,
 * or the rank is not active. With stacks: if the main thread ends the program, or if the exception
 * is uncaught and the rank is not active.
 */
bool run_is_doubtful(const struct run_raised *rank);

const char *run_end_name(enum run_end end);

#endif /* DDP_RUN_DECIDE_H */
