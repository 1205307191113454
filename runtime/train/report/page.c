/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page.c - the run as one self-contained HTML file
 *
 * The file is page.html with its style and script inlined. In the middle are the data, JSON lines
 * as in stream.c, which the script draws. The size of the file is limited: if there are too many
 * steps, adjacent points are merged, and only the newest epochs and log lines are kept.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/xalloc.h"
#include "page-assets.h"
#include "sink.h"

enum {
	POINTS = 512, /* maximum number of points; steps can be merged into one point */
	RANKS = 64,   /* maximum number of ranks whose speeds are kept separately */
	LINES = 200,  /* maximum number of lines about epochs, and of log lines */
	LIMIT = 16 << 20,
};

struct point {
	struct report_interval interval;
	double low[2], high[2]; /* minima and maxima of losses and top1 merged into this point */
	/* speed of each rank; with more than RANKS ranks: minimum, median, maximum */
	float speeds[RANKS];
};

struct kept {
	char *lines[LINES]; /* ring buffer */
	size_t count;	    /* number of lines ever added */
};

struct page {
	const char *path;
	const struct report_run *run;
	char *line;	/* stream_run()'s line */
	double *sorted; /* array for sorting the speeds of all ranks */
	struct kept epochs, says;
	struct point points[POINTS];
	size_t used;
	uint64_t merge;	     /* intervals per point */
	uint64_t last_count; /* number of intervals in the last point */
};

/* --- Events ----------------------------------------------------------------------------- */

static void merge(struct point *into, const struct point *from)
{
	sink_add(&into->interval, &from->interval);
	for (int i = 0; i < 2; i++) {
		into->low[i] = fmin(into->low[i], from->low[i]);
		into->high[i] = fmax(into->high[i], from->high[i]);
	}
	for (int i = 0; i < RANKS; i++)
		into->speeds[i] = (into->speeds[i] + from->speeds[i]) / 2;
}

static void halve(struct page *page)
{
	for (size_t i = 0; i < POINTS / 2; i++) {
		struct point two = page->points[2 * i];

		merge(&two, &page->points[2 * i + 1]);
		page->points[i] = two;
	}
	page->used = POINTS / 2;
	page->merge *= 2;
	page->last_count = page->merge;
}

static void add_point(struct page *page, const struct point *point)
{
	if (page->used > 0 && page->last_count < page->merge) {
		merge(&page->points[page->used - 1], point);
		page->last_count++;
		return;
	}
	if (page->used == POINTS)
		halve(page);
	page->points[page->used++] = *point;
	page->last_count = 1;
}

static struct point point_of(const struct report_interval *interval)
{
	return (struct point){.interval = *interval,
			      .low = {interval->loss, interval->top1},
			      .high = {interval->loss, interval->top1}};
}

static int ascending(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

/*
 * Sets the speed of each rank from its own work. The time in which a rank waits for other ranks is
 * not counted: with it, the times of all ranks would be equal.
 */
static void set_speeds(struct page *page, struct point *point, const struct report_work *work)
{
	int ranks = page->run->ranks;
	const int places[] = {0, ranks / 2, ranks - 1};

	for (int rank = 0; rank < ranks; rank++) {
		double seconds = sink_work(&work[rank]);

		page->sorted[rank] = seconds > 0 ? (double)work[rank].samples / seconds : 0;
	}
	for (int rank = 0; rank < ranks && ranks <= RANKS; rank++)
		point->speeds[rank] = (float)page->sorted[rank];
	if (ranks <= RANKS)
		return;
	qsort(page->sorted, (size_t)ranks, sizeof(double), ascending);
	for (int i = 0; i < 3; i++)
		point->speeds[i] = (float)page->sorted[places[i]];
}

void page_interval(struct page *page, const struct report_interval *interval)
{
	struct point point;

	if (!page)
		return;
	point = point_of(interval);
	if (interval->work && page->run->ranks > 1)
		set_speeds(page, &point, interval->work);
	add_point(page, &point);
}

/* Adds a line, unless there is no memory. */
static void add_kept_line(struct kept *kept, const char *line, size_t size)
{
	char *copy = strndup(line, size), **place = &kept->lines[kept->count % LINES];

	if (!copy)
		return;
	free(*place);
	*place = copy;
	kept->count++;
}

void page_epoch(struct page *page, const struct ddp_text *line)
{
	if (page && !line->failed)
		add_kept_line(&page->epochs, line->data, line->size);
}

void page_log(struct page *page, const struct ddp_text *line)
{
	if (page && !line->failed)
		add_kept_line(&page->says, line->data, line->size);
}

/* --- The file --------------------------------------------------------------------------- */

static void put_pair(struct ddp_text *out, const char *key, const double *pair)
{
	ddp_put_begin(out, key, '[');
	ddp_put_number(out, NULL, pair[0]);
	ddp_put_number(out, NULL, pair[1]);
	ddp_text_add(out, "]");
}

static void put_point(struct ddp_text *out, const struct page *page, const struct point *point)
{
	int ranks = page->run->ranks, speeds = ranks > RANKS ? 3 : ranks > 1 ? ranks : 0;

	ddp_text_add(out, "{\"event\": \"step\"");
	stream_step(out, &point->interval);
	if (page->merge > 1) {
		put_pair(out, "low", point->low);
		put_pair(out, "high", point->high);
	}
	for (int i = 0; i < speeds && point->speeds[0] > 0; i++)
		ddp_text_add(out, "%s%.5g", i ? ", " : ", \"speeds\": [", (double)point->speeds[i]);
	ddp_text_add(out, speeds && point->speeds[0] > 0 ? "]}\n" : "}\n");
}

static size_t left_out(const struct kept *kept)
{
	return kept->count > LINES ? kept->count - LINES : 0;
}

static void put_kept(struct ddp_text *out, const struct kept *kept)
{
	for (size_t i = left_out(kept); i < kept->count; i++)
		ddp_text_add(out, "%s", kept->lines[i % LINES]);
}

int page_write(struct page *page, const struct ddp_text *line, bool last, struct ddp_error *error)
{
	struct ddp_text out = {.data = NULL};
	struct iovec part;
	int status;

	if (!page)
		return 0;
	ddp_text_add(&out, "%s%s", page_before, page->line);
	for (size_t i = 0; i < page->used; i++)
		put_point(&out, page, &page->points[i]);
	put_kept(&out, &page->epochs);
	put_kept(&out, &page->says);
	ddp_text_add(&out, "{\"event\": \"left_out\", \"epochs\": %zu, \"says\": %zu}\n%s%s",
		     left_out(&page->epochs), left_out(&page->says), line->failed ? "" : line->data,
		     page_after);
	part = (struct iovec){out.data, out.size};
	status = line->failed || out.failed
			 ? ddp_error_set(error, DDP_ERR_MEMORY, "no memory for the page %s",
					 page->path)
			 : ddp_file_write(page->path, &part, 1, 0666, last, error);
	ddp_text_free(&out);
	return status;
}

/* --- Data of an earlier page, for a resumed run ----------------------------------------- */

/* Returns the number of [key] in [line], or NaN if it is null or missing. */
static double field(const char *line, const char *end, const char *key)
{
	char name[32];
	const char *found;

	snprintf(name, sizeof(name), "\"%s\": ", key);
	found = memmem(line, (size_t)(end - line), name, strlen(name));
	return found && found[strlen(name)] != 'n' ? strtod(found + strlen(name), NULL)
						   : (double)NAN;
}

static uint64_t whole(double number)
{
	return number >= 0 && number < 1e15 ? (uint64_t)number : 0;
}

static void add_earlier_step(struct page *page, const char *line, const char *end, double total)
{
	double scale = field(line, end, "scale");
	struct report_interval interval = {
		.epoch = (unsigned)whole(field(line, end, "epoch")),
		.step = whole(field(line, end, "step")),
		.total = whole(total),
		.position = field(line, end, "position"),
		.loss = field(line, end, "loss"),
		.top1 = field(line, end, "top1"),
		.rate = field(line, end, "lr"),
		.scale = scale > 0 ? scale : 0,
		.samples = whole(field(line, end, "samples")),
		.seconds = field(line, end, "seconds"),
	};
	struct point point = point_of(&interval);

	add_point(page, &point);
}

/*
 * Reads the points and epochs up to step [begin] from an existing page. Later steps are trained
 * again. A file that is not a page has no such lines, so nothing is read from it.
 */
static void read_earlier_page(struct page *page, uint64_t begin)
{
	static const char step[] = "{\"event\": \"step\"", epoch[] = "{\"event\": \"epoch\"";
	char *text;
	size_t size;

	if (ddp_file_read(page->path, LIMIT, &text, &size, NULL) != 0)
		return;
	for (char *line = text, *end; *line && (end = strchr(line, '\n')); line = end + 1) {
		double total = field(line, end, "total");

		if (!(total >= 0 && total <= (double)begin))
			continue;
		if (strncmp(line, step, strlen(step)) == 0)
			add_earlier_step(page, line, end, total);
		else if (strncmp(line, epoch, strlen(epoch)) == 0)
			add_kept_line(&page->epochs, line, (size_t)(end + 1 - line));
	}
	free(text);
}

bool page_is_finished(const char *path)
{
	char *text;
	size_t size;
	bool finished;

	if (ddp_file_read(path, LIMIT, &text, &size, NULL) != 0)
		return false;
	finished = strstr(text, "\"reason\": \"finished\"") != NULL;
	free(text);
	return finished;
}

/* --- Open and close --------------------------------------------------------------------- */

struct page *page_open(const char *path, bool append, const struct report_run *run,
		       const struct ddp_text *line)
{
	struct page *page = ddp_xcalloc(1, sizeof(*page), "a report's page");

	page->path = path;
	page->run = run;
	page->merge = 1;
	page->line = ddp_xstrdup(line->failed ? "" : line->data, "a report's page");
	page->sorted = ddp_xcalloc((size_t)run->ranks, sizeof(*page->sorted), "a report's page");
	if (append && run->begin > 0)
		read_earlier_page(page, run->begin);
	return page;
}

void page_close(struct page *page)
{
	if (!page)
		return;
	for (size_t i = 0; i < LINES; i++) {
		free(page->epochs.lines[i]);
		free(page->says.lines[i]);
	}
	free(page->line);
	free(page->sorted);
	free(page);
}
