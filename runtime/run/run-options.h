/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run-options.h - the command line of ddp-run, from the table in run-options.def
 */
#ifndef DDP_RUN_RUN_OPTIONS_H
#define DDP_RUN_RUN_OPTIONS_H

#include <stdbool.h>

enum run_option_id {
#define OPTION(id, ...) RUN_OPTION_##id,
#include "run-options.def"
#undef OPTION
	RUN_OPTION_COUNT
};

enum run_option_kind { RUN_OPTION_FLAG, RUN_OPTION_NUMBER, RUN_OPTION_TIME, RUN_OPTION_TEXT };

struct run_option_row {
	const char *name, *argument;
	enum run_option_kind kind;
	double lowest;
	const char *normally, *help;
};

extern const struct run_option_row run_option_rows[RUN_OPTION_COUNT];

struct run_options {
	const char *text[RUN_OPTION_COUNT]; /* as given; NULL: not, and there is no default */
	double number
		[RUN_OPTION_COUNT]; /* of counts, times (in seconds) and flags; 0 where there is none */
	char **rest;		    /* what is srun's: its options, the program, its arguments */
};

/*
 * Read [argv]: options of ours come first, and end at the first word that is none. --help and --version are answered on stdout.
 * Returns -1 to go on, else the exit status; what is wrong was told in one line on stderr.
 */
int run_options_parse(struct run_options *options, char **argv);

/* Whether [word], "--name" or "--name=value", is an option of the table. */
bool run_options_have(const char *word);

#endif /* DDP_RUN_RUN_OPTIONS_H */
