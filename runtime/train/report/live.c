/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live.c - one line of the terminal, rewritten in place
 *
 * Each time it is one write(), so it does not flicker, and it is never as wide as the terminal, so
 * it does not wrap. The cursor stays visible: once the line is hidden the terminal is as it was.
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

/* From left to right. */
enum field { EPOCH, STEP, BAR, SPEED, LOSS, RIGHT, LEFT, SLOWEST, FIELDS };

/* The most important first: a narrow line goes without the last ones. */
static const enum field by_weight[FIELDS] = {EPOCH, STEP, LOSS, LEFT, SPEED, RIGHT, BAR, SLOWEST};

struct live {
	bool escapes; /* the terminal knows how to clear to the end of a line */
	bool utf8, colour;
	char fields[FIELDS][96]; /* "": nothing to say; the bar is drawn from [done] */
	size_t widths[FIELDS];	 /* of the last line, so that the next one does not tremble */
	double done;		 /* share of the epoch */
	bool alarm;		 /* the slowest rank is worth a look */
	const struct report_run *run;
	double *work;	   /* seconds of each rank for a sample */
	uint64_t total;	   /* steps, at the last beat */
	double pace;	   /* seconds of a step */
	double evaluation; /* seconds of the last one */
	size_t drawn;	   /* columns on the terminal now */
	bool any;	   /* there was a beat */
	struct ddp_text line;
};

/* --- The line --------------------------------------------------------------------------- */

/* [width] columns, caps included, as many of them full as [done] says. */
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

/* Which fields fit into [room] columns, in [widths]; 0: not shown. Returns the columns they take. */
static size_t choose(struct live *live, size_t room, size_t widths[FIELDS])
{
	size_t used = 0;

	for (int i = 0; i < FIELDS; i++) {
		enum field field = by_weight[i];
		size_t width = ddp_text_columns(live->fields[field]), gap = used ? GAP : 0;

		/* The last one on the line moves nothing. */
		if (width > 0 && width < live->widths[field] && field != SLOWEST)
			width = live->widths[field];
		live->widths[field] = width;
		if (field == BAR)
			width = BAR_LEAST;
		widths[field] = width > 0 && used + gap + width <= room ? width : 0;
		if (widths[field])
			used += gap + width;
	}
	if (widths[BAR]) {
		size_t more =
			room - used < BAR_MOST - BAR_LEAST ? room - used : BAR_MOST - BAR_LEAST;

		widths[BAR] += more;
		used += more;
	}
	return used;
}

/* Add the line, at most [room] columns. Returns how many it takes. */
static size_t compose(struct live *live, size_t room)
{
	size_t widths[FIELDS], used = choose(live, room, widths);
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

static bool says_utf8(void)
{
	const char *locale = ddp_getenv("LC_ALL", "LC_CTYPE", "LANG", NULL);

	return locale && (strcasestr(locale, "utf-8") || strcasestr(locale, "utf8"));
}

/* Columns that may be written; the last one of a terminal may wrap, so that it is left alone. */
static size_t live_room(void)
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
	return (size_t)(width > WIDEST ? WIDEST : width) - 1;
}

/* A job in the background leaves the terminal to others. */
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
	columns = compose(live, live_room());
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

/* --- What it says ----------------------------------------------------------------------- */

#define FIELD(live, which, ...) \
	snprintf((live)->fields[which], sizeof((live)->fields[which]), __VA_ARGS__)

/* Over the last few beats: one alone is noise. */
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
	/* Than the others on average. */
	excess = most * (live->run->ranks - 1) / fmax(sum - most, 1e-12) - 1;
	ddp_text_plain(&node, live->run->places[slowest].node);
	FIELD(live, SLOWEST, "slowest %.64s:%d (+%.0f %%)", node.data ? node.data : "", slowest,
	      100 * excess);
	live->alarm = excess > 0.1;
	ddp_text_free(&node);
}

static void set_left(struct live *live, const struct report_beat *beat)
{
	uint64_t steps = live->run->end > beat->total ? live->run->end - beat->total : 0;
	unsigned epochs =
		live->run->epochs >= beat->epoch ? live->run->epochs - beat->epoch + 1 : 0;
	uint64_t since = beat->total > live->total ? beat->total - live->total : 1;
	double now = beat->seconds / (double)since;

	live->pace = live->any ? 0.8 * live->pace + 0.2 * now : now;
	live->total = beat->total;
	FIELD(live, LEFT, "left %s",
	      show_clock((double)steps * live->pace + epochs * live->evaluation).text);
}

void live_beat(struct live *live, const struct report_beat *beat)
{
	if (!live)
		return;
	live->done = live->run->steps ? (double)beat->step / (double)live->run->steps : 0;
	FIELD(live, EPOCH, "epoch %u/%u", beat->epoch, live->run->epochs);
	FIELD(live, STEP, "%s/%s", ddp_show_count((double)beat->step).text,
	      ddp_show_count((double)live->run->steps).text);
	FIELD(live, SPEED, "%s img/s", ddp_show_count(sink_speed(beat)).text);
	FIELD(live, LOSS, "loss %s", show_loss(beat->loss).text);
	FIELD(live, RIGHT, "acc %s", show_percent(beat->top1).text);
	set_left(live, beat);
	if (beat->work && live->run->ranks > 1)
		set_slowest(live, beat->work);
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
	live->utf8 = live->escapes && says_utf8();
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
