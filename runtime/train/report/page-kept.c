/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page-kept.c - the curves of an earlier page, for a run that goes on
 *
 * A page holds its points in numbers, for the read-out: that is all that is needed. A file that is
 * no page of ours has none.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "page-data.h"

enum { PAGE_LIMIT = 16 << 20 };

static const struct kept {
	enum page_curve curve;
	const char *chart, *series; /* as chart.c writes them */
	double factor;
} kept[] = {
	{CURVE_LOSS, " id=\"loss\"", " data-name=\"train\"", 1},
	{CURVE_TEST_LOSS, " id=\"loss\"", " data-name=\"test\"", 1},
	{CURVE_HITS, " id=\"accuracy\"", " data-name=\"train\"", 100},
	{CURVE_TEST_HITS, " id=\"accuracy\"", " data-name=\"test\"", 100},
	{CURVE_SPEED, " id=\"throughput\"", " data-name=\"", 1},
	{CURVE_RATE, " id=\"rate\"", " data-name=\"", 1},
	{CURVE_SCALE, " id=\"scale\"", " data-name=\"", 1},
};

/* [what] after [text], but before [end]; NULL if it is not there. */
static const char *find(const char *text, const char *what, const char *end)
{
	const char *found = text ? strstr(text, what) : NULL;

	return found && (!end || found < end) ? found + strlen(what) : NULL;
}

static void keep(struct page *page, const char *text, const struct kept *one)
{
	const char *chart = find(text, one->chart, NULL);
	const char *end = chart ? strstr(chart, "</figure>") : NULL;
	const char *at = find(find(chart, one->series, end), " data-v=\"", end);
	double last = 0;

	while (at && *at != '"') {
		char *after;
		double x = strtod(at, &after), value;

		if (after == at)
			break;
		at = after;
		value = strtod(at, &after);
		/* What was trained after the checkpoint is trained again. */
		if (after == at || !(x >= last) || x > (double)page->run->begin)
			break;
		at = after + (*after == ' ');
		curve_add(&page->curves[one->curve], x, value / one->factor);
		last = x;
	}
}

void page_keep(struct page *page)
{
	char *text;
	size_t size;

	if (ddp_file_read(page->path, PAGE_LIMIT, &text, &size, NULL) != 0)
		return;
	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
		keep(page, text, &kept[i]);
	free(text);
}
