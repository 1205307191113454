/* SPDX-License-Identifier: Apache-2.0 */
/* throughput.c - gather the ranks' counters in intervals of about a second */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/text.h"
#include "base/watch.h"
#include "base/xalloc.h"
#include "run.h"

enum { DEVICE_WIDTH = 32 }; /* maximum number of characters of a device's name in a table */

/* --- Locations of the ranks ------------------------------------------------------------------ */

/* Describes the CPUs that this process may use in [text]: "CPUs 0-3,8". */
static void name_cpus(char *text, size_t size)
{
	cpu_set_t set;
	size_t used = (size_t)snprintf(text, size, "CPUs ");

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		ddp_list_cpus(&set, text + used, size - used);
}

/* Removes words that are common to all names of GPUs, to keep tables narrow. */
static void shorten_device_name(const char *device, char *text, size_t size)
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

/* Returns the peak use of the device's memory or, on CPUs, of the process's memory. */
static uint64_t get_peak_memory(const struct run *run)
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
		shorten_device_name(class->device(run->engine), mine->device, sizeof(mine->device));
	else
		name_cpus(mine->device, sizeof(mine->device));
	if (class->threads)
		mine->threads = class->threads(run->engine);
	else
		mine->threads = run->threads ? run->threads : 1;
}

int throughput_open(struct run *run)
{
	const char *progress = option_text(run->options, OPTION_PROGRESS);
	struct throughput *throughput = &run->throughput;
	size_t ranks = (size_t)run->world->size;
	struct report_place mine;
	int status;

	throughput->next_steps = option_count(run->options, OPTION_LOG_EVERY);
	throughput->live = strcmp(progress, "on") == 0 ||
			   (strcmp(progress, "auto") == 0 && isatty(STDERR_FILENO));
	throughput->target = throughput->next_steps ? 0 : throughput->live ? 0.25 : 1;
	if (throughput->next_steps == 0)
		throughput->next_steps = 1;
	throughput->places =
		ddp_xcalloc(ranks, sizeof(*throughput->places), "progress of all ranks");
	throughput->last = ddp_xcalloc(ranks, sizeof(*throughput->last), "progress of all ranks");
	throughput->whole = ddp_xcalloc(ranks, sizeof(*throughput->whole), "progress of all ranks");
	memset(&mine, 0, sizeof(mine));
	describe(run, &mine);
	status = ddp_all_gather(run->ddp, &mine, throughput->places, sizeof(mine));
	return status < 0 ? run_pass_on(run, status) : 0;
}

void throughput_close(struct throughput *throughput)
{
	free(throughput->places);
	free(throughput->last);
	free(throughput->whole);
}

/* --- Intervals ------------------------------------------------------------------------------- */

/* Number of steps that take throughput->target seconds, but at most 8 times the last number. */
static uint64_t count_next_steps(const struct throughput *throughput, double seconds)
{
	double steps =
		(double)throughput->steps * throughput->target / (seconds > 1e-9 ? seconds : 1e-9);
	double most = 8 * (double)throughput->next_steps;

	if (throughput->target <= 0 || throughput->steps == 0)
		return throughput->next_steps;
	steps = steps < most ? steps : most;
	return steps < 1 ? 1 : (uint64_t)steps;
}

/* Exchanges the counters of all ranks, and sets this rank's counters to zero. */
static int gather(struct run *run, double seconds)
{
	struct throughput *throughput = &run->throughput;
	int status;

	throughput->mine.resident = get_peak_memory(run);
	throughput->mine.next_steps = count_next_steps(throughput, seconds);
	status = ddp_all_gather(run->ddp, &throughput->mine, throughput->last,
				sizeof(throughput->mine));
	if (status < 0)
		return run_pass_on(run, status);
	throughput->next_steps = throughput->last[0].next_steps;
	memset(&throughput->mine, 0, sizeof(throughput->mine));
	for (int i = 0; i < run->world->size; i++) {
		const struct report_work *work = &throughput->last[i];
		struct report_work *whole = &throughput->whole[i];

		for (int phase = 0; phase < ENGINE_PHASES; phase++)
			whole->seconds[phase] += work->seconds[phase];
		whole->evaluation += work->evaluation;
		whole->samples += work->samples;
		whole->resident = work->resident;
	}
	return 0;
}

/* The report excludes steps under way, so its learning rate is that of the last finished step. */
static int end_interval(struct run *run, uint64_t steps)
{
	struct throughput *throughput = &run->throughput;
	const struct run_progress *progress = &run->progress;
	double now = ddp_seconds(), seconds = now - throughput->begin;
	uint64_t samples = set_info(run->train)->samples;
	/*
	 * Samples that were repeated at the end of the epoch, to give all ranks equally many, do
	 * not count.
	 */
	uint64_t repeated = progress->samples > samples ? progress->samples - samples : 0;
	struct report_interval interval_report = {
		.epoch = progress->epoch + 1,
		.step = progress->step - run->pending,
		.steps = steps,
		.total = progress->total - run->pending,
		.position = run_position(run),
		.loss = throughput->loss / (double)throughput->samples,
		.top1 = (double)throughput->hits / (double)throughput->samples,
		.rate = schedule_rate(&run->schedule, progress->epoch,
				      progress->step - run->pending - 1, steps),
		.samples = throughput->samples - repeated,
		.seconds = seconds,
		.work = throughput->last,
	};
	int status = gather(run, seconds);

	if (status < 0)
		return status;
	if (strcmp(option_text(run->options, OPTION_AMP), "fp16") == 0)
		interval_report.scale = (double)run->scaler.scale;
	report_interval(run->report, &interval_report);
	throughput->steps = 0;
	throughput->begin = now;
	throughput->loss = 0;
	throughput->hits = throughput->samples = 0;
	return 0;
}

bool throughput_is_due(struct run *run, size_t count)
{
	struct throughput *throughput = &run->throughput;
	uint64_t begun = throughput->target <= 0 ? run->pending : 0;

	throughput->mine.samples += count;
	return throughput->steps + begun >= throughput->next_steps;
}

int throughput_flush(struct run *run, uint64_t steps)
{
	return run->throughput.steps > 0 ? end_interval(run, steps) : 0;
}

int throughput_end(struct run *run)
{
	return gather(run, 0);
}
