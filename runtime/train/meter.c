/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/watch.h"
#include "launch.h"
#include "run.h"

enum { DEVICE_WIDTH = 32 }; /* of a device's name in a table */

/* --- Who the ranks are ----------------------------------------------------------------------- */

/* "CPUs 0-3,8": those that this process may use. */
static void name_cpus(char *text, size_t size)
{
	cpu_set_t set;
	size_t used = (size_t)snprintf(text, size, "CPUs ");

	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		return;
	for (int cpu = 0, end; cpu < CPU_SETSIZE && used < size; cpu = end) {
		for (end = cpu; end < CPU_SETSIZE && CPU_ISSET((size_t)end, &set);)
			end++;
		if (end == cpu) {
			end++;
			continue;
		}
		used += (size_t)snprintf(text + used, size - used, "%s%d", used > 5 ? "," : "",
					 cpu);
		if (end > cpu + 1 && used < size)
			used += (size_t)snprintf(text + used, size - used, "-%d", end - 1);
	}
}

/* "GPU 0, NVIDIA H200" without what every GPU has in its name, so that a table stays narrow. */
static void name_device(const char *device, char *text, size_t size)
{
	static const char *const words[] = {"NVIDIA ", "GeForce ", "Tesla "};
	size_t used = 0;

	while (*device && used + 1 < size) {
		size_t skip = 0;

		for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
			if (strncmp(device, words[i], strlen(words[i])) == 0)
				skip = strlen(words[i]);
		device += skip;
		if (skip == 0)
			text[used++] = *device++;
	}
	text[used < DEVICE_WIDTH ? used : DEVICE_WIDTH] = '\0';
}

/* The most memory of the device, or of the process where there is none. */
static uint64_t resident(const struct run *run)
{
	struct rusage usage;

	if (run->class->memory)
		return run->class->memory(run->engine);
	return getrusage(RUSAGE_SELF, &usage) < 0 ? 0 : (uint64_t)usage.ru_maxrss * 1024;
}

static void describe(const struct run *run, struct report_rank *mine)
{
	const struct engine_class *class = run->class;
	uint64_t threads = option_count(run->options, OPTION_THREADS);

	snprintf(mine->node, sizeof(mine->node), "%s", run->world->host);
	if (class->device)
		name_device(class->device(run->engine), mine->device, sizeof(mine->device));
	else
		name_cpus(mine->device, sizeof(mine->device));
	mine->threads = threads ? (int)threads : class->device ? 1 : launch_cpus();
	mine->resident = resident(run);
}

static bool is_live(const struct options *options)
{
	const char *progress = option_text(options, OPTION_PROGRESS);

	return strcmp(progress, "on") == 0 ||
	       (strcmp(progress, "auto") == 0 && isatty(STDERR_FILENO));
}

int meter_open(struct run *run)
{
	struct meter *meter = &run->meter;
	size_t ranks = (size_t)run->world->size;
	struct report_rank mine;
	int status;

	meter->interval = option_count(run->options, OPTION_LOG_EVERY);
	meter->target = meter->interval ? 0 : is_live(run->options) ? 0.25 : 1;
	if (meter->interval == 0)
		meter->interval = 1;
	meter->cards = calloc(ranks, sizeof(*meter->cards));
	meter->beat = calloc(ranks, sizeof(*meter->beat));
	meter->whole = calloc(ranks, sizeof(*meter->whole));
	status = meter->cards && meter->beat && meter->whole
			 ? 0
			 : ddp_error_set(&run->error, DDP_ERR_MEMORY, "no memory for %zu ranks",
					 ranks);
	if ((status = run_agree(run, status)) < 0)
		return status;
	memset(&mine, 0, sizeof(mine));
	describe(run, &mine);
	status = ddp_all_gather(run->ddp, &mine, meter->whole, sizeof(mine));
	if (status < 0)
		return run_pass_on(run, status);
	memcpy(meter->beat, meter->whole, ranks * sizeof(mine));
	return 0;
}

void meter_close(struct meter *meter)
{
	free(meter->cards);
	free(meter->beat);
	free(meter->whole);
}

/* --- Beats ----------------------------------------------------------------------------------- */

void meter_skip(struct run *run)
{
	run->meter.begin = ddp_seconds();
}

/* As many steps as take the time between two beats; not many more at once than before. */
static uint64_t next_interval(const struct meter *meter, double seconds)
{
	double steps = (double)meter->steps * meter->target / (seconds > 1e-9 ? seconds : 1e-9);
	double most = 8 * (double)meter->interval;

	if (meter->target <= 0 || meter->steps == 0)
		return meter->interval;
	steps = steps < most ? steps : most;
	return steps < 1 ? 1 : (uint64_t)steps;
}

/* Gather the ranks' cards, and begin new ones. */
static int gather(struct run *run, double seconds)
{
	struct meter *meter = &run->meter;
	int status;

	meter->mine.resident = resident(run);
	meter->mine.interval = next_interval(meter, seconds);
	status = ddp_all_gather(run->ddp, &meter->mine, meter->cards, sizeof(meter->mine));
	if (status < 0)
		return run_pass_on(run, status);
	meter->interval = meter->cards[0].interval;
	memset(&meter->mine, 0, sizeof(meter->mine));
	for (int i = 0; i < run->world->size; i++) {
		const struct meter_card *card = &meter->cards[i];
		struct report_rank *beat = &meter->beat[i], *whole = &meter->whole[i];

		for (int phase = 0; phase < ENGINE_PHASES; phase++) {
			beat->seconds[phase] = card->seconds[phase];
			whole->seconds[phase] += card->seconds[phase];
		}
		beat->evaluation = card->evaluation;
		whole->evaluation += card->evaluation;
		beat->samples = card->samples;
		whole->samples += card->samples;
		beat->resident = whole->resident = card->resident;
	}
	return 0;
}

static int beat(struct run *run, double rate)
{
	struct meter *meter = &run->meter;
	const struct progress *progress = &run->progress;
	double now = ddp_seconds(), seconds = now - meter->begin;
	struct report_beat told = {
		.epoch = progress->epoch + 1,
		.step = progress->step - run->pending,
		.total = progress->total - run->pending,
		.loss = meter->loss / (double)meter->samples,
		.top1 = (double)meter->hits / (double)meter->samples,
		.rate = rate,
		.samples = meter->samples,
		.seconds = seconds,
		.ranks = meter->beat,
	};
	int status = gather(run, seconds);

	if (status < 0)
		return status;
	if (strcmp(option_text(run->options, OPTION_AMP), "fp16") == 0)
		told.scale = (double)run->scaler.scale;
	report_beat(run->report, &told);
	meter->steps = 0;
	meter->begin = now;
	meter->loss = 0;
	meter->hits = meter->samples = 0;
	return 0;
}

void meter_add(struct run *run, const struct engine_step *done)
{
	struct meter *meter = &run->meter;

	for (int phase = 0; phase < ENGINE_PHASES; phase++)
		meter->mine.seconds[phase] += done->seconds[phase];
	meter->loss += done->loss;
	meter->hits += done->hits;
	meter->samples += done->samples;
	meter->steps += done->steps;
}

int meter_step(struct run *run, size_t count, double rate)
{
	struct meter *meter = &run->meter;
	bool fixed = meter->target <= 0;
	int status = 0;

	meter->mine.samples += count;
	if (meter->steps + (fixed ? run->pending : 0) < meter->interval)
		return 0;
	if (fixed)
		status = run_settle(run);
	return status < 0 ? status : beat(run, rate);
}

int meter_flush(struct run *run, double rate)
{
	return run->meter.steps > 0 ? beat(run, rate) : 0;
}

int meter_end(struct run *run)
{
	return gather(run, 0);
}
