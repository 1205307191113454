/* SPDX-License-Identifier: Apache-2.0 */
/*
 * srun-options.h - parse a command line of srun: the options before the program, and where the
 * program begins
 *
 * The options are those that srun --help lists. A command line is a NULL-terminated list of words.
 */
#ifndef DDP_RUN_SRUN_OPTIONS_H
#define DDP_RUN_SRUN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

struct srun_option {
	char name[48]; /* long name */
	char letter;   /* short name; 0: none */
	enum { SRUN_NOTHING, SRUN_VALUE, SRUN_OPTIONAL } takes;
};

struct srun_options {
	struct srun_option *option;
	size_t count, capacity;
};

/*
 * Parse [help], the output of srun --help, or of salloc --help if [salloc] is set. The options in
 * it include those of plugins. Also adds options that the command accepts but does not list. The
 * caller frees options->option.
 */
void srun_options_read(struct srun_options *options, const char *help, bool salloc);

/*
 * Add the options in [text] that are not in [options] yet. Each line of [text] is an option as in a
 * help text: "--name", or "--name=" if it has a value.
 */
void srun_options_add(struct srun_options *options, const char *text);

bool srun_has(const struct srun_options *options, const char *name);

/* Returns the number of words before the program. */
size_t srun_program(const struct srun_options *options, char **words);

/*
 * Whether option [name] is given before the program. If so, sets [value] to its last value; "" if
 * it has none.
 */
bool srun_given(const struct srun_options *options, char **words, const char *name,
		const char **value);

/* Returns how often option [name] is given before the program. */
size_t srun_count(const struct srun_options *options, char **words, const char *name);

/* Returns the first long option before the program that srun does not have; NULL: none. */
const char *srun_unknown(const struct srun_options *options, char **words);

/*
 * Returns the options before the program that [others] also contains, as "--name=value", in a
 * NULL-terminated list. The caller frees the list and its words.
 */
char **srun_shared(const struct srun_options *options, char **words,
		   const struct srun_options *others);

#endif /* DDP_RUN_SRUN_OPTIONS_H */
