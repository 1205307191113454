/* SPDX-License-Identifier: Apache-2.0 */
/*
 * srun-options.h - a command line of srun: its options, by srun --help, and the program behind them
 *
 * A command line is a list of words that ends with NULL.
 */
#ifndef DDP_RUN_SRUN_OPTIONS_H
#define DDP_RUN_SRUN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

struct srun_option {
	char name[48]; /* long */
	char letter;   /* 0: none */
	enum { SRUN_NOTHING, SRUN_VALUE, SRUN_OPTIONAL } takes;
};

struct srun_options {
	struct srun_option *option;
	size_t count;
};

/*
 * Read the options that [help] lists, the output of srun --help or, with [salloc], salloc --help, which includes those of plugins; and add
 * those that the command accepts but does not list. Ended by free() of option.
 */
void srun_options_read(struct srun_options *options, const char *help, bool salloc);

/* Add an option that srun itself does not have, "--name", or "--name=" if it has a value. */
void srun_options_add(struct srun_options *options, const char *text);

/* Whether srun has option [name]. */
bool srun_has(const struct srun_options *options, const char *name);

/* The number of words that come before the program. */
size_t srun_program(const struct srun_options *options, char **words);

/* Whether option [name] is given before the program. Sets [value] to its last value, "" if it has none. */
bool srun_given(const struct srun_options *options, char **words, const char *name,
		const char **value);

/* The first long option before the program that srun does not have; NULL: none. */
const char *srun_unknown(const struct srun_options *options, char **words);

/*
 * The options before the program that [others] has too, as "--name=value", in a list that ends with NULL; it and its
 * words are freed by free().
 */
char **srun_shared(const struct srun_options *options, char **words,
		   const struct srun_options *others);

#endif /* DDP_RUN_SRUN_OPTIONS_H */
