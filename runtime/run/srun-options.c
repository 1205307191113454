/* SPDX-License-Identifier: Apache-2.0 */
/* srun-options.c - read the options that srun --help lists, and find them in a command line */
#include "config.h"

#include "srun-options.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/xalloc.h"

/*
 * Parse a line such as "  -A, --account=name   text" or "      --nice[=value]" of srun's help.
 * Returns false if [line] has another form.
 */
static bool read_option(struct srun_option *option, const char *line)
{
	size_t length;

	*option = (struct srun_option){.letter = 0};
	line += strspn(line, " \t");
	if (line[0] == '-' && isalnum((unsigned char)line[1]) && line[2] == ',') {
		option->letter = line[1];
		line += 3 + strspn(line + 3, " ");
	}
	if (strncmp(line, "--", 2) != 0)
		return false;
	line += 2;
	length = strspn(line, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_");
	if (length == 0 || length >= sizeof(option->name))
		return false;
	memcpy(option->name, line, length);
	option->takes = line[length] == '='		       ? SRUN_VALUE
			: strncmp(line + length, "[=", 2) == 0 ? SRUN_OPTIONAL
							       : SRUN_NOTHING;
	/*
	 * srun --help lists these options as if they had no value, although they have one. For
	 * --container, that is so only in Slurm 22.05.
	 */
	if (strcmp(option->name, "container") == 0 && option->takes == SRUN_NOTHING &&
	    line[length] == ' ' && line[length + 1] == ' ')
		option->takes = SRUN_VALUE;
	if (strcmp(option->name, "kill-on-bad-exit") == 0 || strcmp(option->name, "no-kill") == 0)
		option->takes = SRUN_OPTIONAL;
	return true;
}

/*
 * Returns the option called [name], or the only option whose name begins with [name], or the option
 * with [letter]; NULL: none.
 */
static const struct srun_option *find_option(const struct srun_options *options, const char *name,
					     size_t length, char letter)
{
	const struct srun_option *found = NULL;
	int count = 0;

	for (size_t i = 0; i < options->count; i++) {
		const struct srun_option *option = &options->option[i];

		if (letter) {
			if (option->letter == letter)
				return option;
		} else if (strncmp(option->name, name, length) == 0) {
			if (!option->name[length])
				return option;
			found = option;
			count++;
		}
	}
	return count == 1 ? found : NULL;
}

bool srun_has(const struct srun_options *options, const char *name)
{
	const struct srun_option *found = find_option(options, name, strlen(name), 0);

	return found && strcmp(found->name, name) == 0;
}

/*
 * Options that the help text in Slurm 20.11 to 26.05 does not list, lists only with some task
 * plugins, or lists in another form (source: slurm_opt.c, and opt.c of srun and salloc).
 */
static const char unlisted_of_both[] =
	"--cluster=\n--context=\n--extra=\n-B, --extra-node-info=\n--gid=\n--hint=\n--mem-bind=\n"
	"--network=\n-F, --nodefile=\n--prefer=\n--resources=\n--ntasks-per-gpu=\n"
	"--ntasks-per-tres=\n--segment=\n--uid=\n--tasks-per-node=";
static const char unlisted_of_srun[] =
	"--accel-bind=\n--cpu-bind=\n--cpu_bind=\n--msg-timeout=\n--open-mode=\n--pack-group=\n"
	"--treewidth=";

void srun_options_add(struct srun_options *options, const char *text)
{
	for (const char *at = text; at; at = strchr(at, '\n')) {
		struct srun_option option;

		at += *at == '\n';
		if (!read_option(&option, at) || srun_has(options, option.name))
			continue;
		options->option = ddp_xgrow(options->option, options->count, &options->capacity,
					    sizeof(option), "srun's options");
		options->option[options->count++] = option;
	}
}

void srun_options_read(struct srun_options *options, const char *help, bool salloc)
{
	*options = (struct srun_options){.option = NULL};
	srun_options_add(options, help);
	srun_options_add(options, unlisted_of_both);
	if (!salloc)
		srun_options_add(options, unlisted_of_srun);
}

struct reader {
	const struct srun_options *options;
	char **at;	     /* next word */
	const char *letters; /* remaining letters of the last word; NULL: a long option */
	const struct srun_option *option; /* the option; NULL: unknown to srun */
	const char *value;		  /* the option's value; NULL: none */
};

/*
 * Read the next option. Returns false at "--", at the program, and at the end: there are no more
 * options.
 */
static bool read_next(struct reader *reader)
{
	reader->value = NULL;
	if (!reader->letters || !*reader->letters) {
		const char *word = *reader->at;

		if (!word || word[0] != '-' || !word[1] || strcmp(word, "--") == 0)
			return false;
		reader->at++;
		reader->letters = word[1] == '-' ? NULL : word + 1;
		if (!reader->letters) {
			size_t length = strcspn(word + 2, "=");

			reader->option = find_option(reader->options, word + 2, length, 0);
			if (word[2 + length])
				reader->value = word + 3 + length;
		}
	}
	if (reader->letters) {
		reader->option = find_option(reader->options, "", 0, *reader->letters++);
		if (reader->option && reader->option->takes != SRUN_NOTHING) {
			if (*reader->letters)
				reader->value = reader->letters + (*reader->letters == '=');
			reader->letters = NULL;
		}
	}
	if (!reader->value && reader->option && reader->option->takes == SRUN_VALUE && *reader->at)
		reader->value = *reader->at++;
	return true;
}

size_t srun_program(const struct srun_options *options, char **words)
{
	struct reader reader = {.options = options, .at = words};

	while (read_next(&reader))
		;
	return (size_t)(reader.at - words) + (*reader.at && strcmp(*reader.at, "--") == 0);
}

bool srun_given(const struct srun_options *options, char **words, const char *name,
		const char **value)
{
	struct reader reader = {.options = options, .at = words};
	bool given = false;

	while (read_next(&reader))
		if (reader.option && strcmp(reader.option->name, name) == 0) {
			given = true;
			*value = reader.value ? reader.value : "";
		}
	return given;
}

size_t srun_count(const struct srun_options *options, char **words, const char *name)
{
	struct reader reader = {.options = options, .at = words};
	size_t count = 0;

	while (read_next(&reader))
		count += reader.option && strcmp(reader.option->name, name) == 0;
	return count;
}

const char *srun_unknown(const struct srun_options *options, char **words)
{
	struct reader reader = {.options = options, .at = words};

	while (read_next(&reader))
		if (!reader.option && !reader.letters)
			return reader.at[-1];
	return NULL;
}

char **srun_shared(const struct srun_options *options, char **words,
		   const struct srun_options *others)
{
	struct reader reader = {.options = options, .at = words};
	size_t most = 1, count = 0;
	char **list;

	while (read_next(&reader))
		most++;
	list = ddp_xcalloc(most, sizeof(*list), "salloc's options");
	reader = (struct reader){.options = options, .at = words};
	while (read_next(&reader)) {
		struct ddp_text text = {.data = NULL};

		if (!reader.option || !srun_has(others, reader.option->name))
			continue;
		ddp_text_add(&text, "--%s", reader.option->name);
		if (reader.value)
			ddp_text_add(&text, "=%s", reader.value);
		list[count++] = ddp_xstrdup(text.data ? text.data : "", "salloc's options");
		ddp_text_free(&text);
	}
	return list;
}
