/* SPDX-License-Identifier: Apache-2.0 */
/*
 * srun-output.h - the output of srun: which rank wrote it, and what srun and slurmstepd say about the step
 */
#ifndef DDP_RUN_SRUN_OUTPUT_H
#define DDP_RUN_SRUN_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "nodes.h"
#include "patterns.h"

/* --- Labels ------------------------------------------------------------------------------------ */

/* The state of srun_unlabel(); {.length = 0} at first. */
struct srun_labels {
	char line[1100]; /* the line so far; a line with a label fits */
	size_t length;
	bool cut; /* the beginning of the line was passed on already: it has no label */
};

/* Receives [size] bytes that [rank] wrote; -1: srun. */
typedef void srun_output(void *data, int rank, const char *bytes, size_t size);

/*
 * Pass [size] more bytes of the output of srun --label to [output], line by line, without the labels.
 *
 * A rank's output is passed on as the rank wrote it, also if Slurm cut a line of more than 1,024 bytes into pieces, each with a label
 * and an end of line. srun also ends the last line of a rank that did not end it itself; the two cannot be distinguished. If a rank ends
 * while Slurm has a megabyte or so of its output left, Slurm sends the last 4 KiB in pieces of several lines and cuts the last of these:
 * up to four lines have an end that the rank did not write.
 */
void srun_unlabel(struct srun_labels *labels, const char *bytes, size_t size, srun_output *output,
		  void *data);

/* --- Messages ---------------------------------------------------------------------------------- */

/* A task that did not end well. */
struct srun_task {
	int rank;
	char node[FACTS_NAME];
	enum facts_how how;
	int code;
	double time;
};

struct srun_said {
	/* Identify the step of ddp-run: a program may start steps itself, whose messages come through as well. */
	const char *_Atomic step; /* "4.0"; NULL: not known yet, every step counts */
	const struct node_list
		*_Atomic nodes; /* its nodes; NULL: not known yet, every node counts */
	const char *program;	/* NULL: its name may change on the way */
	bool mixed;		/* messages about tasks may be about another step */
	bool stays;		/* --kill-on-bad-exit=0: a task that fails does not end the step */

	char line[1024]; /* the line so far */
	size_t length;
	struct srun_task *task;	  /* in the order of srun's messages */
	size_t count, room, last; /* last: where the tasks of the last message begin */
	struct node_list lost;	  /* nodes that failed */
	struct node_list missed;  /* nodes on which srun could not start tasks */
	char named[64]; /* the step in the first message of srun that has one, "4.0"; "": none */
	bool errors;	/* srun printed an error */
	bool ending;	/* srun ends the step: a task failed */
	int wait;	/* seconds of --wait, when srun ends the step for that; else 0 */
	bool late;	/* srun ends the step: a rank still ran after --wait */
	bool broken;	/* srun ends the step: it lost a slurmstepd */
	bool cancelled; /* the step was, before a task failed, or by Ctrl-C */
	bool forced;	/* srun received SIGTERM or SIGHUP, and ended the step */
	bool aborted;	/* the step was cancelled, or, if mixed, a step that the program started */
	bool limit;	/* Slurm ended the step for a time limit */
	bool preempted; /* Slurm ended the step for another job */
	bool not_found; /* a node could not start the program; or no_file, and there was no rank */
	bool no_file;	/* srun could not open a file of --input, --output or --error */
	char refusal
		[256]; /* set for not_found and no_file: "execve(): a.out: No such file or directory" */
};

/*
 * Read [size] more bytes of srun's stderr, which came at [now]. If a [rank] wrote them, only lines of its slurmstepd count, which have the
 * rank's label: the rank may have started an srun itself. -1: srun wrote them, or the writer is not known.
 */
void srun_hear(struct srun_said *said, int rank, const char *bytes, size_t size, double now);

/* Whether srun ended the step because it lost a node or a slurmstepd, or never reached a node. */
bool srun_lost_node(const struct srun_said *said);
void srun_said_free(struct srun_said *said);

#endif /* DDP_RUN_SRUN_OUTPUT_H */
