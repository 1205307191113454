/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live.c - a line on the terminal that is rewritten in place
 *
 * Each update is one write(), so the line does not flicker. It is narrower than the terminal, so it
 * does not wrap. The cursor is not hidden: after live_hide() the terminal is unchanged.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/file.h"
#include "base/settings.h"
#include "base/xalloc.h"
#include "sink.h"

enum { WIDEST = 500, BAR_LEAST = 8, BAR_MOST = 26, GAP = 2 };

/* from left to right */
enum field { EPOCH, STEP, BAR, SPEED, LOSS, RIGHT, LEFT, SLOWEST, FIELDS };

/* Fields by importance. A narrow terminal shows only the first of these. */
static const enum field by_weight[FIELDS] = {EPOCH, STEP, LOSS, LEFT, SPEED, RIGHT, BAR, SLOWEST};

struct live {
	bool escapes; /* the terminal can clear to the end of a line */
	bool utf8, colour;
	char fields[FIELDS][96]; /* texts; "": not shown; the bar is drawn from [done] */
	/* widths in the last line; a field does not shrink, so that later fields do not move */
	size_t widths[FIELDS];
	double done; /* fraction of the epoch */
	bool alarm;  /* highlight the slowest rank */
	const struct report_run *run;
	double *work;	   /* seconds per sample of each rank */
	uint64_t total;	   /* steps at the last interval */
	double pace;	   /* seconds per step */
	double evaluation; /* seconds of the last evaluation */
	size_t drawn;	   /* columns on the terminal now */
	bool any;	   /* an interval was reported */
	struct ddp_text line;
};

/* --- The line --------------------------------------------------------------------------- */

/* Draws a bar of [width] columns, including its caps, filled to [done]. */
static void put_bar(struct live *live, size_t width)
{
	static const char *const eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
	size_t cells = width - 2;
	size_t full = (size_t)(fmin(fmax(live->done, 0), 1) * (double)cells * 8);

	ddp_text_add(&live->line, "%s%s", live->utf8 ? "▕" : "[", live->colour ? "\033[36m" : "");
	for (size_t cell = 0; cell < cells; cell++) {
		size_t part = full > cell * 8 ? full - cell * 8 : 0;

		part = part < 8 ? part : 8;
		ddp_text_add(&live->line, "%s",
			     live->utf8	 ? eighths[part]
			     : part == 8 ? "="
			     : part > 0	 ? ">"
					 : " ");
	}
	ddp_text_add(&live->line, "%s%s", live->colour ? "\033[0m" : "", live->utf8 ? "▏" : "]");
}

static void put_field(struct live *live, enum field field, size_t width)
{
	const char *string = live->fields[field];
	bool alarm = live->colour && field == SLOWEST && live->alarm;

	ddp_text_add(&live->line, "%s%*s%s%s", alarm ? "\033[33m" : "",
		     (int)(width - ddp_text_columns(string)), "", string, alarm ? "\033[0m" : "");
}

/*
 * Chooses the fields that fit into [columns] columns. Sets [widths] to their widths, or to 0 for
 * fields that are not shown. Returns the number of columns that the chosen fields need.
 */
static size_t choose(struct live *live, size_t columns, size_t widths[FIELDS])
{
	size_t used = 0;

	for (int i = 0; i < FIELDS; i++) {
		enum field field = by_weight[i];
		size_t width = ddp_text_columns(live->fields[field]), gap = used ? GAP : 0;

		/* The last field can shrink, because no other field follows it. */
		if (width > 0 && width < live->widths[field] && field != SLOWEST)
			width = live->widths[field];
		live->widths[field] = width;
		if (field == BAR)
			width = BAR_LEAST;
		widths[field] = width > 0 && used + gap + width <= columns ? width : 0;
		if (widths[field])
			used += gap + width;
	}
	if (widths[BAR]) {
		size_t more = columns - used < BAR_MOST - BAR_LEAST ? columns - used
								    : BAR_MOST - BAR_LEAST;

		widths[BAR] += more;
		used += more;
	}
	return used;
}

/* Composes the line with at most [columns] columns. Returns the number of columns used. */
static size_t compose(struct live *live, size_t columns)
{
	size_t widths[FIELDS], used = choose(live, columns, widths);
	const char *gap = "";

	for (int field = 0; field < FIELDS; field++) {
		if (!widths[field])
			continue;
		ddp_text_add(&live->line, "%s", gap);
		gap = "  ";
		if (field == BAR)
			put_bar(live, widths[field]);
		else
			put_field(live, (enum field)field, widths[field]);
	}
	return used;
}

/* --- The terminal ----------------------------------------------------------------------- */

static bool is_utf8_terminal(void)
{
	const char *locale = ddp_getenv("LC_ALL", "LC_CTYPE", "LANG", NULL);

	return locale && (strcasestr(locale, "utf-8") || strcasestr(locale, "utf8"));
}

/*
 * Usable columns. The last three stay free: on some terminals, writing to the last one wraps the
 * line, and Ctrl-C prints "^C" behind the line.
 */
static size_t usable_columns(void)
{
	const char *columns = getenv("COLUMNS");
	struct winsize size;
	long width = 0;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0)
		width = size.ws_col;
	if (width == 0 && columns)
		width = strtol(columns, NULL, 10);
	if (width <= 0)
		width = 80;
	return width > 3 ? (size_t)(width > WIDEST ? WIDEST : width) - 3 : 0;
}

/* Whether this process may write to the terminal. A background process group must not. */
static bool live_allowed(void)
{
	pid_t group = tcgetpgrp(STDERR_FILENO);

	return group <= 0 || group == getpgrp();
}

static void live_write(struct live *live)
{
	if (!live->line.failed && live->line.size > 0)
		(void)ddp_file_write_all(STDERR_FILENO, live->line.data, live->line.size);
}

void live_show(struct live *live)
{
	size_t columns;

	if (!live || !live->any || !live_allowed())
		return;
	ddp_text_clear(&live->line);
	ddp_text_add(&live->line, "\r");
	columns = compose(live, usable_columns());
	if (live->escapes)
		ddp_text_add(&live->line, "\033[K");
	else if (live->drawn > columns)
		ddp_text_add(&live->line, "%*s", (int)(live->drawn - columns), "");
	live->drawn = columns;
	live_write(live);
}

void live_hide(struct live *live)
{
	if (!live || live->drawn == 0)
		return;
	ddp_text_clear(&live->line);
	if (live->escapes)
		ddp_text_add(&live->line, "\r\033[K");
	else
		ddp_text_add(&live->line, "\r%*s\r", (int)live->drawn, "");
	live->drawn = 0;
	live_write(live);
}

/* --- Fields ----------------------------------------------------------------------------- */

#define FIELD(live, which, ...) \
	snprintf((live)->fields[which], sizeof((live)->fields[which]), __VA_ARGS__)

/* Finds the slowest rank from averages over the last few intervals, and sets its field. */
static void set_slowest(struct live *live, const struct report_work *work)
{
	struct ddp_text node = {.data = NULL};
	double sum = 0, most, excess;
	int slowest = 0;

	for (int rank = 0; rank < live->run->ranks; rank++) {
		double samples = (double)work[rank].samples;
		double now = samples > 0 ? sink_work(&work[rank]) / samples : live->work[rank];

		live->work[rank] = live->any ? 0.7 * live->work[rank] + 0.3 * now : now;
		sum += live->work[rank];
		slowest = live->work[rank] > live->work[slowest] ? rank : slowest;
	}
	most = live->work[slowest];
	if (!(sum > 0) || !isfinite(sum))
		return;
	/* fraction by which the slowest rank's time exceeds the mean of the other ranks' times */
	excess = most * (live->run->ranks - 1) / fmax(sum - most, 1e-12) - 1;
	ddp_text_plain(&node, live->run->places[slowest].node);
	FIELD(live, SLOWEST, "slowest %.64s:%d (+%.0f %%)", node.data ? node.data : "", slowest,
	      100 * excess);
	live->alarm = excess > 0.1;
	ddp_text_free(&node);
}

static void set_left(struct live *live, const struct report_interval *interval)
{
	uint64_t steps = live->run->end > interval->total ? live->run->end - interval->total : 0;
	uint64_t own = interval->steps - interval->step, whole = live->run->steps;
	/* number of evaluations left: one after this epoch, and one after each later epoch */
	uint64_t evaluations =
		1 + (steps > own && whole > 0 ? (steps - own + whole - 1) / whole : 0);
	uint64_t since = interval->total > live->total ? interval->total - live->total : 1;
	double now = interval->seconds / (double)since;

	live->pace = live->any ? 0.8 * live->pace + 0.2 * now : now;
	live->total = interval->total;
	FIELD(live, LEFT, "left %s",
	      show_clock((double)steps * live->pace + (double)evaluations * live->evaluation).text);
}

void live_interval(struct live *live, const struct report_interval *interval)
{
	if (!live)
		return;
	live->done = interval->steps ? (double)interval->step / (double)interval->steps : 0;
	FIELD(live, EPOCH, "epoch %u/%u", interval->epoch, live->run->epochs);
	FIELD(live, STEP, "%s/%s", ddp_show_count((double)interval->step).text,
	      ddp_show_count((double)interval->steps).text);
	FIELD(live, SPEED, "%s img/s", ddp_show_count(sink_speed(interval)).text);
	FIELD(live, LOSS, "loss %s", show_loss(interval->loss).text);
	FIELD(live, RIGHT, "acc %s", show_percent(interval->top1).text);
	set_left(live, interval);
	if (interval->work && live->run->ranks > 1)
		set_slowest(live, interval->work);
	live->any = true;
	live_show(live);
}

void live_epoch(struct live *live, const struct report_epoch *epoch)
{
	if (live && epoch->evaluated)
		live->evaluation = epoch->evaluation;
}

struct live *live_open(const struct report_run *run)
{
	const char *term = ddp_getenv("TERM", NULL);
	struct live *live = ddp_xcalloc(1, sizeof(*live), "a live line");

	live->work = ddp_xcalloc((size_t)run->ranks, sizeof(double), "a live line");
	live->escapes = term && strcmp(term, "dumb") != 0;
	live->utf8 = live->escapes && is_utf8_terminal();
	live->colour = live->escapes && !ddp_getenv("NO_COLOR", NULL);
	live->run = run;
	live->total = run->begin;
	return live;
}

void live_close(struct live *live)
{
	if (!live)
		return;
	live_hide(live);
	ddp_text_free(&live->line);
	free(live->work);
	free(live);
}
