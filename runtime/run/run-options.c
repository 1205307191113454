/* SPDX-License-Identifier: Apache-2.0 */
/* run-options.c - parse the options of ddp-run, and print its help */
#include "config.h"

#include "run-options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/settings.h"
#include "base/text.h"

enum kind { KIND_FLAG, KIND_WORDS, KIND_COUNT, KIND_PART, KIND_TIME, KIND_TEXT };

static const struct run_option_row {
	const char *name, *argument;
	enum kind kind;
	double lowest;
	const char *normally, *help;
} run_option_rows[RUN_OPTION_COUNT] = {
#define OPTION(id, name, argument, kind, lowest, normally, help) \
	{name, argument, KIND_##kind, lowest, normally, help},
#include "run-options.def"
#undef OPTION
};

enum { EXIT_USAGE = 2, HELP_COLUMN = 20 };

static void print_help(void)
{
	puts("usage: ddp-run [OPTION...] [SRUN'S OPTION...] program [argument...]\n"
	     "\n"
	     "Run srun --ddp, and restart the program after a failure. Options of ddp-run\n"
	     "come before those of srun.\n");
	for (int i = 0; i < RUN_OPTION_COUNT; i++) {
		const struct run_option_row *row = &run_option_rows[i];
		const char *end = strstr(row->help, ". ");
		size_t length = end ? (size_t)(end - row->help) : strlen(row->help);
		int column = printf("  --%s%s%s", row->name, *row->argument == '[' ? "" : " ",
				    row->argument);

		/* If the option is too long for its column, print its help in the next line. */
		if (column > HELP_COLUMN - 2)
			putchar('\n'), column = 0;
		(void)ddp_print_words(column, HELP_COLUMN, row->help, length);
		putchar('\n');
	}
	puts("  --help, --version\n"
	     "\n"
	     "  ddp-run -N4 --gres=gpu:4 --ntasks-per-node=4 python3 train.py\n"
	     "  ddp-run --spare-nodes 1 --hang 10m python3 train.py\n"
	     "  ddp-run --explain .ddp/failed-tux-1042.0\n"
	     "\n"
	     "Exit status: that of the last srun; 2: invalid options; 93: the attempts make no progress,\n"
	     "do not requeue the job; 94: too few nodes are left.");
}

/*
 * Parse the number of an option, such as a count or a time ("1.5m"). Returns false if [text] has
 * another form, or if the number is not in the option's range.
 */
static bool read_number(const struct run_option_row *row, const char *text, double *value)
{
	bool time = row->kind == KIND_TIME;
	bool part = row->kind == KIND_PART;
	size_t length = strspn(text, time || part ? "0123456789." : "0123456789");
	char *end;

	if (length == 0 || length > 12)
		return false;
	*value = strtod(text, &end);
	if (end != text + length)
		return false;
	if (time && *end && !end[1]) {
		const char *unit = strchr("smh", *end);

		if (unit) {
			*value *= *unit == 's' ? 1 : *unit == 'm' ? 60 : 3600;
			end++;
		}
	}
	return !*end && *value >= row->lowest && *value <= (part ? 1 : 1e9);
}

/* Whether [word], which has [length] bytes, is one of the comma-separated words of [list]. */
static bool list_has(const char *list, const char *word, size_t length)
{
	for (const char *at = list; *at; at += strspn(at, ",")) {
		size_t size = strcspn(at, ",");

		if (size == length && strncmp(at, word, length) == 0)
			return true;
		at += size;
	}
	return false;
}

bool run_options_have_word(const struct run_options *options, enum run_option_id id,
			   const char *word)
{
	const char *text = options->text[id];

	return text && list_has(text, word, strlen(word));
}

/* Whether all words of [text] are listed in the argument of [row], which has the form "[=A,B]". */
static bool knows_words(const struct run_option_row *row, const char *text)
{
	char known[64];

	snprintf(known, sizeof(known), "%.*s", (int)strcspn(row->argument + 2, "]"),
		 row->argument + 2);
	for (const char *at = text;; at++) {
		size_t length = strcspn(at, ",");

		if (length == 0 || !list_has(known, at, length))
			return false;
		at += length;
		if (!*at)
			return true;
	}
}

/* Set option [id]. [from] names the option or variable that has the value, for messages. */
static bool set(struct run_options *options, int id, const char *from, const char *text)
{
	const struct run_option_row *row = &run_option_rows[id];

	options->text[id] = text;
	if (row->kind == KIND_TEXT) {
		if (*text)
			return true;
		fprintf(stderr, "ddp-run: %s has no value. Give --%s %s.\n", from, row->name,
			row->argument);
		return false;
	}
	if (row->kind == KIND_FLAG) {
		options->number[id] = 1;
		return true;
	}
	if (row->kind == KIND_WORDS) {
		options->number[id] = 1;
		if (!text || knows_words(row, text))
			return true;
		fprintf(stderr, "ddp-run: %s=%s is not valid. Give --%s%s.\n", from, text,
			row->name, row->argument);
		return false;
	}
	if (read_number(row, text, &options->number[id]))
		return true;
	if (row->kind == KIND_TIME && row->lowest > 0)
		fprintf(stderr,
			"ddp-run: %s %s is not valid. Give at least %g s, in seconds, or as a "
			"number with s, m or h.\n",
			from, text, row->lowest);
	else if (row->kind == KIND_TIME)
		fprintf(stderr,
			"ddp-run: %s %s is not valid. Give seconds, or a number with s, m or h.\n",
			from, text);
	else if (row->kind == KIND_PART)
		fprintf(stderr, "ddp-run: %s %s is not valid. Give a number from %g to 1.\n", from,
			text, row->lowest);
	else
		fprintf(stderr,
			"ddp-run: %s %s is not valid. Give a whole number, at least %.0f.\n", from,
			text, row->lowest);
	return false;
}

/*
 * Find the option in [word], and set [value] to the text after "=", or to NULL if there is none.
 * Returns RUN_OPTION_COUNT if [word] is not an option of ddp-run.
 */
static int find(const char *word, const char **value)
{
	size_t length = strcspn(word, "=");

	*value = word[length] ? word + length + 1 : NULL;
	if (strncmp(word, "--", 2) != 0)
		return RUN_OPTION_COUNT;
	for (int i = 0; i < RUN_OPTION_COUNT; i++)
		if (strlen(run_option_rows[i].name) == length - 2 &&
		    strncmp(word + 2, run_option_rows[i].name, length - 2) == 0)
			return i;
	return RUN_OPTION_COUNT;
}

bool run_options_have(const char *word)
{
	const char *value;

	return find(word, &value) != RUN_OPTION_COUNT;
}

/* Whether the user gave option [id]. A default does not count. */
static bool is_given(const struct run_options *options, enum run_option_id id)
{
	return options->text[id] && options->text[id] != run_option_rows[id].normally;
}

/* Check that each given option has an effect, because the option that it needs is also given. */
static bool check_needed(const struct run_options *options)
{
	static const struct {
		enum run_option_id id, needed;
	} pairs[] = {{RUN_OPTION_MAX_REQUEUES, RUN_OPTION_REQUEUE},
		     {RUN_OPTION_PREFLIGHT_SLOW, RUN_OPTION_PREFLIGHT},
		     {RUN_OPTION_PREFLIGHT_LIMIT, RUN_OPTION_PREFLIGHT}};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		const char *needed = run_option_rows[pairs[i].needed].name;

		if (!is_given(options, pairs[i].id) || options->number[pairs[i].needed] > 0)
			continue;
		fprintf(stderr, "ddp-run: --%s has no effect without --%s. Add --%s.\n",
			run_option_rows[pairs[i].id].name, needed, needed);
		return false;
	}
	return true;
}

int run_options_parse(struct run_options *options, char **argv)
{
	const char *restarts = ddp_getenv("SLURM_DDP_RESTARTS", NULL);
	char **at = argv + 1;

	*options = (struct run_options){.rest = NULL};
	for (int i = 0; i < RUN_OPTION_COUNT; i++)
		if (*run_option_rows[i].normally)
			(void)set(options, i, "", run_option_rows[i].normally);
	for (; *at; at++) {
		const char *value;
		int id = find(*at, &value);
		char from[64];

		if (strcmp(*at, "--help") == 0) {
			print_help();
			return 0;
		}
		if (strcmp(*at, "--version") == 0) {
			printf("ddp-run %s\n", PACKAGE_VERSION);
			return 0;
		}
		if (id == RUN_OPTION_COUNT)
			break;
		snprintf(from, sizeof(from), "--%s", run_option_rows[id].name);
		if (run_option_rows[id].kind == KIND_FLAG) {
			if (value) {
				fprintf(stderr, "ddp-run: %s takes no value. Remove \"=%s\".\n",
					from, value);
				return EXIT_USAGE;
			}
			value = "";
		} else if (!value && run_option_rows[id].kind != KIND_WORDS) {
			value = at[1];
			if (!value) {
				fprintf(stderr, "ddp-run: %s has no value. Give %s %s.\n", from,
					from, run_option_rows[id].argument);
				return EXIT_USAGE;
			}
			at++;
		}
		if (!set(options, id, from, value))
			return EXIT_USAGE;
	}
	if (*at && strcmp(*at, "--") == 0)
		at++;
	options->rest = at;
	if (options->text[RUN_OPTION_EXPLAIN])
		return -1;
	if (!check_needed(options) ||
	    (restarts && !is_given(options, RUN_OPTION_RESTARTS) &&
	     !set(options, RUN_OPTION_RESTARTS, "SLURM_DDP_RESTARTS", restarts)))
		return EXIT_USAGE;
	if (*at)
		return -1;
	fputs("ddp-run: the program is missing. Use ddp-run [OPTION...] [SRUN'S OPTION...] "
	      "program\n",
	      stderr);
	return EXIT_USAGE;
}
