/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live.c - one line of the terminal, rewritten in place
 *
 * Each time it is one write(), so it does not flicker, and it is never as wide as the terminal, so
 * it does not wrap. The cursor stays visible: once the line is hidden the terminal is as it was.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/file.h"
#include "meter.h"
#include "sink.h"

enum { WIDEST = 500 };

struct live {
	int fd;
	bool escapes; /* the terminal knows how to clear to the end of a line */
	struct meter meter;
	int ranks;
	double *work;	      /* seconds of each rank for a sample */
	unsigned epochs;      /* in all */
	uint64_t steps, last; /* of an epoch; at which the training ends */
	uint64_t total;	      /* steps, at the last beat */
	double pace;	      /* seconds of a step */
	double evaluation;    /* seconds of the last one */
	size_t drawn;	      /* columns on the terminal now */
	bool any;	      /* there was a beat */
	struct text line;
};

/* --- The terminal ----------------------------------------------------------------------- */

static bool is_set(const char *name)
{
	const char *value = getenv(name);

	return value && *value;
}

static bool says_utf8(void)
{
	static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (is_set(names[i]))
			return strcasestr(getenv(names[i]), "utf-8") ||
			       strcasestr(getenv(names[i]), "utf8");
	return false;
}

/* Columns that may be written; the last one of a terminal may wrap, so that it is left alone. */
static size_t live_room(const struct live *live)
{
	const char *columns = getenv("COLUMNS");
	struct winsize size;
	long width = 0;

	if (ioctl(live->fd, TIOCGWINSZ, &size) == 0)
		width = size.ws_col;
	if (width == 0 && columns)
		width = strtol(columns, NULL, 10);
	if (width <= 0)
		width = 80;
	return (size_t)(width > WIDEST ? WIDEST : width) - 1;
}

/* A job in the background leaves the terminal to others. */
static bool live_allowed(const struct live *live)
{
	pid_t group = tcgetpgrp(live->fd);

	return group <= 0 || group == getpgrp();
}

static void live_write(struct live *live)
{
	if (!live->line.failed && live->line.size > 0)
		(void)ddp_file_write_all(live->fd, live->line.data, live->line.size);
}

void live_show(struct live *live)
{
	size_t columns;

	if (!live || !live->any || !live_allowed(live))
		return;
	text_clear(&live->line);
	text_put(&live->line, "\r", 1);
	columns = meter_compose(&live->meter, live_room(live), &live->line);
	if (live->escapes)
		text_add(&live->line, "\033[K");
	else
		for (size_t i = columns; i < live->drawn; i++)
			text_put(&live->line, " ", 1);
	live->drawn = columns;
	live_write(live);
}

void live_hide(struct live *live)
{
	if (!live || live->drawn == 0)
		return;
	text_clear(&live->line);
	if (live->escapes)
		text_add(&live->line, "\r\033[K");
	else
		text_add(&live->line, "\r%*s\r", (int)live->drawn, "");
	live->drawn = 0;
	live_write(live);
}

/* --- What it says ----------------------------------------------------------------------- */

#define FIELD(live, which, ...) \
	snprintf((live)->meter.fields[which], sizeof((live)->meter.fields[which]), __VA_ARGS__)

/* Over the last few beats: one alone is noise. */
static void tell_slowest(struct live *live, const struct report_rank *ranks)
{
	struct text node = {0};
	double excess;
	int slowest;

	if (!ranks || live->ranks < 2)
		return;
	for (int rank = 0; rank < live->ranks; rank++) {
		double now = sink_work(&ranks[rank]);

		if (ranks[rank].samples == 0)
			continue;
		now /= (double)ranks[rank].samples;
		live->work[rank] = live->any ? 0.7 * live->work[rank] + 0.3 * now : now;
	}
	slowest = sink_slowest(live->work, live->ranks, &excess);
	if (slowest < 0)
		return;
	text_plain(&node, ranks[slowest].node);
	FIELD(live, METER_SLOWEST, "slowest %.64s:%d (+%.0f %%)", node.data ? node.data : "",
	      slowest, 100 * excess);
	live->meter.alarm = excess > 0.1;
	text_free(&node);
}

static void tell_left(struct live *live, const struct report_beat *beat)
{
	uint64_t steps = live->last > beat->total ? live->last - beat->total : 0;
	unsigned epochs = live->epochs >= beat->epoch ? live->epochs - beat->epoch + 1 : 0;
	uint64_t since = beat->total > live->total ? beat->total - live->total : 1;
	double now = beat->seconds / (double)since;

	live->pace = live->any ? 0.8 * live->pace + 0.2 * now : now;
	live->total = beat->total;
	FIELD(live, METER_LEFT, "left %s",
	      show_clock((double)steps * live->pace + epochs * live->evaluation).text);
}

void live_beat(struct live *live, const struct report_beat *beat)
{
	if (!live)
		return;
	live->meter.done = live->steps ? (double)beat->step / (double)live->steps : 0;
	FIELD(live, METER_EPOCH, "epoch %u/%u", beat->epoch, live->epochs);
	FIELD(live, METER_STEP, "%llu/%llu", (unsigned long long)beat->step,
	      (unsigned long long)live->steps);
	FIELD(live, METER_SPEED, "%s img/s",
	      show_count(sink_speed(beat->samples, beat->seconds)).text);
	FIELD(live, METER_LOSS, "loss %s", show_loss(beat->loss).text);
	FIELD(live, METER_HITS, "acc %s", show_percent(beat->top1).text);
	tell_left(live, beat);
	tell_slowest(live, beat->ranks);
	live->any = true;
	live_show(live);
}

void live_epoch(struct live *live, const struct report_epoch *epoch)
{
	if (live && epoch->evaluated)
		live->evaluation = epoch->evaluation;
}

int live_open(struct live **live, int wanted, const struct report_run *run)
{
	const char *term = getenv("TERM");

	*live = NULL;
	if (wanted == 0 || (wanted < 0 && !isatty(STDERR_FILENO)))
		return 0;
	*live = calloc(1, sizeof(**live));
	if (*live)
		(*live)->work = calloc((size_t)run->ranks, sizeof(double));
	if (!*live || !(*live)->work) {
		live_close(*live);
		*live = NULL;
		return DDP_ERR_MEMORY;
	}
	(*live)->fd = STDERR_FILENO;
	(*live)->escapes = term && *term && strcmp(term, "dumb") != 0;
	(*live)->meter.utf8 = (*live)->escapes && says_utf8();
	(*live)->meter.colour = (*live)->escapes && !is_set("NO_COLOR");
	(*live)->ranks = run->ranks;
	(*live)->epochs = run->epochs;
	(*live)->steps = run->steps;
	(*live)->last = sink_last_step(run);
	(*live)->total = run->begin;
	return 0;
}

void live_close(struct live *live)
{
	if (!live)
		return;
	live_hide(live);
	text_free(&live->line);
	free(live->work);
	free(live);
}
