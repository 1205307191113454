/* SPDX-License-Identifier: Apache-2.0 */
/*
 * introduction.c - what a report says before the first step
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "run.h"

struct texts {
	char title[256], engine[256];
	struct ddp_text command;
	struct report_pair pairs[OPTION_COUNT];
};

/* The command line, as a shell would take it. */
static void read_command(struct ddp_text *command)
{
	static const char harmless[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
		"%+,-./:=@_";
	FILE *file = fopen("/proc/self/cmdline", "re");
	char *word = NULL;
	size_t room = 0;

	while (file && getdelim(&word, &room, '\0', file) > 0) {
		bool plain = *word && word[strspn(word, harmless)] == '\0';

		ddp_text_add(command, "%s%s", command->size ? " " : "", plain ? word : "'");
		for (const char *at = word; !plain && *at; at++)
			ddp_text_add(command, *at == '\'' ? "'\\''" : "%c", *at);
		ddp_text_add(command, "%s", plain ? "" : "'");
	}
	if (file)
		fclose(file);
	free(word);
}

/* "60,000 drawn digits": the set's title, which checkpoints have without commas. */
static const char *set_title(const struct set_info *info, char *text, size_t size)
{
	const char *found = NULL, *next = info->title;
	char digits[24];
	int length = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)info->samples);

	for (; (next = strstr(next, digits)); next++)
		found = next;
	if (!found)
		return info->title;
	snprintf(text, size, "%.*s%s%s", (int)(found - info->title), info->title,
		 ddp_show_count((double)info->samples).text, found + length);
	return text;
}

static void fill_texts(const struct run *run, struct texts *texts)
{
	char set[200];

	snprintf(texts->title, sizeof(texts->title), "%s: %s parameters, %s", run->net->name,
		 ddp_show_count((double)run->graph->weights).text,
		 set_title(set_info(run->train), set, sizeof(set)));
	snprintf(texts->engine, sizeof(texts->engine), "%s: %s", run->class->head.name,
		 run->class->describe(run->engine));
	texts->command = (struct ddp_text){.data = NULL};
	read_command(&texts->command);
	for (int i = 0; i < OPTION_COUNT; i++)
		texts->pairs[i] = (struct report_pair){
			option_rows[i].name, option_text(run->options, (enum option_id)i)};
}

static int open_report(struct run *run)
{
	const struct options *options = run->options;
	static const int lives[] = {-1, 1, 0};
	struct report_options sinks = {
		.json = option_text(options, OPTION_LOG_JSON),
		.page = option_text(options, OPTION_REPORT),
		.events = option_text(options, OPTION_EVENTS),
		.live = lives[option_word(options, OPTION_PROGRESS)],
		.quiet = option_flag(options, OPTION_QUIET),
		.every = option_count(options, OPTION_LOG_EVERY) > 0,
		.append = run->keeper.resumed,
	};
	bool evaluate = option_flag(options, OPTION_EVALUATE);
	struct texts texts;
	struct report_run told = {
		.title = texts.title,
		.engine = texts.engine,
		.job = run->world->job,
		.ranks = run->world->size,
		.nodes = run->world->node_count,
		.configuration = texts.pairs,
		.configuration_count = OPTION_COUNT,
		.epochs = evaluate ? 0 : run->epochs,
		.steps = run_steps(run),
		.batch = (size_t)run_global_batch(run),
		.begin = evaluate ? 0 : run->progress.total,
		.limit = run->limit == UINT64_MAX ? 0 : run->limit,
		.table = run->meter.whole,
	};
	int status;

	fill_texts(run, &texts);
	told.command = texts.command.data;
	status = report_open(&run->report, &sinks, &told, &run->error);
	ddp_text_free(&texts.command);
	return status;
}

int run_introduce(struct run *run)
{
	int status = run->world->rank == 0 ? open_report(run) : 0;

	status = run_agree(run, status);
	if (status < 0)
		return status;
	if (*run->why)
		report_say(run->report, "%s", run->why);
	if (*run->sharing)
		report_say(run->report, "%s", run->sharing);
	if (run->keeper.resumed)
		report_say(run->report, "%s", run->keeper.story);
	if (run->keeper.resumed && *option_text(run->options, OPTION_INIT))
		report_say(run->report, "--init %s is not used: the checkpoint has the weights",
			   option_text(run->options, OPTION_INIT));
	if (run->keeper.old_count > 0)
		report_say(run->report,
			   "%zu checkpoints in %s are of an earlier training: they go "
			   "when there is a new one",
			   run->keeper.old_count, run->keeper.directory);
	return 0;
}
