/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.h - the command line of ddp-train, from the table in options.def
 */
#ifndef TRAIN_OPTIONS_H
#define TRAIN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "ddp.h"

/* options.def has the sections before its rows. */
enum option {
#define OPTION(id, name, letter, argument, kind, mnist, cifar, section, help) OPTION_##id,
#include "options.def"
#undef OPTION
	OPTION_COUNT
};

struct options {
	const char *net;		  /* "mnist", "cifar" */
	const char *values[OPTION_COUNT]; /* as given, or the default; never NULL */
	bool given[OPTION_COUNT];
};

/* What to do after parsing. */
enum options_verdict { OPTIONS_RUN, OPTIONS_DONE, OPTIONS_WRONG };

/*
 * Read the command line. What was not given has the default of the network, or of the optimizer
 * that was given. Of ranks that srun or torchrun started the first alone speaks. --help and --version are answered on stdout. A wrong option, argument,
 * value or combination is told in one line on stderr: what, its value, what would be right (the
 * nearest name where one is near).
 */
enum options_verdict options_parse(struct options *options, int argc, char **argv);

/* Of an option that was parsed, so that these cannot fail. */
const char *option_text(const struct options *options, enum option option); /* "" : not given */
uint64_t option_count(const struct options *options, enum option option);
double option_number(const struct options *options, enum option option);
bool option_flag(const struct options *options, enum option option);
int option_word(const struct options *options, enum option option); /* its place in the list */

/* The name of [option], without dashes. */
const char *option_name(enum option option);

/* Whether what [option] says changes the numbers that come out: it goes into checkpoints. */
bool option_matters(enum option option);

/* The options as part of ddp-train(1). */
void options_print_roff(FILE *file);

#endif /* TRAIN_OPTIONS_H */
