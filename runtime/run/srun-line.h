/* SPDX-License-Identifier: Apache-2.0 */
/*
 * srun-line.h - a command line of srun: where its options end; and its output: whose it is, and what srun itself says
 */
#ifndef DDP_RUN_SRUN_LINE_H
#define DDP_RUN_SRUN_LINE_H

#include <stdbool.h>
#include <stddef.h>

#include "facts.h"
#include "nodes.h"

/* --- Its options ------------------------------------------------------------------------------- */

enum srun_takes { SRUN_NOTHING, SRUN_VALUE, SRUN_OPTIONAL };

struct srun_option {
	char name[48]; /* long */
	char letter;   /* 0: none */
	enum srun_takes takes;
};

struct srun_options {
	struct srun_option *option;
	size_t count;
};

/*
 * The options that [help] lists, what srun --help or, with [salloc], salloc --help printed, with those of plugins; and those that the
 * command has but does not list. Ended by free() of option.
 */
void srun_options_read(struct srun_options *options, const char *help, bool salloc);

/* The option [name], or the only one that begins so, or that is [letter]; NULL: none. */
const struct srun_option *srun_option_find(const struct srun_options *options, const char *name,
					   size_t length, char letter);

/* How many words of [words], a list that ends with NULL, come before the program. */
size_t srun_program(const struct srun_options *options, char **words);

/* Whether the option [name] is given before the program; in [value] its last value, "" for none. */
bool srun_given(const struct srun_options *options, char **words, const char *name,
		const char **value);

/* The first long option before the program that srun does not have; NULL: none. */
const char *srun_unknown(const struct srun_options *options, char **words);

/*
 * Those of the options before the program that [others] has too, as "--name=value", in a list that ends with NULL; it and its
 * words are freed by free().
 */
char **srun_shared(const struct srun_options *options, char **words,
		   const struct srun_options *others);

/* --- Whose its output is ------------------------------------------------------------------------ */

/* Its output so far; {.length = 0} at first. */
struct srun_labels {
	char line[1100]; /* has not ended; with a label there is room for all of it */
	size_t length;
	bool cut; /* its beginning was taken already: it has no label */
};

/* Takes [size] bytes, which [rank] wrote; -1: srun did. */
typedef void srun_take(void *data, int rank, const char *bytes, size_t size);

/*
 * Hand [size] more bytes of the output of srun --label to [take], without the labels, when their line has ended.
 *
 * What a rank wrote comes out as it wrote it, also where a line of more than 1,024 bytes came in pieces, each of which srun labels
 * and ends like a line. What cannot be told is whether a rank ended its last line: srun does where it did not. And of a rank that
 * ends while Slurm still has a megabyte or so of its output to pass on, the last 4 KiB come in pieces of several lines, whose last
 * one is cut: up to four lines have an end in them that is not the rank's.
 */
void srun_unlabel(struct srun_labels *labels, const char *bytes, size_t size, srun_take *take,
		  void *data);

/* --- What it says ------------------------------------------------------------------------------ */

struct srun_task {
	int rank;
	char node[FACTS_NAME];
	enum facts_how how;
	int code;
	double time;
};

struct srun_said {
	/* Ours: a program may start steps itself, whose words come through as well. */
	const char *_Atomic step;	       /* "4.0"; NULL: not known yet, each counts */
	const struct node_list *_Atomic nodes; /* of it; NULL: not known yet, each counts */
	const char *program;		       /* NULL: its name may change on the way */
	bool mixed; /* nothing tells our srun's words from those of another */

	char line[1024]; /* begun, not ended */
	size_t length;
	struct srun_task *task;	  /* tasks that did not end well, in the order in which srun told */
	size_t count, room, last; /* last: where those of the last line about tasks begin */
	struct node_list lost;	  /* nodes that failed, says Slurm */
	struct node_list missed;  /* nodes where it could not start tasks */
	bool errors;		  /* it told of any */
	bool ending;		  /* it ends the step: a task failed */
	int wait;	/* seconds of its --wait, when it ends the step for that; else 0 */
	bool late;	/* it ends our step since a rank still ran after its --wait */
	bool broken;	/* it does, since it lost a slurmstepd */
	bool cancelled; /* the step was, before a task failed, or by Ctrl-C */
	bool forced;	/* it received SIGTERM or SIGHUP, and ended the step */
	bool aborted; /* the step was cancelled, or, as this is mixed, one that the program started */
	bool limit;   /* by Slurm, for a time limit */
	bool preempted;	   /* by Slurm, for another job */
	bool not_found;	   /* a node could not start the program */
	char refusal[256]; /* then: "execve(): a.out: No such file or directory" */
};

/*
 * Whether [text] of srun -v for a step on one node, that failed or had to be [ended], says that the step was made, and srun
 * then did not reach the node.
 */
bool srun_missed_node(const char *text, bool ended);

/* The last error of [text], in [why] of [size] bytes. */
void srun_reason(const char *text, char *why, size_t size);

/*
 * Take [size] more bytes of srun's stderr, that were read at [now]. Of a [rank]'s, which may have started a step itself, only those of
 * its slurmstepd count, which have the rank's label; -1: srun's own, or nobody knows.
 */
void srun_hear(struct srun_said *said, int rank, const char *bytes, size_t size, double now);

/* Whether srun ended the step itself, since it lost a node or a slurmstepd, or never reached it. */
bool srun_lost_node(const struct srun_said *said);
void srun_said_free(struct srun_said *said);

#endif /* DDP_RUN_SRUN_LINE_H */
