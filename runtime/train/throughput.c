/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/text.h"
#include "base/watch.h"
#include "base/xalloc.h"
#include "launch.h"
#include "run.h"

enum { DEVICE_WIDTH = 32 }; /* of a device's name in a table */

/* --- Who the ranks are ----------------------------------------------------------------------- */

/* "CPUs 0-3,8": those that this process may use. */
static void name_cpus(char *text, size_t size)
{
	cpu_set_t set;
	size_t used = (size_t)snprintf(text, size, "CPUs ");

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		ddp_list_cpus(&set, text + used, size - used);
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

static void describe(const struct run *run, struct report_place *mine)
{
	const struct engine_class *class = run->class;

	snprintf(mine->node, sizeof(mine->node), "%s", run->world->host);
	if (class->device)
		name_device(class->device(run->engine), mine->device, sizeof(mine->device));
	else
		name_cpus(mine->device, sizeof(mine->device));
	mine->threads = run->threads ? run->threads : class->device ? 1 : launch_cpus();
}

int throughput_open(struct run *run)
{
	const char *progress = option_text(run->options, OPTION_PROGRESS);
	struct throughput *throughput = &run->throughput;
	size_t ranks = (size_t)run->world->size;
	struct report_place mine;
	int status;

	throughput->interval = option_count(run->options, OPTION_LOG_EVERY);
	throughput->live = strcmp(progress, "on") == 0 ||
			   (strcmp(progress, "auto") == 0 && isatty(STDERR_FILENO));
	throughput->target = throughput->interval ? 0 : throughput->live ? 0.25 : 1;
	if (throughput->interval == 0)
		throughput->interval = 1;
	throughput->cards = ddp_xcalloc(ranks, sizeof(*throughput->cards), "what ranks do");
	throughput->places = ddp_xcalloc(ranks, sizeof(*throughput->places), "what ranks do");
	throughput->beat = ddp_xcalloc(ranks, sizeof(*throughput->beat), "what ranks do");
	throughput->whole = ddp_xcalloc(ranks, sizeof(*throughput->whole), "what ranks do");
	memset(&mine, 0, sizeof(mine));
	describe(run, &mine);
	status = ddp_all_gather(run->ddp, &mine, throughput->places, sizeof(mine));
	return status < 0 ? run_pass_on(run, status) : 0;
}

void throughput_close(struct throughput *throughput)
{
	free(throughput->cards);
	free(throughput->places);
	free(throughput->beat);
	free(throughput->whole);
}

/* --- Beats ----------------------------------------------------------------------------------- */

void throughput_skip(struct run *run)
{
	run->throughput.begin = ddp_seconds();
}

/* As many steps as take the time between two beats; not many more at once than before. */
static uint64_t next_interval(const struct throughput *throughput, double seconds)
{
	double steps =
		(double)throughput->steps * throughput->target / (seconds > 1e-9 ? seconds : 1e-9);
	double most = 8 * (double)throughput->interval;

	if (throughput->target <= 0 || throughput->steps == 0)
		return throughput->interval;
	steps = steps < most ? steps : most;
	return steps < 1 ? 1 : (uint64_t)steps;
}

/* Gather the ranks' cards, and begin new ones. */
static int gather(struct run *run, double seconds)
{
	struct throughput *throughput = &run->throughput;
	int status;

	throughput->mine.work.resident = resident(run);
	throughput->mine.interval = next_interval(throughput, seconds);
	status = ddp_all_gather(run->ddp, &throughput->mine, throughput->cards,
				sizeof(throughput->mine));
	if (status < 0)
		return run_pass_on(run, status);
	throughput->interval = throughput->cards[0].interval;
	memset(&throughput->mine, 0, sizeof(throughput->mine));
	for (int i = 0; i < run->world->size; i++) {
		const struct report_work *work = &throughput->cards[i].work;
		struct report_work *whole = &throughput->whole[i];

		throughput->beat[i] = *work;
		for (int phase = 0; phase < ENGINE_PHASES; phase++)
			whole->seconds[phase] += work->seconds[phase];
		whole->evaluation += work->evaluation;
		whole->samples += work->samples;
		whole->resident = work->resident;
	}
	return 0;
}

/* Steps that were begun and have not ended had a rate of their own: it is not told before its step is. */
static int beat(struct run *run, uint64_t steps)
{
	struct throughput *throughput = &run->throughput;
	const struct progress *progress = &run->progress;
	double now = ddp_seconds(), seconds = now - throughput->begin;
	uint64_t samples = set_info(run->train)->samples;
	/* Repeated at the end of the epoch, so that all ranks have equally many samples; not counted. */
	uint64_t repeated = progress->samples > samples ? progress->samples - samples : 0;
	struct report_beat told = {
		.epoch = progress->epoch + 1,
		.step = progress->step - run->pending,
		.total = progress->total - run->pending,
		.loss = throughput->loss / (double)throughput->samples,
		.top1 = (double)throughput->hits / (double)throughput->samples,
		.rate = schedule_rate(&run->schedule, progress->epoch,
				      progress->step - run->pending - 1, steps),
		.samples = throughput->samples - repeated,
		.seconds = seconds,
		.work = throughput->beat,
	};
	int status = gather(run, seconds);

	if (status < 0)
		return status;
	if (strcmp(option_text(run->options, OPTION_AMP), "fp16") == 0)
		told.scale = (double)run->scaler.scale;
	report_beat(run->report, &told);
	throughput->steps = 0;
	throughput->begin = now;
	throughput->loss = 0;
	throughput->hits = throughput->samples = 0;
	return 0;
}

void throughput_add(struct run *run, const struct engine_step *done)
{
	struct throughput *throughput = &run->throughput;

	for (int phase = 0; phase < ENGINE_PHASES; phase++)
		throughput->mine.work.seconds[phase] += done->seconds[phase];
	throughput->loss += done->loss;
	throughput->hits += done->hits;
	throughput->samples += done->samples;
	throughput->steps += done->steps;
}

int throughput_step(struct run *run, size_t count, uint64_t steps)
{
	struct throughput *throughput = &run->throughput;
	bool fixed = throughput->target <= 0;
	int status = 0;

	throughput->mine.work.samples += count;
	if (throughput->steps + (fixed ? run->pending : 0) < throughput->interval)
		return 0;
	if (fixed)
		status = run_settle(run);
	return status < 0 ? status : beat(run, steps);
}

int throughput_flush(struct run *run, uint64_t steps)
{
	return run->throughput.steps > 0 ? beat(run, steps) : 0;
}

int throughput_end(struct run *run)
{
	return gather(run, 0);
}
