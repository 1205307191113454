/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "rows.h"
#include "sink.h"

static const struct {
	const char *title;
	bool words;
} columns[COLUMNS] = {
	[COLUMN_RANK] = {"rank", false},       [COLUMN_NODE] = {"node", true},
	[COLUMN_DEVICE] = {"device", true},    [COLUMN_THREADS] = {"threads", false},
	[COLUMN_SPEED] = {"img/s", false},     [COLUMN_DATA] = {"data", false},
	[COLUMN_COMPUTE] = {"compute", false}, [COLUMN_REDUCE] = {"all-reduce", false},
	[COLUMN_TEST] = {"evaluation", false}, [COLUMN_OTHER] = {"other", false},
	[COLUMN_MEMORY] = {"memory", false},
};

const char *column_title(enum column column)
{
	return columns[column].title;
}

bool column_words(enum column column)
{
	return columns[column].words;
}

#define CELL(row, column, ...) \
	snprintf((row)->cells[column], sizeof((row)->cells[column]), __VA_ARGS__)

/* A name of others may hold what drives a terminal. */
static void cell_name(struct row *row, enum column column, const char *name)
{
	struct text plain = {0};

	text_plain(&plain, name);
	CELL(row, column, "%s", plain.data && plain.size < sizeof(row->cells[0]) ? plain.data : "");
	text_free(&plain);
}

struct shares rank_shares(const struct report_rank *rank, double seconds)
{
	double known = rank->evaluation;

	for (int phase = 0; phase < ENGINE_PHASES; phase++)
		known += rank->seconds[phase];
	/* Clocks that disagree a little do not make shares of more than all. */
	seconds = fmax(seconds, known);
	if (!(seconds > 0))
		return (struct shares){0};
	return (struct shares){
		.data = rank->seconds[ENGINE_DATA] / seconds,
		.compute = rank->seconds[ENGINE_COMPUTE] / seconds,
		.reduce = rank->seconds[ENGINE_REDUCE] / seconds,
		.test = rank->evaluation / seconds,
		.other = (seconds - known) / seconds,
	};
}

static void row_rank(struct row *row, int rank, const struct report_rank *one, double seconds)
{
	struct shares shares = rank_shares(one, seconds);

	CELL(row, COLUMN_RANK, "%d", rank);
	cell_name(row, COLUMN_NODE, one->node);
	cell_name(row, COLUMN_DEVICE, one->device);
	CELL(row, COLUMN_THREADS, "%d", one->threads);
	CELL(row, COLUMN_SPEED, "%s",
	     show_count(sink_speed(one->samples, seconds - one->evaluation)).text);
	CELL(row, COLUMN_DATA, "%.1f %%", 100 * shares.data);
	CELL(row, COLUMN_COMPUTE, "%.1f %%", 100 * shares.compute);
	CELL(row, COLUMN_REDUCE, "%.1f %%", 100 * shares.reduce);
	CELL(row, COLUMN_TEST, "%.1f %%", 100 * shares.test);
	CELL(row, COLUMN_OTHER, "%.1f %%", 100 * shares.other);
	CELL(row, COLUMN_MEMORY, "%s", show_bytes(one->resident).text);
}

static void row_all(struct row *row, const struct report_run *run, const struct report_rank *ranks,
		    double seconds)
{
	struct report_rank all = {.node = ""};

	for (int rank = 0; rank < run->ranks; rank++) {
		for (int phase = 0; phase < ENGINE_PHASES; phase++)
			all.seconds[phase] += ranks[rank].seconds[phase] / run->ranks;
		all.evaluation += ranks[rank].evaluation / run->ranks;
		all.threads += ranks[rank].threads;
		all.samples += ranks[rank].samples;
		all.resident += ranks[rank].resident;
	}
	row_rank(row, 0, &all, seconds);
	CELL(row, COLUMN_RANK, "all");
	CELL(row, COLUMN_NODE, "%d node%s", run->nodes, run->nodes == 1 ? "" : "s");
}

int rows_create(struct row **rows, const struct report_run *run, const struct report_rank *ranks,
		double seconds)
{
	int count = run->ranks + (run->ranks > 1);

	*rows = calloc((size_t)count, sizeof(**rows));
	if (!*rows)
		return 0;
	for (int rank = 0; rank < run->ranks; rank++)
		row_rank(&(*rows)[rank], rank, &ranks[rank], seconds);
	if (run->ranks > 1)
		row_all(&(*rows)[run->ranks], run, ranks, seconds);
	return count;
}
