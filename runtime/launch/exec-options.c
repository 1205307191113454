/* SPDX-License-Identifier: Apache-2.0 */
/* exec-options.c - parse the command line of ddp-exec, and print its help */
#include "config.h"

#include "exec-options.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

enum { HELP_COLUMN = 22 };

static const struct {
	const char *name, *help;
} exec_option_rows[EXEC_OPTION_COUNT] = {
#define EXEC_OPTION(id, name, help, manual) {name, help},
#include "exec-options.def"
#undef EXEC_OPTION
};

/* Whether option [id] of srun --ddp is also an option of ddp-exec. --ddp and --no-ddp are not. */
static bool is_shared(enum ddp_option_id id)
{
	return ddp_option(id)->option && id != DDP_OPT_DDP && id != DDP_OPT_NO_DDP;
}

static void print_option(const char *name, const char *argument, const char *help)
{
	int column = printf("  --%s%s%s", name, argument ? "=" : "", argument ? argument : "");

	/* The help of a long option starts on the next line. */
	if (column > HELP_COLUMN - 2)
		putchar('\n'), column = 0;
	(void)ddp_print_words(column, HELP_COLUMN, help, strlen(help));
	putchar('\n');
}

void exec_options_print_help(void)
{
	puts("usage: srun [SRUN'S OPTION...] ddp-exec [OPTION...] program [argument...]\n"
	     "\n"
	     "In a task of srun, set the variables that srun --ddp sets, and run the program.\n");
	print_option(exec_option_rows[EXEC_OPTION_PRINT].name, NULL,
		     exec_option_rows[EXEC_OPTION_PRINT].help);
	for (int id = 0; id < DDP_OPT_COUNT; id++) {
		const struct ddp_option *o = ddp_option((enum ddp_option_id)id);

		if (is_shared((enum ddp_option_id)id))
			print_option(o->option, o->argument, o->help);
	}
	puts("  --help, --version\n\n  srun -N2 --ntasks-per-node=4 ddp-exec python3 train.py\n"
	     "\n"
	     "Exit status: that of the program; 1: the ranks did not find each other; 2: invalid options;\n126, 127: as in sh.");
}

/*
 * Parse [word] if it is an option that srun --ddp has, too. Its value may be the word [next].
 * Returns the number of words that were read, 0 if [word] is another option, or -1 with a message.
 */
static int read_shared(struct exec_options *options, const char *word, const char *next,
		       struct ddp_message *message)
{
	size_t length = strcspn(word, "=");

	for (int id = 0; id < DDP_OPT_COUNT; id++) {
		const struct ddp_option *o = ddp_option((enum ddp_option_id)id);
		const char *value = word[length] ? word + length + 1 : NULL;
		bool separate = o->argument && !value;

		if (!is_shared((enum ddp_option_id)id) || strlen(o->option) != length ||
		    strncmp(o->option, word, length) != 0)
			continue;
		if (!o->argument && value)
			return ddp_fail(message, "--%s takes no value. Remove \"=%.100s\".",
					o->option, value);
		if (ddp_values_set(&options->values, (enum ddp_option_id)id,
				   separate ? next : value, DDP_FROM_COMMAND, message) < 0)
			return -1;
		return separate ? 2 : 1;
	}
	return 0;
}

/*
 * Parse an option that only ddp-exec has. --ddp is accepted and has no effect, because users are
 * used to it from the plugin.
 */
static bool read_own(struct exec_options *options, const char *word)
{
	if (strcmp(word, "ddp") == 0)
		return true;
	for (int id = 0; id < EXEC_OPTION_COUNT; id++)
		if (strcmp(exec_option_rows[id].name, word) == 0)
			return options->given[id] = true;
	return false;
}

int exec_options_parse(struct exec_options *options, char **argv, char *const *env,
		       struct ddp_message *message)
{
	char **at = argv + 1;

	*options = (struct exec_options){.program = NULL};
	ddp_values_init(&options->values);
	(void)ddp_values_set(&options->values, DDP_OPT_DDP, NULL, DDP_FROM_COMMAND, message);
	while (*at && strncmp(*at, "-", 1) == 0 && strcmp(*at, "--") != 0) {
		int words = strncmp(*at, "--", 2) == 0
				    ? read_shared(options, *at + 2, at[1], message)
				    : 0;

		if (words == 0 && strncmp(*at, "--", 2) == 0)
			words = read_own(options, *at + 2);
		if (words == 0)
			return ddp_fail(message,
					"%.100s is not an option of ddp-exec. Write options of "
					"srun before ddp-exec, and see ddp-exec --help.",
					*at);
		if (words < 0)
			return -1;
		at += words;
	}
	if (*at && strcmp(*at, "--") == 0)
		at++;
	options->program = at;
	return ddp_values_from_env(&options->values, env, message);
}
