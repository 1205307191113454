/* SPDX-License-Identifier: Apache-2.0 */
/*
 * srun-line.h - a command line of srun: where its options end, and what srun says on stderr
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

/* The options that [help] lists, what srun --help or salloc --help printed; with those of plugins. Ended by free() of option. */
void srun_options_read(struct srun_options *options, const char *help);

/* The option [name], or the only one that begins so, or that is [letter]; NULL: none. */
const struct srun_option *srun_option_find(const struct srun_options *options, const char *name,
					   size_t length, char letter);

/* How many words of [words], a list that ends with NULL, come before the program. */
size_t srun_program(const struct srun_options *options, char **words);

/* Whether the option [name] with [letter] is among the first [end] words; in [value] its last value, "" for none. */
bool srun_given(const struct srun_options *options, char **words, size_t end, const char *name,
		const char **value);

/*
 * Those of the first [end] words that are options which [others] has too, with their values, as a list that ends with NULL;
 * the list is freed by free(), its words are those of [words].
 */
char **srun_shared(const struct srun_options *options, char **words, size_t end,
		   const struct srun_options *others);

/* --- What it says ------------------------------------------------------------------------------ */

struct srun_task {
	int rank;
	char node[FACTS_NAME];
	enum facts_how how;
	int code;
	double time;
};

struct srun_said {
	char line[1024]; /* begun, not ended */
	size_t length;
	struct srun_task *task; /* tasks that did not end well, in the order in which srun told */
	size_t count, room;
	struct node_list lost; /* nodes that failed, says Slurm */
	bool errors;	       /* it told of any */
	bool cancelled;	       /* the step was, before a task failed, or by Ctrl-C */
	bool limit;	       /* by Slurm, for a time limit */
	bool preempted;	       /* by Slurm, for another job */
	bool not_found;	       /* a node could not start the program */
};

/* Take [size] more bytes of srun's stderr, among which are those of ranks, that were read at [now]. */
void srun_hear(struct srun_said *said, const char *bytes, size_t size, double now);
void srun_said_free(struct srun_said *said);

#endif /* DDP_RUN_SRUN_LINE_H */
