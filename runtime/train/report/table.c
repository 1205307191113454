/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - the end of a run: who did what, and where the results are */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "meter.h"
#include "rows.h"
#include "sink.h"

static void table_widths(const struct row *rows, int count, int widths[COLUMNS])
{
	for (enum column column = 0; column < COLUMNS; column++) {
		widths[column] = (int)strlen(column_title(column));
		for (int i = 0; i < count; i++) {
			int width = (int)meter_columns(rows[i].cells[column]);

			widths[column] = width > widths[column] ? width : widths[column];
		}
	}
}

static void table_line(struct text *out, const struct row *row, const int widths[COLUMNS])
{
	for (enum column column = 0; column < COLUMNS; column++) {
		const char *cell = row ? row->cells[column] : column_title(column);
		int pad = widths[column] - (int)meter_columns(cell);

		if (column_words(column))
			text_add(out, "%s%s%*s", column ? "  " : "", cell, pad, "");
		else
			text_add(out, "%s%*s%s", column ? "  " : "", pad, "", cell);
	}
	text_add(out, "\n");
}

static void table_ranks(struct text *out, const struct report_run *run,
			const struct report_end *end)
{
	int widths[COLUMNS];
	struct row *rows;
	int count = rows_create(&rows, run, end->ranks, end->seconds);

	table_widths(rows, count, widths);
	table_line(out, NULL, widths);
	for (int i = 0; i < count; i++)
		table_line(out, &rows[i], widths);
	free(rows);
}

static void table_file(struct text *out, const char *what, const char *path)
{
	if (!path || !*path || strcmp(path, "-") == 0)
		return;
	text_add(out, "%-12s", what);
	text_plain(out, path);
	text_add(out, "\n");
}

void table_end(struct text *out, const struct report_run *run, const struct report_options *options,
	       const struct report_end *end)
{
	text_add(out, "\n");
	text_plain(out, end->reason);
	text_add(out, ": %s samples in %s\n", show_count((double)end->samples).text,
		 show_seconds(end->seconds).text);
	if (end->best_epoch)
		text_add(out, "best test top1 %s, after epoch %u\n",
			 show_percent(end->best_top1).text, end->best_epoch);
	text_add(out, "\n");
	if (end->ranks) {
		table_ranks(out, run, end);
		text_add(out, "\n");
	}
	table_file(out, "checkpoint", end->checkpoint);
	table_file(out, "model", end->model);
	table_file(out, "report", options->page);
	table_file(out, "curves", options->events);
	table_file(out, "log", options->json);
}
