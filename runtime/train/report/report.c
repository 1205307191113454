/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.c - passes events to the sinks (outputs), and prints the log's lines and the final table
 *
 * stream.c writes JSON, page.c writes the HTML page, and live.c writes the live line.
 */
#include "config.h"

#include <math.h>
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
	struct report_run run; /* copy of report_open()'s [run]; its texts are NULL */
	/* whether lines are printed on stdout, and whether intervals are among them */
	bool lines, intervals;
	struct live *live;
	struct stream *stream;
	struct ddp_events *events;
	struct page *page;
	double opened;			   /* ddp_seconds() at report_open() */
	struct report_interval unprinted;  /* sum of the intervals since the last printed line */
	struct report_interval epoch, all; /* sums over this epoch, and over the run */
	uint64_t printed_step; /* step of the last printed line, counted within its epoch */
	struct report_epoch evaluation; /* result of --evaluate, valid if its [evaluated] is set */
	struct report_end best;		/* state so far, for pages written before the end */
	bool reported[SINKS];		/* a write error of the sink was printed */
	bool failed[SINKS];		/* the sink's last write failed */
	struct ddp_error error, why; /* [error]: first write error; [why]: error of the last call */
	struct ddp_text out, json;
};

/* --- Lines for people ---------------------------------------------------------------- */

enum { WIDEST = 100 }; /* maximum number of columns of the final table */

/* Adds [line], with control characters escaped. */
static void print_line(struct ddp_text *out, const char *line)
{
	ddp_text_plain(out, line);
	ddp_text_add(out, "\n");
}

static const char *plural(uint64_t count)
{
	return count == 1 ? "" : "s";
}

static void print_run(struct ddp_text *out, const struct report_run *run)
{
	struct ddp_text line = {.data = NULL};

	print_line(out, run->title);
	ddp_text_add(&line, "%d rank%s on %d node%s, %s", run->ranks, plural((uint64_t)run->ranks),
		     run->nodes, plural((uint64_t)run->nodes), run->engine);
	print_line(out, line.data);
	ddp_text_free(&line);
	if (run->epochs)
		ddp_text_add(out, "%u epoch%s of %s step%s, %s sample%s a step\n", run->epochs,
			     plural(run->epochs), ddp_show_count((double)run->steps).text,
			     plural(run->steps), ddp_show_count((double)run->batch).text,
			     plural(run->batch));
	if (run->begin && run->begin < run->end)
		ddp_text_add(out, "resumes from step %s of %s\n",
			     ddp_show_count((double)run->begin).text,
			     ddp_show_count((double)run->end).text);
}

static void print_interval(struct ddp_text *out, const struct report_interval *interval)
{
	ddp_text_add(out, "epoch %u step %s/%s loss %s top1 %s %s img/s lr %.6g", interval->epoch,
		     ddp_show_count((double)interval->step).text,
		     ddp_show_count((double)interval->steps).text, show_loss(interval->loss).text,
		     show_percent(interval->top1).text, ddp_show_count(sink_speed(interval)).text,
		     interval->rate);
	if (interval->scale > 0)
		ddp_text_add(out, " scale %g", interval->scale);
	ddp_text_add(out, "\n");
}

static void print_test(struct ddp_text *out, const struct report_epoch *epoch)
{
	ddp_text_add(out, "%stest loss %s top1 %s", epoch->samples ? ", " : ": ",
		     show_loss(epoch->loss).text, show_percent(epoch->top1).text);
	if (epoch->samples == 0)
		ddp_text_add(out, " top5 %s", show_percent(epoch->top5).text);
	ddp_text_add(out, " of %s in %s\n", ddp_show_count((double)epoch->test_samples).text,
		     show_seconds(epoch->evaluation).text);
}

/* Adds the lines about an epoch. [part] is the sum of the epoch's intervals. */
static void print_epoch(struct ddp_text *out, const struct report_epoch *epoch,
			const struct report_interval *part)
{
	ddp_text_add(out, "epoch %u: train loss %s top1 %s", epoch->epoch,
		     show_loss(epoch->train_loss).text, show_percent(epoch->train_top1).text);
	if (epoch->evaluated)
		print_test(out, epoch);
	else
		ddp_text_add(out, "\n");
	ddp_text_add(out, "epoch %u: %s of training, %s img/s", epoch->epoch,
		     show_seconds(part->seconds).text, ddp_show_count(sink_speed(part)).text);
	if (epoch->evaluated)
		ddp_text_add(out, ", test top5 %s%s", show_percent(epoch->top5).text,
			     epoch->best ? ", best so far" : "");
	ddp_text_add(out, "\n");
}

/* --- Final table --------------------------------------------------------------------- */

static void add_name(struct ddp_text *cells, const char *name)
{
	ddp_text_plain(cells, *name ? name : " ");
	ddp_text_add(cells, "\t");
}

/* Adds a row for a run of [seconds], of which [training] were training. */
static void add_row(struct ddp_text *cells, const char *number, const struct report_place *place,
		    const struct report_work *work, double seconds, double training)
{
	const double parts[] = {work->seconds[ENGINE_DATA], work->seconds[ENGINE_COMPUTE],
				work->seconds[ENGINE_REDUCE], work->evaluation};
	struct report_interval own = {.samples = work->samples, .seconds = training};
	double known = parts[0] + parts[1] + parts[2] + parts[3];
	/* The maximum keeps the sum of the percentages at 100 if clocks differ slightly. */
	double part = 100 / fmax(fmax(seconds, known), 1e-9);

	ddp_text_add(cells, "%s\t", number);
	add_name(cells, place->node);
	add_name(cells, place->device);
	ddp_text_add(cells, "%d\t%s\t", place->threads, ddp_show_count(sink_speed(&own)).text);
	for (int i = 0; i < 4; i++)
		ddp_text_add(cells, "%.1f %%\t", parts[i] * part);
	ddp_text_add(cells, "%.1f %%\t%s\t", fmax(100 - known * part, 0),
		     ddp_show_bytes(work->resident).text);
}

static void print_table(struct ddp_text *out, const struct report_run *run, double seconds,
			double training)
{
	static const struct ddp_table_column columns[] = {
		{.head = "rank"},
		{.head = "node   ", .words = true, .least = 7},
		{.head = "device ", .words = true, .least = 16},
		{.head = "threads"},
		{.head = "  img/s"},
		{.head = "  data"},
		{.head = "compute"},
		{.head = "reduce"},
		{.head = "  test"},
		{.head = " other"},
		{.head = "  memory"},
	};
	struct ddp_text cells = {.data = NULL};
	struct report_place places = {.threads = 0};
	struct report_work all = {.samples = 0};

	for (int rank = 0; rank < run->ranks; rank++) {
		const struct report_work *one = &run->work[rank];

		add_row(&cells, ddp_show("%d", rank).text, &run->places[rank], one, seconds,
			training);
		/* Samples and memory are added up over the ranks. Times are averaged. */
		for (int phase = 0; phase < ENGINE_PHASES; phase++)
			all.seconds[phase] += one->seconds[phase] / run->ranks;
		all.evaluation += one->evaluation / run->ranks;
		all.samples += one->samples;
		all.resident += one->resident;
		places.threads += run->places[rank].threads;
	}
	snprintf(places.node, sizeof(places.node), "%d node%s", run->nodes,
		 plural((uint64_t)run->nodes));
	if (run->ranks > 1)
		add_row(&cells, "all", &places, &all, seconds, training);
	ddp_text_table(out, columns, sizeof(columns) / sizeof(columns[0]), &cells, WIDEST);
	ddp_text_add(out, "\n");
	ddp_text_free(&cells);
}

/* --- End of the run ------------------------------------------------------------------ */

static void print_file(struct ddp_text *out, const char *what, const char *path)
{
	if (!path || !*path || strcmp(path, "-") == 0)
		return;
	ddp_text_add(out, "%-12s", what);
	ddp_text_plain(out, path);
	ddp_text_add(out, "\n");
}

/*
 * Prints the summary, the table and the names of the files, except those that could not be written.
 */
static void print_end(struct report *report, const struct report_end *end)
{
	const struct report_options *options = &report->options;
	const struct report_run *run = &report->run;
	const struct report_interval *all = &report->all;
	struct ddp_text *out = &report->out;
	bool evaluated = run->work && run->work[0].evaluation > 0;

	ddp_text_add(out, "\n");
	ddp_text_plain(out, end->reason);
	if (all->samples > 0)
		ddp_text_add(out, ": %s samples in %s, %s img/s in %s of training\n",
			     ddp_show_count((double)all->samples).text,
			     show_seconds(end->seconds).text, ddp_show_count(sink_speed(all)).text,
			     show_seconds(all->seconds).text);
	else if (report->evaluation.evaluated)
		print_test(out, &report->evaluation);
	else
		ddp_text_add(out, ": nothing was trained in %s\n", show_seconds(end->seconds).text);
	if (end->best_epoch)
		ddp_text_add(out, "best test top1 %s, after epoch %u\n",
			     show_percent(end->best_top1).text, end->best_epoch);
	ddp_text_add(out, "\n");
	if (run->work && (all->samples > 0 || evaluated))
		print_table(out, run, end->seconds, all->seconds);
	print_file(out, "checkpoint", end->checkpoint);
	print_file(out, "model", end->model);
	print_file(out, "report", report->failed[SINK_PAGE] ? NULL : options->page);
	print_file(out, "curves", report->failed[SINK_EVENTS] ? NULL : options->events);
	print_file(out, "log", report->reported[SINK_JSON] ? NULL : options->json);
}

/* --- Writing ------------------------------------------------------------------------- */

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

static void print_warning(struct report *report, const char *line)
{
	ddp_text_clear(&report->out);
	ddp_text_add(&report->out, "ddp-train: warning: ");
	ddp_text_plain(&report->out, line);
	ddp_text_add(&report->out, "\n");
	(void)report_write(report, STDERR_FILENO);
}

/*
 * Handles [status], the result of a call to [sink]. The error text is in report->why. Prints a
 * warning at the first error of each sink.
 */
static void report_check(struct report *report, enum sink sink, int status)
{
	char line[DDP_ERROR_SIZE + 32];

	report->failed[sink] = status < 0;
	if (status >= 0)
		return;
	if (report->error.status == 0)
		report->error = report->why;
	if (report->reported[sink])
		return;
	report->reported[sink] = true;
	snprintf(line, sizeof(line), "%s; the training continues", report->why.text);
	print_warning(report, line);
}

/* Prints report->out to [fd], which is stderr for the final table if stdout has JSON. */
static void report_print(struct report *report, int fd)
{
	int status = 0;

	if (report_write(report, fd) < 0)
		status = ddp_error_errno(&report->why, DDP_ERR_FILE, "cannot write to %s",
					 fd == STDOUT_FILENO ? "stdout" : "stderr");
	report_check(report, SINK_LINES, status);
}

static void report_stream(struct report *report)
{
	if (report->stream)
		report_check(report, SINK_JSON,
			     stream_write(report->stream, &report->json, &report->why));
}

/* Writes the page, with the final state if [end] is set, else with the current state. */
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

/* --- TensorBoard --------------------------------------------------------------------- */

/* Returns the fraction of [phase] in the total time that all ranks spent in steps. */
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

static void write_interval_events(struct ddp_events *events, const struct report_run *run,
				  const struct report_interval *interval)
{
	static const char *const tags[ENGINE_PHASES] = {
		[ENGINE_DATA] = "time/data",
		[ENGINE_COMPUTE] = "time/compute",
		[ENGINE_REDUCE] = "time/all_reduce",
	};
	int64_t step = (int64_t)interval->total;

	ddp_events_scalar(events, "train/loss", step, interval->loss);
	ddp_events_scalar(events, "train/top1", step, interval->top1);
	ddp_events_scalar(events, "train/lr", step, interval->rate);
	ddp_events_scalar(events, "train/images_per_second", step, sink_speed(interval));
	if (interval->scale > 0)
		ddp_events_scalar(events, "train/loss_scale", step, interval->scale);
	for (int phase = 0; interval->work && phase < ENGINE_PHASES; phase++)
		ddp_events_scalar(events, tags[phase], step,
				  share(interval->work, run->ranks, phase));
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

/* --- Open and close ------------------------------------------------------------------ */

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
	if (status == 0 && is_given(options->page) &&
	    !(options->finished && page_is_finished(options->page)))
		report->page =
			page_open(options->page, options->append, &report->run, &report->json);
	return status < 0 ? status : report_page(report, &report->best);
}

static void open_screen(struct report *report)
{
	if (report->options.live && !report->options.quiet)
		report->live = live_open(&report->run);
	report->lines = !report->options.quiet && !json_on_stdout(report);
	report->intervals = report->lines && (!report->live || !isatty(STDOUT_FILENO));
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

/* --- Events -------------------------------------------------------------------------- */

/*
 * Whether a line about [interval] is due. There are about LINES lines per epoch, at least one per
 * minute, and one at the first and the last step of each epoch.
 */
static bool line_is_due(const struct report *report, const struct report_interval *interval)
{
	enum { LINES = 20 };
	uint64_t steps = interval->steps, part = steps > LINES ? steps / LINES : 1;

	if (report->options.every || interval->step == 1 || interval->step == steps)
		return true;
	return (interval->step - 1) / part != (report->printed_step - 1) / part ||
	       report->unprinted.seconds >= 60;
}

void report_interval(struct report *report, const struct report_interval *interval)
{
	if (!report)
		return;
	sink_add(&report->unprinted, interval);
	sink_add(&report->epoch, interval);
	sink_add(&report->all, interval);
	live_interval(report->live, interval);
	if (report->intervals && line_is_due(report, interval)) {
		print_interval(&report->out, &report->unprinted);
		report_print(report, STDOUT_FILENO);
		report->printed_step = interval->step;
		report->unprinted = (struct report_interval){0};
	}
	if (report->stream) {
		ddp_text_clear(&report->json);
		stream_interval(&report->json, &report->run, interval);
		report_stream(report);
	}
	write_interval_events(report->events, &report->run, interval);
	page_interval(report->page, interval);
}

void report_epoch(struct report *report, const struct report_epoch *epoch)
{
	if (!report)
		return;
	live_epoch(report->live, epoch);
	if (epoch->samples == 0) {
		report->evaluation = *epoch;
	} else if (report->lines) {
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
	report->epoch = (struct report_interval){0};
	report_check(report, SINK_PAGE, report_page(report, &report->best));
}

DDP_FORMAT(3, 0)
static void add_line(struct report *report, bool warning, const char *format, va_list arguments)
{
	char line[2048];

	vsnprintf(line, sizeof(line), format, arguments);
	if (warning) {
		print_warning(report, line);
	} else if (report->lines) {
		print_line(&report->out, line);
		report_print(report, STDOUT_FILENO);
	}
	ddp_text_clear(&report->json);
	stream_log(&report->json, line, warning);
	report_stream(report);
	page_log(report->page, &report->json);
}

void report_log(struct report *report, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	if (report)
		add_line(report, false, format, arguments);
	va_end(arguments);
}

void report_warn(struct report *report, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	if (report)
		add_line(report, true, format, arguments);
	va_end(arguments);
}

void report_end(struct report *report, const struct report_end *given)
{
	struct report_end end;

	if (!report)
		return;
	end = *given;
	end.reason = end.reason ? end.reason : "ended";
	live_close(report->live);
	report->live = NULL;
	ddp_text_clear(&report->json);
	stream_end(&report->json, &report->run, &end, &report->all);
	report_stream(report);
	report_check(report, SINK_EVENTS, ddp_events_close(report->events, &report->why));
	report->events = NULL;
	report_check(report, SINK_PAGE, report_page(report, &end));
	print_end(report, &end);
	report_print(report, json_on_stdout(report) ? STDERR_FILENO : STDOUT_FILENO);
}
