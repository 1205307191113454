/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/file.h"
#include "base/watch.h"
#include "page-data.h"

void page_date(char *text, size_t size)
{
	time_t now = time(NULL);
	struct tm local;

	localtime_r(&now, &local);
	strftime(text, size, "%Y-%m-%d %H:%M:%S %Z", &local);
}

/* --- What happened ---------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

/* How fast each rank is by itself: all wait for the slowest, so that their steps take the same. */
static void add_speeds(struct page *page, const struct report_beat *beat)
{
	int count = page->run->ranks;
	double x = (double)beat->total;

	for (int rank = 0; rank < count; rank++) {
		const struct report_rank *one = &beat->ranks[rank];

		page->speeds[rank] = sink_speed(one->samples, sink_work(one));
		if (page->each)
			curve_add(&page->each[rank], x, page->speeds[rank]);
	}
	qsort(page->speeds, (size_t)count, sizeof(double), ascending);
	curve_add(&page->curves[CURVE_SLOWEST], x, page->speeds[0]);
	curve_add(&page->curves[CURVE_MEDIAN], x, page->speeds[count / 2]);
	curve_add(&page->curves[CURVE_FASTEST], x, page->speeds[count - 1]);
}

static void add_times(struct page *page, const struct report_rank *ranks)
{
	for (int rank = 0; rank < page->run->ranks; rank++) {
		struct report_rank *all = &page->all[rank];

		for (int phase = 0; phase < ENGINE_PHASES; phase++)
			all->seconds[phase] += ranks[rank].seconds[phase];
		all->samples += ranks[rank].samples;
		if (ranks[rank].resident > all->resident)
			all->resident = ranks[rank].resident;
	}
}

void page_beat(struct page *page, const struct report_beat *beat)
{
	double x = (double)beat->total;

	if (!page)
		return;
	curve_add(&page->curves[CURVE_LOSS], x, beat->loss);
	curve_add(&page->curves[CURVE_HITS], x, beat->top1);
	curve_add(&page->curves[CURVE_SPEED], x, sink_speed(beat->samples, beat->seconds));
	curve_add(&page->curves[CURVE_RATE], x, beat->rate);
	if (beat->scale > 0)
		curve_add(&page->curves[CURVE_SCALE], x, beat->scale);
	page->samples += beat->samples;
	if (!beat->ranks)
		return;
	add_speeds(page, beat);
	add_times(page, beat->ranks);
}

void page_say(struct page *page, const char *line, bool warning)
{
	struct page_line *kept;

	if (!page)
		return;
	kept = &page->lines[page->line_count++ % PAGE_LINES];
	free(kept->text);
	*kept = (struct page_line){ddp_seconds() - page->opened, strdup(line), warning};
}

/* --- The file --------------------------------------------------------------------------- */

static int page_write(struct page *page, const struct report_end *end, struct ddp_error *error)
{
	struct text out = {0};
	struct iovec part;
	int status;

	page_draw(&out, page, end);
	if (out.failed) {
		status = ddp_error_set(error, DDP_ERR_MEMORY, "no memory for the page %s",
				       page->path);
	} else {
		part = (struct iovec){out.data, out.size};
		status = ddp_file_write(page->path, &part, 1, 0666, end != NULL, error);
	}
	text_free(&out);
	return status;
}

int page_epoch(struct page *page, const struct report_epoch *epoch, struct ddp_error *error)
{
	if (!page)
		return 0;
	page->epochs[page->epoch_count++ % PAGE_EPOCHS] = *epoch;
	if (epoch->evaluated) {
		curve_add(&page->curves[CURVE_TEST_LOSS], (double)epoch->total, epoch->loss);
		curve_add(&page->curves[CURVE_TEST_HITS], (double)epoch->total, epoch->top1);
		for (int rank = 0; rank < page->run->ranks; rank++)
			page->all[rank].evaluation += epoch->evaluation;
	}
	if (epoch->best) {
		page->best = epoch->top1;
		page->best_epoch = epoch->epoch;
	}
	return page_write(page, NULL, error);
}

int page_end(struct page *page, const struct report_end *end, struct ddp_error *error)
{
	if (!page)
		return 0;
	return page_write(page, end, error);
}

/* --- Begin and end ---------------------------------------------------------------------- */

static int open_curves(struct page *page)
{
	size_t ranks = (size_t)page->run->ranks;
	int failed = 0;

	for (int i = 0; i < CURVES; i++)
		failed |= curve_open(&page->curves[i], PAGE_POINTS);
	page->speeds = calloc(ranks, sizeof(*page->speeds));
	page->all = calloc(ranks, sizeof(*page->all));
	if (failed || !page->speeds || !page->all)
		return -1;
	if (ranks < 2 || ranks > PAGE_RANKS)
		return 0;
	page->each = calloc(ranks, sizeof(*page->each));
	for (size_t rank = 0; page->each && rank < ranks; rank++)
		failed |= curve_open(&page->each[rank], PAGE_RANK_POINTS);
	return failed || !page->each ? -1 : 0;
}

/* Where a rank is stands in the sums from the beginning. */
static void open_places(struct page *page)
{
	for (int rank = 0; rank < page->run->ranks; rank++) {
		struct report_rank *all = &page->all[rank];

		*all = page->run->table[rank];
		memset(all->seconds, 0, sizeof(all->seconds));
		all->evaluation = 0;
		all->samples = 0;
	}
}

int page_open(struct page **opened, const char *path, bool append, const struct report_run *run,
	      struct ddp_error *error)
{
	struct page *page = calloc(1, sizeof(*page));
	int status;

	*opened = NULL;
	if (page) {
		page->path = path;
		page->run = run;
		page->opened = ddp_seconds();
		page_date(page->begun, sizeof(page->begun));
	}
	if (!page || open_curves(page) < 0) {
		page_close(page);
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for the page %s", path);
	}
	open_places(page);
	if (append && run->begin > 0)
		page_keep(page);
	status = page_write(page, NULL, error);
	if (status == 0)
		*opened = page;
	else
		page_close(page);
	return status;
}

void page_close(struct page *page)
{
	if (!page)
		return;
	for (int i = 0; i < CURVES; i++)
		curve_close(&page->curves[i]);
	for (int rank = 0; page->each && rank < page->run->ranks; rank++)
		curve_close(&page->each[rank]);
	for (size_t i = 0; i < PAGE_LINES; i++)
		free(page->lines[i].text);
	free(page->each);
	free(page->speeds);
	free(page->all);
	free(page);
}
