/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run-attempt.h - one srun: its output, its signals, and whether something moves
 */
#ifndef DDP_RUN_ATTEMPT_H
#define DDP_RUN_ATTEMPT_H

#include <limits.h>

#include "decide.h"
#include "nodes.h"
#include "srun-line.h"

/* What srun's output is, and what tells whose it is. */
enum attempt_output {
	ATTEMPT_LABELLED,    /* labels, which are taken off */
	ATTEMPT_LABELS_STAY, /* labels, which the user wants to see */
	ATTEMPT_ONE_RANK,    /* it is rank 0's */
	ATTEMPT_MIXED,	     /* nothing tells */
	ATTEMPT_TERMINAL,    /* it is left to srun: --pty */
};

struct attempt_plan {
	char **argv;	     /* of srun, with NULL at the end */
	char **command;	     /* of the user, for the report */
	const char *program; /* of it; NULL: its name may change on the way */
	int number;	     /* from 0 */
	int restarts;
	const char *run_id;
	double hang;	  /* seconds; 0: never; less: ten minutes once a heart has beaten */
	double grace;	  /* seconds; 0: Slurm's KillWait */
	const char *logs; /* directory; NULL: none */
	bool stays;	  /* --kill-on-bad-exit=0: a rank that fails does not end the step */
	enum attempt_output output;
	bool hidden; /* stdout does not pass through ddp-run: only heartbeats show that ranks live */
	/* Called with [data] once there is a step, at [began] seconds since 1970; NULL: nobody is. */
	void (*on_step)(void *data, double began);
	void *data;
};

struct attempt {
	double started, ended; /* seconds since 1970 */
	double time_left; /* seconds, of the job's; INFINITY: there is no limit, or nobody asked */
	double began;	  /* when there was a step; 0: there was none */
	int status;	  /* srun's, as a shell has it */
	enum run_end end;
	char job[32], step[32];	 /* "": there never was a step */
	char dir[PATH_MAX];	 /* its failure directory; "": there is none */
	bool untold;		 /* nor can there be one */
	char beats[PATH_MAX];	 /* where files of hearts are; "" */
	struct node_list nodes;	 /* of the step */
	int ranks;		 /* 0: not known */
	struct node_list silent; /* did not answer */
	struct node_list unable; /* could not start the program, and the job has others */
	double quiet;		 /* of a hang: seconds without a sign of life */
	char stopped[128];	 /* why rank 0 stopped on request, by its record; "": it did not */
	bool left;		 /* srun was killed: Slurm may never take the step for over */
	struct srun_said said;
};

/*
 * First, for job [id]. If Slurm ends it, it is requeued as [requeue_id]; NULL: it is not. Signals that ddp-run hands on are kept
 * for attempt_run() from here on. [signal_s] is the time before the job's end at which Slurm sends ranks a signal, but not ddp-run; 0:
 * it does not.
 */
void attempt_begin(const char *id, const char *requeue_id, double signal_s);

/*
 * Whether ddp-run was told to end, until now, with no attempt running; and how the last is then to be taken to have ended, into
 * [end].
 */
bool attempt_told(enum run_end *end);

/* Give the job back to Slurm, once. */
void attempt_requeue(void);

/* Wait for so many seconds, or until it is told to end. */
void attempt_wait(double seconds);

/* Slurm's KillWait, in seconds. */
double attempt_kill_wait(void);

/* Run [plan] to its end, and tell of a bad one. What it leaves in [attempt] attempt_free() frees. */
void attempt_run(const struct attempt_plan *plan, struct attempt *attempt);
void attempt_free(struct attempt *attempt);

/* What is done next. */
struct attempt_next {
	const struct run_decision *decision;
	const struct node_list *nodes; /* NULL: the same */
	double after;		       /* seconds; less than 0: nothing was started yet */
};

/*
 * Write attempt.json in the attempt's directory, if there was a step; [next] NULL: what is next is not known yet. Where that is
 * impossible, as on a full disk, all of it goes to a directory below TMPDIR, which a line on stderr names.
 */
void attempt_tell(const struct attempt_plan *plan, struct attempt *attempt,
		  const struct attempt_next *next);

#endif /* DDP_RUN_ATTEMPT_H */
