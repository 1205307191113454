/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ddp-run.h - the command that ddp-run starts (struct launch), one run of srun (struct attempt),
 * and the functions that act on them
 */
#ifndef DDP_RUN_DDP_RUN_H
#define DDP_RUN_DDP_RUN_H

#include <limits.h>
#include <stdio.h>

#include "decide.h"
#include "facts.h"
#include "nodes.h"
#include "relay.h"
#include "run-options.h"
#include "srun-options.h"

struct launch {
	struct run_options options;
	struct srun_options srun; /* options that srun --help lists */
	char exec[PATH_MAX];	  /* path of ddp-exec if srun has no --ddp; else "" */
	char **words;		  /* srun's options, the program, its arguments; NULL-terminated */
	size_t program;		  /* index of the program in words */
	/* program's name in the error message of a node that cannot start it; NULL: unknown */
	const char *program_name;
	enum output output;
	bool stdout_to_file, stderr_to_file; /* srun writes the stream to a file, or discards it */
	bool ranks_stay; /* --kill-on-bad-exit=0: a rank that fails does not end the step */
	double hang_s;	 /* time without output or heartbeat that counts as a hang; 0: none does */
	bool needs_heartbeat; /* a hang is detected only if a rank has sent a heartbeat */
	double exit_limit_s;  /* time that a rank has to exit after a traceback; 0: no limit */
	double grace_s;	      /* time between SIGTERM and SIGKILL; 0: Slurm's KillWait */

	/* For the next attempt. */
	int nodes, tasks; /* values of --nodes and --ntasks; 0: use the user's option */
	char *gpus_option, *node_gpus_option; /* --gpus=..., --gpus-per-node=...; NULL: none */
	struct node_list list;		      /* value of --nodelist; empty: srun chooses */
	char *list_option;		      /* --nodelist=...; NULL: none */
	bool overlap; /* add --overlap, since Slurm may consider an earlier step as still running */

	/* Results of the attempts so far. */
	struct node_list first;	 /* nodes of the first attempt */
	int ranks;		 /* ranks of the first attempt; 0: unknown */
	struct node_list steps;	 /* step numbers of all attempts */
	struct node_list avoid;	 /* nodes to choose last: drained, slow, or twice first to fail */
	struct node_list bad;	 /* nodes that were lost or silent once, perhaps unknown to Slurm */
	struct node_list failed; /* nodes that failed a preflight: never chosen again */
	struct node_list usable; /* nodes for the next attempt, best first */
};

struct attempt {
	const char *run_id;    /* id of the job, or of the first component of a heterogeneous job */
	char *const *command;  /* srun's options and the program, NULL-terminated */
	int number, restarts;  /* number of the attempt, from 0; maximum number of restarts */
	double started, ended; /* seconds since 1970 */
	/*
	 * Exit status of srun or, if the program cannot be started, of a rank. 128 plus the signal
	 * number if a signal ended srun.
	 */
	int status;
	enum run_end end;
	char job[32], step[32];	   /* numbers of job and step; "": no step started */
	char dir[PATH_MAX];	   /* failure directory; "": none */
	char heartbeats[PATH_MAX]; /* directory of the heartbeat files; "": none */
	struct node_list nodes;	   /* nodes of the step */
	int ranks;		   /* number of ranks; 0: unknown */
	struct node_list silent;   /* nodes that did not answer a probe */
	struct node_list unable;   /* nodes that could not start the program */
	double quiet_s;		   /* for a hang: time without output or heartbeat */
	char stop_reason[128];	   /* reason recorded by rank 0 if it stopped on request; else "" */
	bool abandoned; /* srun was killed, so Slurm may never consider the step as ended */
	struct srun_said said;
	struct tails *tails; /* last output of the ranks; NULL: attempt_report() has written it */
	struct facts facts;  /* set by attempt_judge() if the attempt failed */

	/* The decision that follows the attempt. */
	struct run_decision decision;
	const struct node_list *next_nodes; /* nodes of the restart */
	double next_after_s;		    /* seconds until the restart began; negative: not yet */
};

/* --- job.c: the Slurm job ------------------------------------------------------------------ */

/*
 * Slurm sends the signal of --signal up to this many seconds early. Every 30 s, it signals the jobs
 * whose time comes before its next check (20.11 to 26.05; its manual says 60).
 */
#define JOB_SIGNAL_EARLY 32.0

struct run_job {
	const char *id;
	char requeue_id[64]; /* for scontrol requeue; "": do not requeue the job */
	int requeues;	     /* number of requeues so far */
	/*
	 * Slurm signals the ranks, but not ddp-run, this many seconds before the job's end, or up
	 * to JOB_SIGNAL_EARLY earlier. 0: no signal.
	 */
	double signal_s;

	/* State at the last job_update(). ending, timed_out and preempted are never reset. */
	bool unanswered; /* Slurm did not answer */
	bool suspended;
	bool ending;	/* Slurm ends all steps and starts no new steps */
	bool timed_out; /* Slurm ends the job at its time limit */
	bool preempted; /* Slurm ends the job in favour of another job */
	double left_s;	/* seconds until the time limit; INFINITY: no limit, or unknown */
};

/* The caller sets id before it calls the functions below. */
extern struct run_job job;

/*
 * Check that [options] can be used in this job, and set requeue_id, requeues and signal_s. [saved]
 * is the time of the newest checkpoint, as in struct run_past. If the job restricts an option,
 * print a line. If the job does not allow an option, print a line and return false.
 */
bool job_check(const struct run_options *options, double saved);

/*
 * Update [job] from Slurm. Returns true if Slurm ends the whole job; Slurm then signals the ranks.
 * If the reason is the time limit or another job, job_update() requeues the job at once, since
 * Slurm may kill ddp-run together with the ranks.
 */
bool job_update(void);

/* Requeue the job, unless ddp-run has already done so. */
void job_requeue(void);

/* Returns Slurm's KillWait in seconds: the time between SIGTERM and SIGKILL. */
double job_kill_wait(void);

/* --- command-line.c: the command line ------------------------------------------------------ */

/* Parse srun's options. On an error, prints it and returns false. */
bool launch_parse(struct launch *launch);

/*
 * Returns the value of environment variable [name] of the job, or NULL if it is unset. With srun's
 * --het-group, the variable of that component of the job takes precedence.
 */
const char *launch_variable(const struct launch *launch, const char *name);

/*
 * Returns the value of srun's option [name], or "" for an option without a value. If the option is
 * not given, returns the value of [variable], the environment variable with the same meaning.
 * Returns NULL if that is unset too. [variable] can be NULL.
 */
const char *launch_option(const struct launch *launch, const char *name, const char *variable);

/*
 * Replace this process by salloc, which runs ddp-run with its command line [argv] in a new
 * allocation. Returns only on failure, with the exit status.
 */
int launch_allocate(const struct launch *launch, char **argv);

/* Returns srun's command line for attempt [number]; the caller frees it. */
char **launch_words(const struct launch *launch, int number);

/* --- event-loop.c: start, watch and end srun ----------------------------------------------- */

/* Block the signals that ddp-run forwards, so that attempt_run() can read them. */
void attempt_begin(void);

/*
 * Check whether a signal or Slurm has requested ddp-run to end while no attempt ran. Returns the
 * end that the last attempt gets from this, or RUN_END_GOOD, which is 0.
 */
enum run_end attempt_end_requested(void);

/*
 * In the child process that becomes srun: leave ddp-run's process group unless there is a terminal,
 * and arrange to be killed if [parent] exits.
 */
void attempt_prepare_child(pid_t parent);

/* Wait for [seconds], or until ddp-run is requested to end. */
void attempt_wait(double seconds);

/*
 * Run attempt [number] to its end. When the step starts, add the delay to the report on the [last]
 * attempt (NULL: none). The caller frees [attempt] with attempt_free().
 */
void attempt_run(const struct launch *launch, int number, struct attempt *last,
		 struct attempt *attempt);
void attempt_free(struct attempt *attempt);

/* --- attempt-report.c: the record of an attempt -------------------------------------------- */

/*
 * Check that the file of --report can be written, and create the directory of --logs; otherwise print a
 * line and return false.
 */
bool attempt_can_report(const struct launch *launch);

/* If a step started and the attempt has failed, read the facts and decide which rank failed first. */
void attempt_judge(struct attempt *attempt);

/*
 * Write the last output and the report to the failure directory, print the report on [screen], and
 * copy its JSON to the file of --report. If the failure directory cannot be written, for example on a
 * full disk, copy its files to a directory in TMPDIR, and print that directory's name.
 *
 * If [screen] is NULL, write the report again, with changed members of [attempt]. A file of --report
 * that is not a regular file (/dev/stderr, a pipe) is written only if [screen] is not NULL.
 */
void attempt_report(const struct launch *launch, struct attempt *attempt, FILE *screen);

/*
 * Remove directory [dir] of a step: the failure directory of a successful attempt, or the rendezvous
 * directory that ddp-exec or a killed srun left. Remove the .ddp directory above it if that is empty
 * then.
 */
void attempt_discard(const char *dir);

/* --- next-nodes.c: the nodes of the next attempt ------------------------------------------- */

/*
 * Limit the first attempt to the job's nodes minus --spare-nodes. Returns false after an error
 * message if that is impossible, or if the job or the step has fewer nodes than --min-nodes.
 */
bool nodes_reserve_spares(struct launch *launch);

/*
 * Find out whether a step was refused because nodes are down or do not have the program. If so, the
 * attempt's end is set to RUN_END_NODE. Returns true if a retry may succeed, for example after a
 * restart of slurmctld.
 */
bool nodes_check_refusal(struct launch *launch, struct attempt *attempt);

/*
 * Returns how many nodes the next attempt can have. If the attempt lost a node, also sets
 * launch->usable.
 */
struct run_nodes nodes_count(struct launch *launch, const struct attempt *attempt);

/*
 * Run the tests of --preflight before the first attempt. If nodes failed or are slow, choose the
 * nodes of the first attempt. Returns -1 to continue, or the exit status if too few nodes are left.
 */
int nodes_preflight(struct launch *launch, const struct run_rules *rules);

/*
 * If [attempt] ended by a fault of a node or GPU, test its nodes. If a node fails the test, set the
 * attempt's end to RUN_END_NODE.
 */
void nodes_preflight_again(struct launch *launch, struct attempt *attempt);

/*
 * Choose the nodes for the restart in attempt->decision. [bad] is a node that should be replaced by
 * a spare node, or NULL if there is none.
 */
void nodes_choose(struct launch *launch, struct attempt *attempt, const char *bad);

/* --- claims.c: the nodes that each ddp-run of the job uses --------------------------------- */

/* Claim [nodes], and no others. The claims end with this process. */
void claims_set(const struct node_list *nodes);

/*
 * Add the nodes that other ddp-runs of the job claim to [nodes]. A ddp-run that shares a node with
 * [own] (NULL: none) does not count, because it may share the other nodes as well.
 */
void claims_of_others(const struct node_list *own, struct node_list *nodes);

/* --- preflight.c: tests of nodes ----------------------------------------------------------- */

/* Check that ddp-info is in ddp-run's directory; otherwise print a line and return false. */
bool preflight_check(void);

/*
 * Test [nodes], print a table, and add the nodes that failed to launch->failed, and slow ones to
 * launch->avoid; with --preflight=strict a slow node has failed. [gone] are the nodes that Slurm
 * reports as down or not responding; they count as failed. preflight.json is written to the failure
 * directory [dir]; if [dir] is NULL and there are findings, to the failure directory of the test step.
 */
void preflight_run(struct launch *launch, const struct node_list *nodes,
		   const struct node_list *gone, const char *dir);

#endif /* DDP_RUN_DDP_RUN_H */
