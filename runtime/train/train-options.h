/* SPDX-License-Identifier: Apache-2.0 */
/*
 * train-options.h - the command line of ddp-train, from the table in train-options.def
 */
#ifndef TRAIN_OPTIONS_H
#define TRAIN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "ddp.h"

/* train-options.def also defines OPTION_SECTIONS, which is used below. */
enum option_id {
#define OPTION(id, ...) OPTION_##id,
#include "train-options.def"
#undef OPTION
	OPTION_COUNT
};

enum option_section {
#define OPTION_SECTION(id, title) OPTION_SECTION_##id,
	OPTION_SECTIONS(OPTION_SECTION)
#undef OPTION_SECTION
		OPTION_SECTION_COUNT
};

enum option_kind {
	OPTION_KIND_FLAG,
	OPTION_KIND_COUNT,
	OPTION_KIND_NUMBER,
	OPTION_KIND_TEXT,
	OPTION_KIND_WORD
};

/* Networks. option_row.defaults has the same order. */
enum option_net { OPTION_MNIST, OPTION_CIFAR, OPTION_NETS };

struct option_row {
	const char *name; /* without dashes */
	char letter;	  /* letter of the short option, or 0 */
	const char *argument;
	enum option_kind kind;
	double lowest, highest; /* for numbers */
	const char *defaults[OPTION_NETS];
	enum option_section section;
	const char *help;
};

extern const struct option_row option_rows[OPTION_COUNT];
extern const char *const option_nets[OPTION_NETS]; /* "mnist", "cifar" */

struct options {
	const char *net;		  /* "mnist", "cifar" */
	const char *values[OPTION_COUNT]; /* as given, or the default values; never NULL */
	bool given[OPTION_COUNT];
};

/* How to proceed after parsing. */
enum options_verdict { OPTIONS_RUN, OPTIONS_DONE, OPTIONS_WRONG };

/*
 * Parses the command line. Options that are not given get the network's default or, if an optimizer
 * was given, that optimizer's default. Prints --help and --version on stdout. If an option,
 * argument, value or combination is wrong, prints one line on stderr: what is wrong, and a remedy
 * such as the most similar name. Under srun or torchrun, only the first rank prints.
 */
enum options_verdict options_parse(struct options *options, int argc, char **argv);

/*
 * Print "ddp-train: warning: " and a line on stderr. Under srun or torchrun, only the first rank
 * prints.
 */
void options_warn(const char *format, ...) DDP_FORMAT(1, 2);

/* Values of an option. They were checked by options_parse(). */
const char *option_text(const struct options *options, enum option_id id); /* "": not given */
uint64_t option_count(const struct options *options, enum option_id id);
double option_number(const struct options *options, enum option_id id);
bool option_flag(const struct options *options, enum option_id id);
int option_word(const struct options *options, enum option_id id); /* index in the list of words */

/* Whether the option affects the results. Checkpoints store such options. */
bool option_matters(enum option_id id);

#endif /* TRAIN_OPTIONS_H */
