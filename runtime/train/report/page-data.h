/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page-data.h - what a page has been told, for the files that draw it
 */
#ifndef TRAIN_REPORT_PAGE_DATA_H
#define TRAIN_REPORT_PAGE_DATA_H

#include "curve.h"
#include "page.h"
#include "sink.h"

enum {
	PAGE_POINTS = 400, /* of a curve */
	PAGE_RANK_POINTS = 160,
	PAGE_RANKS = 64,   /* that have curves and bars of their own */
	PAGE_NAMED = 8,	   /* that have colours and names too */
	PAGE_EPOCHS = 200, /* the newest, in the table */
	PAGE_LINES = 200,  /* the newest, in the log */
	PAGE_ROWS = 512,   /* in the table of ranks */
};

/* Curves that do not depend on the number of ranks. */
enum page_curve {
	CURVE_LOSS,
	CURVE_HITS,
	CURVE_TEST_LOSS,
	CURVE_TEST_HITS,
	CURVE_SPEED,
	CURVE_RATE,
	CURVE_SCALE,
	CURVE_SLOWEST, /* of the ranks' own speeds */
	CURVE_MEDIAN,
	CURVE_FASTEST,
	CURVES
};

struct page_line {
	double seconds; /* since the run began */
	char *text;
	bool warning;
};

struct page {
	const char *path;
	const struct report_run *run;
	double opened;	/* on ddp_seconds()'s clock */
	char begun[40]; /* date and time */
	struct curve curves[CURVES];
	struct curve *each; /* own speed of each rank; NULL for one rank, and for more than fit */
	double *speeds;	    /* room for one beat's */
	struct report_rank *all; /* sums of the beats so far */
	uint64_t samples;
	struct report_epoch epochs[PAGE_EPOCHS];
	size_t epoch_count; /* ever; the newest are kept, at their number modulo the room */
	struct page_line lines[PAGE_LINES];
	size_t line_count; /* likewise */
	double best;
	unsigned best_epoch; /* 0: none yet */
};

/* The date and time now, with the zone. */
void page_date(char *text, size_t size);

/* Take over the curves, up to where the run begins, of the page that is in its file already. */
void page_keep(struct page *page);

/* The whole document. [end] is NULL while the run goes on. */
void page_draw(struct text *out, const struct page *page, const struct report_end *end);

/* Parts of it. */
void page_draw_curves(struct text *out, const struct page *page);
void page_draw_times(struct text *out, const struct page *page, const struct report_rank *ranks,
		     double seconds);
void page_draw_ranks(struct text *out, const struct page *page, const struct report_rank *ranks,
		     double seconds);

#endif /* TRAIN_REPORT_PAGE_DATA_H */
