/* SPDX-License-Identifier: Apache-2.0 */
/* print.c - lines for people: numbers, a log, the table at the end; of 100 columns at most */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sink.h"

/* --- Numbers ---------------------------------------------------------------------------- */

struct ddp_shown show_loss(double loss)
{
	struct ddp_shown shown;
	double size = fabs(loss);
	bool plain = size == 0 || (size >= 0.001 && size < 10000);

	snprintf(shown.text, sizeof(shown.text), plain ? "%.4f" : "%.3g", loss);
	if (isnan(loss))
		snprintf(shown.text, sizeof(shown.text), "nan");
	return shown;
}

struct ddp_shown show_percent(double fraction)
{
	struct ddp_shown shown;

	snprintf(shown.text, sizeof(shown.text), "%.2f %%", 100 * fraction);
	if (isnan(fraction))
		snprintf(shown.text, sizeof(shown.text), "nan");
	return shown;
}

/* [seconds] in whole ones, 0 to a hundred years. */
static long whole(double seconds)
{
	return seconds > 0 ? (long)(fmin(seconds, 3.2e9) + 0.5) : 0;
}

/* "0.9 s", "4 min 05 s", "2 h 07 min" */
static struct ddp_shown show_seconds(double seconds)
{
	struct ddp_shown shown;
	long all = whole(seconds);

	if (!(seconds >= 59.95))
		snprintf(shown.text, sizeof(shown.text), "%.1f s", seconds > 0 ? seconds : 0);
	else if (all < 3600)
		snprintf(shown.text, sizeof(shown.text), "%ld min %02ld s", all / 60, all % 60);
	else if (all < 86400)
		snprintf(shown.text, sizeof(shown.text), "%ld h %02ld min", all / 3600,
			 all / 60 % 60);
	else
		snprintf(shown.text, sizeof(shown.text), "%ld d %ld h", all / 86400,
			 all / 3600 % 24);
	return shown;
}

struct ddp_shown show_clock(double seconds)
{
	struct ddp_shown shown;
	long all = whole(seconds);

	if (all < 3600)
		snprintf(shown.text, sizeof(shown.text), "%ld:%02ld", all / 60, all % 60);
	else if (all < 360000)
		snprintf(shown.text, sizeof(shown.text), "%ld:%02ld:%02ld", all / 3600,
			 all / 60 % 60, all % 60);
	else
		snprintf(shown.text, sizeof(shown.text), "%ld d", all / 86400);
	return shown;
}

static struct ddp_shown show_bytes(uint64_t bytes)
{
	struct ddp_shown shown;
	double mebi = (double)bytes / 1048576;

	if (mebi < 10240)
		snprintf(shown.text, sizeof(shown.text), mebi < 9.95 ? "%.1f MiB" : "%.0f MiB",
			 mebi);
	else
		snprintf(shown.text, sizeof(shown.text), "%.1f GiB", mebi / 1024);
	return shown;
}

/* --- The log ---------------------------------------------------------------------------- */

enum { WIDEST = 100 }; /* columns of a line */

/* Where a line of [most] columns ends that [text] begins with: behind a phrase, or else a word. */
static const char *line_end(const char *text, size_t most)
{
	const char *at = text, *word = NULL, *phrase = NULL;
	size_t columns = 0;

	for (; *at && columns <= most; at++) {
		if (*at == ' ' && at > text) {
			word = at;
			phrase = strchr(",;:", at[-1]) ? at : phrase;
		}
		columns += ((unsigned char)*at & 0xc0) != 0x80;
	}
	if (columns <= most || !word)
		return text + strlen(text);
	return phrase ? phrase : word;
}

void print_line(struct ddp_text *out, const char *line)
{
	struct ddp_text plain = {.data = NULL};
	const char *end;

	ddp_text_plain(&plain, line);
	for (const char *at = plain.data; at && *at; at = *end ? end + 1 : end) {
		bool first = at == plain.data;

		end = line_end(at, first ? WIDEST : WIDEST - 2);
		ddp_text_add(out, "%s%.*s\n", first ? "" : "  ", (int)(end - at), at);
	}
	ddp_text_free(&plain);
}

static const char *plural(uint64_t count)
{
	return count == 1 ? "" : "s";
}

void print_run(struct ddp_text *out, const struct report_run *run)
{
	struct ddp_text line = {.data = NULL};

	print_line(out, run->title);
	ddp_text_add(&line, "%d rank%s on %d node%s, %s", run->ranks, plural((uint64_t)run->ranks),
		     run->nodes, plural((uint64_t)run->nodes), run->engine);
	print_line(out, line.data);
	ddp_text_free(&line);
	if (run->epochs)
		ddp_text_add(out, "%u epoch%s of %s steps, %s samples a step\n", run->epochs,
			     plural(run->epochs), ddp_show_count((double)run->steps).text,
			     ddp_show_count((double)run->batch).text);
	if (run->begin && run->begin < run->end)
		ddp_text_add(out, "goes on from step %s of %s\n",
			     ddp_show_count((double)run->begin).text,
			     ddp_show_count((double)run->end).text);
}

void print_beat(struct ddp_text *out, const struct report_run *run, const struct report_beat *beat)
{
	ddp_text_add(out, "epoch %u step %s/%s loss %s top1 %s %s img/s lr %.6g", beat->epoch,
		     ddp_show_count((double)beat->step).text,
		     ddp_show_count((double)run->steps).text, show_loss(beat->loss).text,
		     show_percent(beat->top1).text, ddp_show_count(sink_speed(beat)).text,
		     beat->rate);
	if (beat->scale > 0)
		ddp_text_add(out, " scale %g", beat->scale);
	ddp_text_add(out, "\n");
}

static void print_test(struct ddp_text *out, const struct report_epoch *epoch, bool all)
{
	ddp_text_add(out, "test loss %s top1 %s", show_loss(epoch->loss).text,
		     show_percent(epoch->top1).text);
	if (all)
		ddp_text_add(out, " top5 %s", show_percent(epoch->top5).text);
	ddp_text_add(out, " of %s in %s\n", ddp_show_count((double)epoch->test_samples).text,
		     show_seconds(epoch->evaluation).text);
}

void print_epoch(struct ddp_text *out, const struct report_epoch *epoch,
		 const struct report_beat *part)
{
	if (epoch->samples == 0) { /* nothing was trained */
		if (epoch->evaluated)
			print_test(out, epoch, true);
		return;
	}
	ddp_text_add(out, "epoch %u: train loss %s top1 %s", epoch->epoch,
		     show_loss(epoch->train_loss).text, show_percent(epoch->train_top1).text);
	ddp_text_add(out, epoch->evaluated ? ", " : "\n");
	if (epoch->evaluated)
		print_test(out, epoch, false);
	ddp_text_add(out, "epoch %u: %s of training, %s img/s", epoch->epoch,
		     show_seconds(part->seconds).text, ddp_show_count(sink_speed(part)).text);
	if (epoch->evaluated)
		ddp_text_add(out, ", test top5 %s%s", show_percent(epoch->top5).text,
			     epoch->best ? ", best so far" : "");
	ddp_text_add(out, "\n");
}

/* --- The table -------------------------------------------------------------------------- */

static void add_name(struct ddp_text *cells, const char *name)
{
	ddp_text_plain(cells, *name ? name : " ");
	ddp_text_add(cells, "\t");
}

/* A row of a run of [seconds], [training] of which were training. */
static void add_row(struct ddp_text *cells, const char *number, const struct report_place *place,
		    const struct report_work *work, double seconds, double training)
{
	const double parts[] = {work->seconds[ENGINE_DATA], work->seconds[ENGINE_COMPUTE],
				work->seconds[ENGINE_REDUCE], work->evaluation};
	struct report_beat own = {.samples = work->samples, .seconds = training};
	double known = parts[0] + parts[1] + parts[2] + parts[3];
	/* Clocks that disagree a little do not make shares of more than all. */
	double part = 100 / fmax(fmax(seconds, known), 1e-9);

	ddp_text_add(cells, "%s\t", number);
	add_name(cells, place->node);
	add_name(cells, place->device);
	ddp_text_add(cells, "%d\t%s\t", place->threads, ddp_show_count(sink_speed(&own)).text);
	for (int i = 0; i < 4; i++)
		ddp_text_add(cells, "%.1f %%\t", parts[i] * part);
	ddp_text_add(cells, "%.1f %%\t%s\t", fmax(100 - known * part, 0),
		     show_bytes(work->resident).text);
}

static void print_table(struct ddp_text *out, const struct report_run *run, double seconds,
			double training)
{
	static const struct ddp_column columns[] = {
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
		char number[16];

		snprintf(number, sizeof(number), "%d", rank);
		add_row(&cells, number, &run->places[rank], one, seconds, training);
		/* Sums, and means of the times. */
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

/* --- The end ---------------------------------------------------------------------------- */

static void print_file(struct ddp_text *out, const char *what, const char *path)
{
	if (!path || !*path || strcmp(path, "-") == 0)
		return;
	ddp_text_add(out, "%-12s", what);
	ddp_text_plain(out, path);
	ddp_text_add(out, "\n");
}

void print_end(struct ddp_text *out, const struct report_run *run,
	       const struct report_options *options, const struct report_end *end,
	       const struct report_beat *all)
{
	bool evaluated = run->work && run->work[0].evaluation > 0;

	ddp_text_add(out, "\n");
	ddp_text_plain(out, end->reason);
	if (all->samples > 0)
		ddp_text_add(out, ": %s samples in %s, %s img/s in %s of training\n",
			     ddp_show_count((double)all->samples).text,
			     show_seconds(end->seconds).text, ddp_show_count(sink_speed(all)).text,
			     show_seconds(all->seconds).text);
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
	print_file(out, "report", options->page);
	print_file(out, "curves", options->events);
	print_file(out, "log", options->json);
}
