/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - who is told what */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/watch.h"
#include "base/xalloc.h"
#include "sink.h"

enum sink { SINK_LINES, SINK_JSON, SINK_EVENTS, SINK_PAGE, SINKS };

struct report {
	struct report_options options;
	struct report_run run; /* without its texts */
	bool lines, beats;     /* go to stdout; beats do not where the live line shows them */
	struct live *live;
	struct stream *stream;
	struct ddp_events *events;
	struct page *page;
	double opened;		       /* on ddp_seconds()'s clock */
	struct report_beat untold;     /* what no line has told yet */
	struct report_beat epoch, all; /* of this epoch; of the run */
	uint64_t told_step;	       /* in the epoch, of the last line */
	struct report_end best;	       /* so far, for a page in between */
	bool told[SINKS];	       /* that it cannot be written */
	bool failed[SINKS];	       /* the last time */
	struct ddp_error error, why;   /* the first such; of the last call that failed */
	struct ddp_text out, json;
};

/* --- What sinks share ------------------------------------------------------------------- */

void sink_add(struct report_beat *sum, const struct report_beat *beat)
{
	double before = (double)sum->samples, now = (double)beat->samples;
	struct report_beat both = *beat;

	if (before > 0) {
		both.loss = (sum->loss * before + beat->loss * now) / (before + now);
		both.top1 = (sum->top1 * before + beat->top1 * now) / (before + now);
		both.samples += sum->samples;
		both.seconds += sum->seconds;
	}
	*sum = both;
}

double sink_speed(const struct report_beat *beat)
{
	return beat->seconds > 0 ? (double)beat->samples / beat->seconds : 0;
}

double sink_work(const struct report_work *work)
{
	return work->seconds[ENGINE_DATA] + work->seconds[ENGINE_COMPUTE];
}

/* --- Writing ---------------------------------------------------------------------------- */

/* Write report->out to [fd], around the live line. */
static int report_write(struct report *report, int fd)
{
	int status = 0;

	if (report->out.size > 0 && !report->out.failed) {
		live_hide(report->live);
		fflush(stdout);
		status = ddp_file_write_all(fd, report->out.data, report->out.size);
		live_show(report->live);
	}
	ddp_text_clear(&report->out);
	return status;
}

/* [status] is what [sink] returned, with report->why: a failure is told, once. */
static void report_check(struct report *report, enum sink sink, int status)
{
	report->failed[sink] = status < 0;
	if (status >= 0)
		return;
	if (report->error.status == 0)
		report->error = report->why;
	if (report->told[sink])
		return;
	report->told[sink] = true;
	ddp_text_clear(&report->out);
	ddp_text_add(&report->out, "ddp-train: warning: ");
	ddp_text_plain(&report->out, report->why.text);
	ddp_text_add(&report->out, "; the training goes on\n");
	(void)report_write(report, STDERR_FILENO);
}

/* Lines to stdout, the last table to stderr where stdout is for programs. */
static void report_print(struct report *report, int fd)
{
	int status = 0;

	if (report_write(report, fd) < 0)
		status = ddp_error_errno(&report->why, DDP_ERR_FILE, "cannot write to %s",
					 fd == STDOUT_FILENO ? "stdout" : "stderr");
	report_check(report, SINK_LINES, status);
}

/* The line in report->json, to the log. */
static void report_stream(struct report *report)
{
	if (report->stream)
		report_check(report, SINK_JSON,
			     stream_write(report->stream, &report->json, &report->why));
}

/* The page as it stands, or as it ends. */
static int report_page(struct report *report, const struct report_end *end)
{
	struct ddp_text line = {.data = NULL};
	int status;

	if (!report->page)
		return 0;
	stream_end(&line, &report->run, end, &report->all);
	status = page_write(report->page, &line, end->reason != NULL, &report->why);
	ddp_text_free(&line);
	return status;
}

/* --- TensorBoard ------------------------------------------------------------------------ */

/* The share of [phase] in the time that all ranks spent in steps. */
static double share(const struct report_work *work, int ranks, int phase)
{
	double part = 0, all = 0;

	for (int rank = 0; rank < ranks; rank++) {
		part += work[rank].seconds[phase];
		for (int other = 0; other < ENGINE_PHASES; other++)
			all += work[rank].seconds[other];
	}
	return all > 0 ? part / all : 0;
}

static void write_beat_events(struct ddp_events *events, const struct report_run *run,
			      const struct report_beat *beat)
{
	static const char *const tags[ENGINE_PHASES] = {
		[ENGINE_DATA] = "time/data",
		[ENGINE_COMPUTE] = "time/compute",
		[ENGINE_REDUCE] = "time/all_reduce",
	};
	int64_t step = (int64_t)beat->total;

	ddp_events_scalar(events, "train/loss", step, beat->loss);
	ddp_events_scalar(events, "train/top1", step, beat->top1);
	ddp_events_scalar(events, "train/lr", step, beat->rate);
	ddp_events_scalar(events, "train/images_per_second", step, sink_speed(beat));
	if (beat->scale > 0)
		ddp_events_scalar(events, "train/loss_scale", step, beat->scale);
	for (int phase = 0; beat->work && phase < ENGINE_PHASES; phase++)
		ddp_events_scalar(events, tags[phase], step, share(beat->work, run->ranks, phase));
}

static void write_epoch_events(struct ddp_events *events, const struct report_epoch *epoch)
{
	int64_t step = (int64_t)epoch->total;

	if (epoch->evaluated) {
		ddp_events_scalar(events, "test/loss", step, epoch->loss);
		ddp_events_scalar(events, "test/top1", step, epoch->top1);
		ddp_events_scalar(events, "test/top5", step, epoch->top5);
	}
	ddp_events_flush(events);
}

/* --- Begin and end ---------------------------------------------------------------------- */

static bool json_on_stdout(const struct report *report)
{
	return report->options.json && strcmp(report->options.json, "-") == 0;
}

static bool is_given(const char *path)
{
	return path && *path;
}

static int open_files(struct report *report, const struct report_run *run)
{
	const struct report_options *options = &report->options;
	int status = 0;

	stream_run(&report->json, run);
	if (is_given(options->json))
		status = stream_open(&report->stream, options->json, options->append, &report->why);
	if (status == 0 && is_given(options->events))
		status = ddp_events_open(&report->events, options->events, &report->why);
	if (status == 0 && is_given(options->page))
		report->page =
			page_open(options->page, options->append, &report->run, &report->json);
	return status < 0 ? status : report_page(report, &report->best);
}

static void open_screen(struct report *report)
{
	if (!report->options.quiet)
		report->live = live_open(report->options.live, &report->run);
	report->lines = !report->options.quiet && !json_on_stdout(report);
	report->beats = report->lines && (!report->live || !isatty(STDOUT_FILENO));
}

int report_open(struct report **opened, const struct report_options *options,
		const struct report_run *run, struct ddp_error *error)
{
	struct report *report = ddp_xcalloc(1, sizeof(*report), "a report");

	*opened = NULL;
	report->opened = ddp_seconds();
	report->options = *options;
	report->run = *run;
	report->run.title = report->run.command = report->run.engine = report->run.job = NULL;
	report->run.configuration = NULL;
	open_screen(report);
	if (open_files(report, run) < 0) {
		report->error = report->why;
		return report_close(report, error);
	}
	if (report->lines) {
		print_run(&report->out, run);
		report_print(report, STDOUT_FILENO);
	}
	report_stream(report);
	*opened = report;
	return 0;
}

int report_close(struct report *report, struct ddp_error *error)
{
	int status;

	if (!report)
		return 0;
	live_close(report->live);
	report->live = NULL;
	report_check(report, SINK_JSON, stream_close(report->stream, &report->why));
	report_check(report, SINK_EVENTS, ddp_events_close(report->events, &report->why));
	status = report->error.status;
	if (status < 0 && error)
		*error = report->error;
	page_close(report->page);
	ddp_text_free(&report->out);
	ddp_text_free(&report->json);
	free(report);
	return status;
}

/* --- What happened ---------------------------------------------------------------------- */

/*
 * Whether a line is due. A log is read for years: about LINES of them tell of an epoch, or one
 * each minute of a long one; the first step is told at once.
 */
static bool line_is_due(const struct report *report, const struct report_beat *beat)
{
	enum { LINES = 20, SECONDS = 60 };
	uint64_t steps = report->run.steps, part = steps > LINES ? steps / LINES : 1;

	if (report->options.every || beat->step == 1 || beat->step == steps)
		return true;
	return (beat->step - 1) / part != (report->told_step - 1) / part ||
	       report->untold.seconds >= SECONDS;
}

void report_beat(struct report *report, const struct report_beat *beat)
{
	if (!report)
		return;
	sink_add(&report->untold, beat);
	sink_add(&report->epoch, beat);
	sink_add(&report->all, beat);
	live_beat(report->live, beat);
	if (report->beats && line_is_due(report, beat)) {
		print_beat(&report->out, &report->run, &report->untold);
		report_print(report, STDOUT_FILENO);
		report->told_step = beat->step;
		report->untold = (struct report_beat){0};
	}
	if (report->stream) {
		ddp_text_clear(&report->json);
		stream_beat(&report->json, &report->run, beat);
		report_stream(report);
	}
	write_beat_events(report->events, &report->run, beat);
	page_beat(report->page, beat);
}

void report_epoch(struct report *report, const struct report_epoch *epoch)
{
	if (!report)
		return;
	live_epoch(report->live, epoch);
	if (report->lines) {
		print_epoch(&report->out, epoch, &report->epoch);
		report_print(report, STDOUT_FILENO);
	}
	ddp_text_clear(&report->json);
	stream_epoch(&report->json, epoch, &report->epoch);
	report_stream(report);
	write_epoch_events(report->events, epoch);
	page_epoch(report->page, &report->json);
	if (epoch->best) {
		report->best.best_top1 = epoch->top1;
		report->best.best_epoch = epoch->epoch;
	}
	report->best.seconds = ddp_seconds() - report->opened;
	report->epoch = (struct report_beat){0};
	report_check(report, SINK_PAGE, report_page(report, &report->best));
}

void report_say(struct report *report, const char *format, ...)
{
	va_list arguments;
	char line[2048];

	if (!report)
		return;
	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	if (report->lines) {
		print_line(&report->out, line);
		report_print(report, STDOUT_FILENO);
	}
	ddp_text_clear(&report->json);
	stream_say(&report->json, line);
	report_stream(report);
	page_say(report->page, &report->json);
}

void report_end(struct report *report, const struct report_end *told)
{
	struct report_options files;
	struct report_end end;

	if (!report)
		return;
	end = *told;
	end.reason = end.reason ? end.reason : "ended";
	live_close(report->live);
	report->live = NULL;
	ddp_text_clear(&report->json);
	stream_end(&report->json, &report->run, &end, &report->all);
	report_stream(report);
	report_check(report, SINK_EVENTS, ddp_events_close(report->events, &report->why));
	report->events = NULL;
	report_check(report, SINK_PAGE, report_page(report, &end));
	/* What could not be written is not announced. */
	files = report->options;
	files.json = report->told[SINK_JSON] ? NULL : files.json;
	files.page = report->failed[SINK_PAGE] ? NULL : files.page;
	files.events = report->failed[SINK_EVENTS] ? NULL : files.events;
	print_end(&report->out, &report->run, &files, &end, &report->all);
	report_print(report, json_on_stdout(report) ? STDERR_FILENO : STDOUT_FILENO);
}
