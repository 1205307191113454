/* SPDX-License-Identifier: Apache-2.0 */
/* run-options.h - parse the options of ddp-run, from the table in run-options.def */
#ifndef DDP_RUN_RUN_OPTIONS_H
#define DDP_RUN_RUN_OPTIONS_H

#include <stdbool.h>

enum run_option_id {
#define OPTION(id, ...) RUN_OPTION_##id,
#include "run-options.def"
#undef OPTION
	RUN_OPTION_COUNT
};

struct run_options {
	const char *text[RUN_OPTION_COUNT]; /* the user's value, or the default; NULL: neither */
	/* value of an option that is a count, a time (in seconds) or a flag; 0 if it has none */
	double number[RUN_OPTION_COUNT];
	char **rest; /* srun's options, the program, its arguments */
};

/*
 * Parse [argv]. ddp-run's options end at the first word that is not in the table. --help and
 * --version print to stdout. Returns -1 to continue, else the exit status; errors are printed to
 * stderr.
 */
int run_options_parse(struct run_options *options, char **argv);

/* Whether option [id], of kind WORDS, was given and has [word] in its value. */
bool run_options_have_word(const struct run_options *options, enum run_option_id id,
			   const char *word);

/* Whether [word], "--name" or "--name=value", is an option of the table. */
bool run_options_have(const char *word);

#endif /* DDP_RUN_RUN_OPTIONS_H */
