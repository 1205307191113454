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

size_t print_columns(const char *string)
{
	size_t count = 0;

	for (; *string; string++)
		count += ((unsigned char)*string & 0xc0) != 0x80;
	return count;
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
	if (run->begin && run->begin < sink_last_step(run))
		ddp_text_add(out, "goes on from step %s of %s\n",
			     ddp_show_count((double)run->begin).text,
			     ddp_show_count((double)sink_last_step(run)).text);
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

/* Columns of a line: all but the names, with gaps; of a name that gives way at least. */
enum { NUMBERS = 77, NODE_LEAST = 7, DEVICE_LEAST = 16 };

/* [name] in [width] columns; what is of others may hold what drives a terminal. */
static void put_name(struct ddp_text *out, const char *name, int width)
{
	struct ddp_text plain = {.data = NULL};
	const char *end;

	ddp_text_put(&plain, "", 0);
	ddp_text_plain(&plain, name);
	for (end = plain.data; end && *end && (width > 0 || (*end & 0xc0) == 0x80); end++)
		width -= (*end & 0xc0) != 0x80;
	ddp_text_add(out, "%.*s%*s  ", (int)(end - plain.data), plain.data ? plain.data : "", width,
		     "");
	ddp_text_free(&plain);
}

/* [rank] in a run of [seconds], [training] of which were training. */
static void print_rank(struct ddp_text *out, const char *number, const struct report_rank *rank,
		       const int names[2], double seconds, double training)
{
	const double parts[] = {rank->seconds[ENGINE_DATA], rank->seconds[ENGINE_COMPUTE],
				rank->seconds[ENGINE_REDUCE], rank->evaluation};
	struct report_beat own = {.samples = rank->samples, .seconds = training};
	double known = parts[0] + parts[1] + parts[2] + parts[3];
	/* Clocks that disagree a little do not make shares of more than all. */
	double part = 100 / fmax(fmax(seconds, known), 1e-9);

	ddp_text_add(out, "%4s  ", number);
	put_name(out, rank->node, names[0]);
	put_name(out, rank->device, names[1]);
	ddp_text_add(out, "%7d  %7s  %4.1f %%  %5.1f %%  %4.1f %%  %4.1f %%  %4.1f %%  %8s\n",
		     rank->threads, ddp_show_count(sink_speed(&own)).text, parts[0] * part,
		     parts[1] * part, parts[2] * part, parts[3] * part, fmax(100 - known * part, 0),
		     show_bytes(rank->resident).text);
}

static void print_table(struct ddp_text *out, const struct report_run *run, double seconds,
			double training)
{
	struct report_rank all = {.node = ""};
	const int least[] = {NODE_LEAST, DEVICE_LEAST};
	int names[] = {NODE_LEAST, NODE_LEAST};

	snprintf(all.node, sizeof(all.node), "%d node%s", run->nodes, plural((uint64_t)run->nodes));
	for (int rank = 0; rank < run->ranks; rank++) {
		const struct report_rank *one = &run->table[rank];
		const int widths[] = {(int)print_columns(one->node),
				      (int)print_columns(one->device)};

		for (int i = 0; i < 2; i++)
			names[i] = widths[i] > names[i] ? widths[i] : names[i];
		/* Sums, and means of the times. */
		for (int phase = 0; phase < ENGINE_PHASES; phase++)
			all.seconds[phase] += one->seconds[phase] / run->ranks;
		all.evaluation += one->evaluation / run->ranks;
		all.threads += one->threads;
		all.samples += one->samples;
		all.resident += one->resident;
	}
	for (int i = 0; i < 2; i++)
		for (; names[i] > least[i] && NUMBERS + names[0] + names[1] > WIDEST;)
			names[i]--;
	ddp_text_add(out,
		     "rank  %-*s  %-*s  threads    img/s    data  compute  reduce    test"
		     "   other    memory\n",
		     names[0], "node", names[1], "device");
	for (int rank = 0; rank < run->ranks; rank++) {
		char number[16];

		snprintf(number, sizeof(number), "%d", rank);
		print_rank(out, number, &run->table[rank], names, seconds, training);
	}
	if (run->ranks > 1)
		print_rank(out, "all", &all, names, seconds, training);
	ddp_text_add(out, "\n");
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
	bool evaluated = run->table && run->table[0].evaluation > 0;

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
	if (run->table && (all->samples > 0 || evaluated))
		print_table(out, run, end->seconds, all->seconds);
	print_file(out, "checkpoint", end->checkpoint);
	print_file(out, "model", end->model);
	print_file(out, "report", options->page);
	print_file(out, "curves", options->events);
	print_file(out, "log", options->json);
}
