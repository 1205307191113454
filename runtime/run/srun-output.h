/* SPDX-License-Identifier: Apache-2.0 */
/*
 * srun-output.h - parse srun's output: the rank that wrote a line, and messages of srun and
 * slurmstepd about the step
 */
#ifndef DDP_RUN_SRUN_OUTPUT_H
#define DDP_RUN_SRUN_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "nodes.h"
#include "patterns.h"

/* --- Labels -------------------------------------------------------------------------------- */

/* State of srun_unlabel(). Initialize with {.length = 0}. */
struct srun_labels {
	char line[1100]; /* the incomplete line; a piece of Slurm with its label fits */
	size_t length;
	bool cut; /* the beginning of the line was already passed on, so there is no label */
};

/* Receives [size] bytes that [rank] wrote; -1: srun wrote them. */
typedef void srun_output(void *data, int rank, const char *bytes, size_t size);

/*
 * Pass [size] more bytes of the output of srun --label to [output], line by line, without the
 * labels.
 *
 * A rank's output is passed on as the rank wrote it, even if Slurm cut a line of more than 1,024
 * bytes into pieces, each with a label and a newline. srun also adds a newline to the last line of
 * a rank that lacks it; this is not detected. If a rank exits while Slurm has about a megabyte of
 * its output left, Slurm sends the last 4 KiB in pieces of several lines, and cuts the last of
 * these: up to four lines then have a newline that the rank did not write.
 */
void srun_unlabel(struct srun_labels *labels, const char *bytes, size_t size, srun_output *output,
		  void *data);

/* --- Messages ------------------------------------------------------------------------------ */

/* A task that failed. */
struct srun_task {
	int rank;
	char node[FACTS_NAME];
	enum facts_how how;
	int code;
	double time;
};

struct srun_said {
	/*
	 * Identify ddp-run's step, because messages of steps that the program starts arrive as
	 * well.
	 */
	const char *_Atomic step; /* such as "4.0"; NULL: unknown, so every step matches */
	const struct node_list
		*_Atomic nodes; /* nodes of the step; NULL: unknown, so every node matches */
	const char *program;	/* NULL: srun may change its name */
	bool mixed;		/* messages about tasks may be about another step */
	bool stays;		/* --kill-on-bad-exit=0: a failed task does not end the step */

	char line[1024]; /* the incomplete line */
	size_t length;
	struct srun_task *task;	      /* in the order of srun's messages */
	size_t count, capacity, last; /* last: index of the first task of the last message */
	struct node_list lost;	      /* nodes that failed */
	struct node_list missed;      /* nodes on which srun could not start tasks */
	char named[64]; /* first step that a message of srun names, such as "4.0"; "": none */
	bool errors;	/* srun printed an error */
	bool ending;	/* srun ends the step, because a task failed */
	int wait;	/* seconds of --wait, if srun ended the step after that time; else 0 */
	bool late;	/* srun ends the step, because a rank still ran after --wait */
	bool broken;	/* srun ends the step, because it lost a slurmstepd */
	bool cancelled; /* the step was cancelled before a task failed, or by Ctrl-C */
	bool forced;	/* srun received SIGTERM or SIGHUP, and ended the step */
	bool aborted; /* a step was cancelled: this one or, if [mixed], one that the program started */
	bool limit;	/* Slurm ended the step at a time limit */
	bool preempted; /* Slurm ended the step in favour of another job */
	bool not_found; /* a node could not start the program, or no_file is set and no rank started */
	bool no_file; /* srun could not open a file of --input, --output or --error */
	char refusal
		[256]; /* set for not_found and no_file: "execve(): a.out: No such file or directory" */
};

/*
 * Parse [size] more bytes of srun's stderr, which arrived at [now]. If they came from a [rank],
 * only lines of its slurmstepd matter, which have the rank's label: other lines may come from an
 * srun that the rank started. -1: srun wrote them, or the writer is unknown.
 */
void srun_parse_messages(struct srun_said *said, int rank, const char *bytes, size_t size,
			 double now);

/* Whether srun ended the step because it lost a node or a slurmstepd, or never reached a node. */
bool srun_lost_node(const struct srun_said *said);
void srun_said_free(struct srun_said *said);

#endif /* DDP_RUN_SRUN_OUTPUT_H */
