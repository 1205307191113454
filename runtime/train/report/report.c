/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - who is told what */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "copy.h"
#include "page.h"
#include "sink.h"

enum sink { SINK_LINES, SINK_JSON, SINK_EVENTS, SINK_PAGE, SINKS };

struct report {
	struct report_options options; /* texts are its own */
	struct report_run run;	       /* likewise */
	bool lines, beats; /* go to stdout; beats do not where the live line shows them */
	struct live *live;
	struct json_log *json;
	struct ddp_events *events;
	struct page *page;
	struct report_beat since; /* what no line has told yet */
	uint64_t told_step;	  /* in the epoch, of the last line */
	bool told[SINKS];	  /* that it cannot be written */
	struct ddp_error error;	  /* the first such */
	struct text out;
};

/* --- What sinks share ------------------------------------------------------------------- */

int sink_slowest(const double *work, int count, double *excess)
{
	double sum = 0;
	int slowest = 0;

	for (int rank = 0; rank < count; rank++) {
		sum += work[rank];
		slowest = work[rank] > work[slowest] ? rank : slowest;
	}
	if (count < 2 || !(sum > 0) || !isfinite(sum))
		return -1;
	*excess = work[slowest] * (count - 1) / fmax(sum - work[slowest], 1e-12) - 1;
	return slowest;
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
	text_clear(&report->out);
	return status;
}

static void report_warning(struct report *report, const char *line)
{
	text_clear(&report->out);
	text_add(&report->out, "ddp-train: warning: ");
	text_plain(&report->out, line);
	text_add(&report->out, "\n");
	(void)report_write(report, STDERR_FILENO);
}

/* [status] is what [sink] returned: a failure is told, once. */
static void report_check(struct report *report, enum sink sink, int status,
			 const struct ddp_error *error)
{
	char line[sizeof(error->text) + 32];

	if (status >= 0)
		return;
	if (report->error.status == 0)
		report->error = *error;
	if (report->told[sink])
		return;
	report->told[sink] = true;
	snprintf(line, sizeof(line), "%s; the training goes on", error->text);
	report_warning(report, line);
}

/* Lines to stdout, the last table to stderr where stdout is for programs. */
static void report_print(struct report *report, int fd)
{
	struct ddp_error error = {0};
	int status = 0;

	if (report_write(report, fd) < 0)
		status = ddp_error_errno(&error, DDP_ERR_FILE, "cannot write to %s",
					 fd == STDOUT_FILENO ? "stdout" : "stderr");
	report_check(report, SINK_LINES, status, &error);
}

/* --- Begin and end ---------------------------------------------------------------------- */

static bool json_on_stdout(const struct report *report)
{
	return report->options.json && strcmp(report->options.json, "-") == 0;
}

static int open_files(struct report *report, struct ddp_error *error)
{
	const struct report_options *options = &report->options;
	int status = 0;

	if (options->json)
		status = json_log_open(&report->json, options->json, options->append, error);
	if (status == 0 && options->events)
		status = ddp_events_open(&report->events, options->events, error);
	if (status == 0 && options->page)
		status = page_open(&report->page, options->page, options->append, &report->run,
				   error);
	return status;
}

static int open_screen(struct report *report)
{
	int status = 0;

	if (!report->options.quiet)
		status = live_open(&report->live, report->options.live, &report->run);
	report->lines = !report->options.quiet && !json_on_stdout(report);
	report->beats = report->lines && (!report->live || !isatty(STDOUT_FILENO));
	return status;
}

static void report_free(struct report *report)
{
	live_close(report->live);
	page_close(report->page);
	copy_run_free(&report->run);
	copy_options_free(&report->options);
	text_free(&report->out);
	free(report);
}

int report_open(struct report **opened, const struct report_options *options,
		const struct report_run *run, struct ddp_error *error)
{
	struct report *report = calloc(1, sizeof(*report));
	struct ddp_error failure = {0};
	int status = DDP_ERR_MEMORY;

	*opened = NULL;
	if (!report)
		goto no_memory;
	if (copy_options(&report->options, options) < 0 || copy_run(&report->run, run) < 0 ||
	    open_screen(report) < 0)
		goto no_memory;
	status = open_files(report, error);
	if (status < 0)
		goto error;
	if (report->lines) {
		lines_run(&report->out, &report->run);
		report_print(report, STDOUT_FILENO);
	}
	status = json_log_run(report->json, &report->run, &failure);
	report_check(report, SINK_JSON, status, &failure);
	*opened = report;
	return 0;

no_memory:
	ddp_error_set(error, status, "no memory for a report");
error:
	if (report) {
		json_log_close(report->json, NULL);
		ddp_events_close(report->events, NULL);
		report_free(report);
	}
	return status;
}

int report_close(struct report *report, struct ddp_error *error)
{
	struct ddp_error failure = {0};
	int status;

	if (!report)
		return 0;
	live_close(report->live);
	report->live = NULL;
	status = json_log_close(report->json, &failure);
	report_check(report, SINK_JSON, status, &failure);
	status = ddp_events_close(report->events, &failure);
	report_check(report, SINK_EVENTS, status, &failure);
	status = report->error.status;
	if (status < 0 && error)
		*error = report->error;
	report_free(report);
	return status;
}

/* --- What happened ---------------------------------------------------------------------- */

/* Add [beat] to what no line has told yet. */
static void add_beat(struct report_beat *since, const struct report_beat *beat)
{
	struct report_beat sum = *beat;
	double before = (double)since->samples, now = (double)beat->samples, all = before + now;

	if (before > 0 && all > 0) {
		sum.loss = (since->loss * before + beat->loss * now) / all;
		sum.top1 = (since->top1 * before + beat->top1 * now) / all;
		sum.samples += since->samples;
		sum.seconds += since->seconds;
	}
	*since = sum;
}

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
	       report->since.seconds >= SECONDS;
}

static void print_beat(struct report *report, const struct report_beat *beat)
{
	add_beat(&report->since, beat);
	if (!line_is_due(report, beat))
		return;
	lines_beat(&report->out, &report->run, &report->since);
	report_print(report, STDOUT_FILENO);
	report->told_step = beat->step;
	report->since = (struct report_beat){0};
}

void report_beat(struct report *report, const struct report_beat *beat)
{
	struct ddp_error error = {0};

	if (!report)
		return;
	live_beat(report->live, beat);
	if (report->beats)
		print_beat(report, beat);
	report_check(report, SINK_JSON, json_log_beat(report->json, &report->run, beat, &error),
		     &error);
	points_beat(report->events, &report->run, beat);
	page_beat(report->page, beat);
}

void report_epoch(struct report *report, const struct report_epoch *epoch)
{
	struct ddp_error error = {0};

	if (!report)
		return;
	live_epoch(report->live, epoch);
	if (report->lines) {
		lines_epoch(&report->out, epoch);
		report_print(report, STDOUT_FILENO);
	}
	report_check(report, SINK_JSON, json_log_epoch(report->json, epoch, &error), &error);
	points_epoch(report->events, epoch);
	report_check(report, SINK_PAGE, page_epoch(report->page, epoch, &error), &error);
}

static __attribute__((format(printf, 3, 0))) void tell(struct report *report, bool warning,
						       const char *format, va_list arguments)
{
	struct ddp_error error = {0};
	char line[2048];

	vsnprintf(line, sizeof(line), format, arguments);
	if (warning) {
		report_warning(report, line);
	} else if (report->lines) {
		text_plain(&report->out, line);
		text_add(&report->out, "\n");
		report_print(report, STDOUT_FILENO);
	}
	report_check(report, SINK_JSON, json_log_say(report->json, line, warning, &error), &error);
	page_say(report->page, line, warning);
}

void report_say(struct report *report, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	if (report)
		tell(report, false, format, arguments);
	va_end(arguments);
}

void report_warn(struct report *report, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	if (report)
		tell(report, true, format, arguments);
	va_end(arguments);
}

void report_hide(struct report *report)
{
	if (report)
		live_hide(report->live);
}

void report_end(struct report *report, const struct report_end *told)
{
	struct ddp_error error = {0};
	struct report_end end;

	if (!report)
		return;
	end = *told;
	end.reason = end.reason ? end.reason : "ended";
	live_close(report->live);
	report->live = NULL;
	report_check(report, SINK_JSON, json_log_end(report->json, &report->run, &end, &error),
		     &error);
	report_check(report, SINK_PAGE, page_end(report->page, &end, &error), &error);
	table_end(&report->out, &report->run, &report->options, &end);
	report_print(report, json_on_stdout(report) ? STDERR_FILENO : STDOUT_FILENO);
}
