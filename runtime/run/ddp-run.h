/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ddp-run.h - what ddp-run starts (struct launch), one run of srun (struct attempt), and the files that act on them
 */
#ifndef DDP_RUN_DDP_RUN_H
#define DDP_RUN_DDP_RUN_H

#include <limits.h>
#include <stdio.h>

#include "decide.h"
#include "nodes.h"
#include "relay.h"
#include "run-options.h"
#include "srun-options.h"

struct launch {
	struct run_options options;
	struct srun_options srun; /* as srun --help lists them */
	char exec[PATH_MAX];	  /* ddp-exec, if srun has no --ddp; else "" */
	char **words;		  /* srun's options, the program, its arguments; ended by NULL */
	size_t program;		  /* its index in words */
	const char *program_name; /* as a node that cannot start it prints it; NULL: not known */
	enum output output;
	bool stdout_to_file, stderr_to_file; /* srun writes it to a file, or to none */
	bool ranks_stay;      /* --kill-on-bad-exit=0: a rank that fails does not end the step */
	double hang_s;	      /* time without output or heartbeat that is a hang; 0: none is */
	bool needs_heartbeat; /* a hang is one only if a rank had a heartbeat */
	double grace_s;	      /* between SIGTERM and SIGKILL; 0: Slurm's KillWait */

	/* For the next attempt. */
	char nodes_option[32], tasks_option[32]; /* "--nodes=3"; "": as the user gave it */
	struct node_list list;			 /* of --nodelist; empty: srun chooses */
	char *list_option;			 /* NULL: none */
	bool overlap;				 /* Slurm may consider an earlier step as running */

	/* From the attempts so far. */
	struct node_list first;	 /* nodes of the first one */
	int ranks;		 /* of the first one; 0: not known */
	struct node_list steps;	 /* numbers of all steps */
	struct node_list avoid;	 /* drained, or their ranks failed first repeatedly: chosen last */
	struct node_list bad;	 /* lost or silent once; Slurm may not have noticed */
	struct node_list failed; /* in a preflight: never chosen again */
	struct node_list usable; /* after the last one, the best first */
};

struct attempt {
	int number;	       /* from 0 */
	double started, ended; /* seconds since 1970 */
	int status;	       /* srun's exit status, or 128 and the signal */
	enum run_end end;
	char job[32], step[32];	   /* "": no step began */
	char dir[PATH_MAX];	   /* failure directory; "": none */
	bool unreported;	   /* none could be made */
	char heartbeats[PATH_MAX]; /* directory of their files; "": none */
	struct node_list nodes;	   /* of the step */
	int ranks;		   /* 0: not known */
	struct node_list silent;   /* nodes that did not answer */
	struct node_list unable;   /* nodes that could not start the program */
	double quiet_s;		   /* in a hang: time without output or heartbeat */
	char stop_reason[128]; /* recorded by rank 0, which stopped on request; "": it did not */
	bool abandoned;	       /* srun was killed: Slurm may never consider the step as ended */
	struct srun_said said;

	/* What is done after it, once that is decided. */
	bool decided;
	struct run_decision decision;
	const struct node_list *next_nodes; /* of a restart */
	double next_after_s;		    /* until that began; less than 0: it did not yet */
};

/* --- job.c: the Slurm job ------------------------------------------------------------ */

struct run_job {
	const char *id;
	char requeue_id[64]; /* for scontrol requeue; "": the job is not to be requeued */
	int requeues;	     /* so far */
	double signal_s; /* how long before its end Slurm signals the ranks, but not ddp-run; 0: never */

	/* As of the last job_update(). ending, timed_out and preempted stay set once they are. */
	bool unanswered; /* Slurm did not answer */
	bool suspended;
	bool ending;	/* Slurm ends all steps and starts none */
	bool timed_out; /* because of the job's time limit */
	bool preempted; /* because of another job */
	double left_s;	/* until the time limit; INFINITY: there is none, or it is not known */
};

/* Set id before the functions below are called. */
extern struct run_job job;

/*
 * Check that the job is one that [options] are for, and set requeue_id, requeues and signal_s. [saved] is the time of the newest
 * checkpoint as in struct run_past. Prints a line about an option that the job does not allow, and then returns false, or that
 * the job limits.
 */
bool job_check(const struct run_options *options, double saved);

/*
 * Ask Slurm for the job's state. Returns whether Slurm ends the whole job: it then signals the ranks itself. If that is for the
 * time limit or another job, the job is requeued, since Slurm may kill ddp-run together with the ranks.
 */
bool job_update(void);

/* Requeue the job, if that was not done yet. */
void job_requeue(void);

/* Slurm's KillWait in seconds: the time between SIGTERM and SIGKILL. */
double job_kill_wait(void);

/* --- command-line.c: the command line ----------------------------------------------------------- */

/* Read srun's options. Returns false after a line that says what is wrong. */
bool launch_parse(struct launch *launch);

/*
 * The value of srun's option [name], "" if it has none; or, if it is not given, of the environment's [variable] that stands for it,
 * NULL: no variable does. NULL: neither is given.
 */
const char *launch_option(const struct launch *launch, const char *name, const char *variable);

/* Replace this process by salloc that runs [argv], of ddp-run, in a new allocation. Returns the exit status if that failed. */
int launch_allocate(const struct launch *launch, char **argv);

/* srun's words for attempt [number], freed by free(). */
char **launch_words(const struct launch *launch, int number);

/* --- event-loop.c: start, watch and end srun ----------------------------------------------------- */

/* Block the signals that ddp-run passes on, and keep them for attempt_run(). */
void attempt_begin(void);

/*
 * If ddp-run was requested to end while no attempt runs, or Slurm ends the job: how the last attempt is considered to have ended. Else
 * RUN_END_GOOD, which is 0.
 */
enum run_end attempt_end_requested(void);

/* In a new process that becomes srun: leave ddp-run's process group, and end with its [parent]. */
void attempt_prepare_child(pid_t parent);

/* Remove the rendezvous directory of a step that has ended, in a .ddp: the plugin in srun does, ddp-exec cannot. */
void attempt_remove_rendezvous(const char *path);

/* Wait for [seconds], or until an end is requested. */
void attempt_wait(double seconds);

/*
 * Run attempt [number] to its end, and write what is known of a bad one to its failure directory. The report on the [last] attempt,
 * NULL: there was none, is written again when the step begins. attempt_free() frees [attempt].
 */
void attempt_run(const struct launch *launch, int number, struct attempt *last,
		 struct attempt *attempt);
void attempt_free(struct attempt *attempt);

/* --- attempt-report.c: its files for the report -------------------------------------------------- */

/*
 * Write attempt.json, if there was a step, and the last output in [tails], as far as the report may show it; NULL: it was written
 * before. If the failure directory cannot be written, as on a full disk, a line names the directory in TMPDIR to which its files were
 * copied.
 */
void attempt_write(const struct launch *launch, struct attempt *attempt, struct tails *tails);

/*
 * Write attempt.json and the report, print it on [screen], NULL: nowhere, and copy its JSON for --report. Unless [screen] is NULL, a
 * copy that is no file, as /dev/stderr or a pipe, is written to.
 */
void attempt_report(const struct launch *launch, struct attempt *attempt, FILE *screen);

/* --- next-nodes.c: the nodes of the next attempt ------------------------------------------------- */

/* Limit the first attempt to the job's nodes less --spare-nodes. Returns false after a line that says why that is impossible. */
bool nodes_reserve_spares(struct launch *launch);

/*
 * Find out whether nodes explain that a step was refused, as nodes that are down or do not have the program: then the attempt ended
 * by them. Returns whether a later try may succeed, as once slurmctld has started again.
 */
bool nodes_check_refusal(struct launch *launch, struct attempt *attempt);

/* How many nodes the next attempt could have. Sets usable if the attempt ended by a node. */
struct run_nodes nodes_count(struct launch *launch, const struct attempt *attempt);

/*
 * --preflight before the first attempt: test the nodes of the job, and choose others than srun would if some have failed or are slow.
 * Returns -1, or, if too few are left, the exit status.
 */
int nodes_preflight(struct launch *launch, const struct run_rules *rules);

/* --preflight after [attempt], if it ended by a fault of a node or GPU: test its nodes. If one has failed, the attempt ended by it. */
void nodes_preflight_again(struct launch *launch, struct attempt *attempt);

/* Choose the nodes of the restart that attempt->decision is. [bad] is a node to replace by a spare, NULL: none. */
void nodes_choose(struct launch *launch, struct attempt *attempt, const char *bad);

/* --- preflight.c: tests of nodes -------------------------------------------------------- */

struct preflight_found {
	struct node_list failed, slow; /* with --preflight=strict slow nodes have failed */
};

/* Whether ddp-info is where ddp-run is. Else prints a line. */
bool preflight_check(void);

/*
 * Test [nodes], and print a table. Of them [gone] are down, or do not respond, as Slurm says: they have failed. preflight.json goes to [dir], a failure directory; NULL: to that of the step of the tests, unless all is
 * in order. Returns false after a line that says why there is no result.
 */
bool preflight_run(struct launch *launch, const struct node_list *nodes,
		   const struct node_list *gone, const char *dir, struct preflight_found *found);

#endif /* DDP_RUN_DDP_RUN_H */
