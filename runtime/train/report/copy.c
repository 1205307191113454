/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "copy.h"

static char *copy_text(const char *text, bool *failed)
{
	char *copy = strdup(text ? text : "");

	*failed |= !copy;
	return copy;
}

static void free_text(const char *text)
{
	free((char *)text);
}

void copy_run_free(struct report_run *copy)
{
	for (size_t i = 0; copy->configuration && i < copy->configuration_count; i++) {
		free_text(copy->configuration[i].key);
		free_text(copy->configuration[i].value);
	}
	free((struct report_pair *)copy->configuration);
	free((struct report_rank *)copy->table);
	free_text(copy->title);
	free_text(copy->engine);
	free_text(copy->job);
	*copy = (struct report_run){0};
}

int copy_run(struct report_run *copy, const struct report_run *run)
{
	size_t pairs = run->configuration_count;
	struct report_pair *configuration = calloc(pairs + 1, sizeof(*configuration));
	struct report_rank *table = calloc((size_t)run->ranks + 1, sizeof(*table));
	bool failed = !configuration || !table;

	*copy = *run;
	copy->configuration = configuration;
	copy->table = table;
	copy->title = copy_text(run->title, &failed);
	copy->engine = copy_text(run->engine, &failed);
	copy->job = copy_text(run->job, &failed);
	for (size_t i = 0; configuration && i < pairs; i++) {
		configuration[i].key = copy_text(run->configuration[i].key, &failed);
		configuration[i].value = copy_text(run->configuration[i].value, &failed);
	}
	if (table && run->table)
		memcpy(table, run->table, (size_t)run->ranks * sizeof(*table));
	if (!failed)
		return 0;
	copy_run_free(copy);
	return DDP_ERR_MEMORY;
}

void copy_options_free(struct report_options *copy)
{
	free_text(copy->json);
	free_text(copy->page);
	free_text(copy->events);
	*copy = (struct report_options){0};
}

int copy_options(struct report_options *copy, const struct report_options *options)
{
	bool failed = false;

	*copy = *options;
	copy->json = options->json && *options->json ? copy_text(options->json, &failed) : NULL;
	copy->page = options->page && *options->page ? copy_text(options->page, &failed) : NULL;
	copy->events =
		options->events && *options->events ? copy_text(options->events, &failed) : NULL;
	if (!failed)
		return 0;
	copy_options_free(copy);
	return DDP_ERR_MEMORY;
}
