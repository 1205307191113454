/* SPDX-License-Identifier: Apache-2.0 */
/* options-table.h - the rows of options.def, for the parser and the help */
#ifndef TRAIN_OPTIONS_TABLE_H
#define TRAIN_OPTIONS_TABLE_H

#include "options.h"

enum option_kind {
	OPTION_KIND_FLAG,
	OPTION_KIND_COUNT,
	OPTION_KIND_NUMBER,
	OPTION_KIND_TEXT,
	OPTION_KIND_WORD
};

enum option_section {
#define OPTION_SECTION(id, title) OPTION_SECTION_##id,
	OPTION_SECTIONS(OPTION_SECTION)
#undef OPTION_SECTION
		OPTION_SECTION_COUNT
};

/* The networks, in the order of the defaults. */
enum options_net { OPTIONS_MNIST, OPTIONS_CIFAR, OPTIONS_NETS };

struct option_row {
	const char *name;
	char letter; /* 0: none */
	const char *argument;
	enum option_kind kind;
	const char *defaults[OPTIONS_NETS];
	enum option_section section;
	const char *help;
};

extern const struct option_row option_rows[OPTION_COUNT];

/* "mnist", "cifar". */
extern const char *const options_net_names[OPTIONS_NETS];

/* Whether another rank says the same: all read the same command line. */
bool options_silent(void);

/* A line on stderr, unless another rank says it. Returns false, for callers to return. */
bool options_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The one of [count] names that is nearest to [text], NULL where none is near. */
const char *options_nearest(const char *text, size_t length, const char *(*name)(size_t),
			    size_t count);

/* Whether the options go with each other; else a complaint about the first that does not. */
bool options_check(const struct options *options);

/* On stdout: one screen; all of them with the defaults of [net]. */
void options_print_help(void);
void options_print_help_of(enum options_net net);

#endif /* TRAIN_OPTIONS_TABLE_H */
