/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report-demo - creates the report of a simulated run, for a developer to look at
 *
 *     report-demo DIRECTORY [RANKS [MILLISECONDS [NAME]]]
 *
 * Writes report.html, log.jsonl and event files to DIRECTORY, and waits MILLISECONDS after each
 * interval. On a terminal it shows the live line. NAME replaces every text that a user can set.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report/report.h"

enum { EPOCHS = 12, STEPS = 469, EVERY = 12, BATCH = 64 /* per rank */, MOST = 4096 };

static struct report_pair configuration[] = {
	{"net", "mnist"}, {"data", ""}, {"epochs", "12"}, {"batch", "64"}, {"lr", "1.0"}};

static struct report *report;
static struct report_place places[MOST];
static struct report_work intervals[MOST], alls[MOST];
static int ranks;
static long pause_e3;
static double now;

/* Returns a pseudorandom number between -1 and 1. The sequence is the same in every run. */
static double noise(void)
{
	static uint64_t state = 1;

	state = state * 6364136223846793005u + 1442695040888963407u;
	return (double)(int32_t)(state >> 32) / 2147483648.0;
}

/* Sets the work of each rank; rank 3 is slow for a while. Returns the time of the slowest rank. */
static double fill_ranks(double done, unsigned steps)
{
	double slowest = 0;

	for (int rank = 0; rank < ranks; rank++) {
		double work = 0.0325 * steps * (1 + 0.015 * noise() + 0.01 * (rank % 5));

		if (rank == 3 && done > 0.35 && done < 0.6)
			work *= 1.22;
		intervals[rank].seconds[ENGINE_DATA] = 0.02 * work;
		intervals[rank].seconds[ENGINE_COMPUTE] = 0.98 * work;
		slowest = fmax(slowest, work);
	}
	for (int rank = 0; rank < ranks; rank++) {
		double *seconds = intervals[rank].seconds;

		intervals[rank].samples = (uint64_t)steps * BATCH;
		seconds[ENGINE_REDUCE] =
			slowest * 1.012 - seconds[ENGINE_DATA] - seconds[ENGINE_COMPUTE];
		for (int phase = 0; phase < ENGINE_PHASES; phase++)
			alls[rank].seconds[phase] += seconds[phase];
		alls[rank].samples += intervals[rank].samples;
	}
	return slowest * 1.02;
}

static void report_steps(unsigned epoch, uint64_t step, unsigned steps)
{
	uint64_t total = (epoch - 1) * STEPS + step;
	double loss = 0.018 + 2.28 * exp(-(double)total / 55) + 0.21 * exp(-(double)total / 900);
	struct report_interval interval = {
		.epoch = epoch,
		.step = step,
		.steps = STEPS,
		.total = total,
		.loss = loss * (1 + 0.25 * noise()),
		.top1 = fmin(1, 1 - 0.33 * loss * (1 + 0.2 * noise())),
		.rate = pow(0.7, epoch - 1),
		.samples = (uint64_t)steps * BATCH * (uint64_t)ranks,
		.seconds = fill_ranks((double)total / (EPOCHS * STEPS), steps),
		.work = intervals,
	};

	now += interval.seconds;
	report_interval(report, &interval);
	usleep((useconds_t)(1000 * pause_e3));
}

static void report_one_epoch(unsigned number)
{
	double error = 0.0078 + 0.016 * exp(-(number - 1.0) / 2.2) + 0.0004 * noise();
	struct report_epoch epoch = {
		.epoch = number,
		.total = number * STEPS,
		.train_loss = 0.02 + 0.24 * exp(-(number - 1.0) / 1.6),
		.train_top1 = 0.994 - 0.07 * exp(-(number - 1.0) / 1.4),
		.samples = (uint64_t)STEPS * BATCH * (uint64_t)ranks,
		.evaluated = true,
		.loss = 3 * error,
		.top1 = 1 - error,
		.top5 = 1 - error / 60,
		.test_samples = 10000,
		.evaluation = 0.9,
		.best = number < 10 || number == EPOCHS,
	};

	for (uint64_t step = EVERY; step <= STEPS; step += EVERY)
		report_steps(number, step, EVERY);
	report_steps(number, STEPS, STEPS % EVERY);
	now += epoch.evaluation + 0.3;
	for (int rank = 0; rank < ranks; rank++)
		alls[rank].evaluation += epoch.evaluation;
	report_epoch(report, &epoch);
	if (number % 5 == 0)
		report_log(report, "checkpoint of step %u in runs/mnist", number * STEPS);
}

static void fill_places(const char *name)
{
	for (int rank = 0; rank < ranks; rank++) {
		struct report_place *one = &places[rank];

		snprintf(one->node, sizeof(one->node), "n%d", 1 + rank / 4);
		if (name)
			snprintf(one->node, sizeof(one->node), "%s", name);
		snprintf(one->device, sizeof(one->device), "CPUs %d-%d", rank % 4 * 2,
			 rank % 4 * 2 + 1);
		one->threads = 2;
		intervals[rank].resident = alls[rank].resident = (uint64_t)(61 + rank % 3) << 20;
	}
}

static int report_run(const char *directory, const char *name)
{
	struct ddp_error error = {0};
	char json[512], page[512];
	struct report_options options = {
		.json = json, .page = page, .events = directory, .live = isatty(STDERR_FILENO)};
	struct report_run run = {
		.title = "mnist: 1,199,882 parameters, 60,000 drawn digits",
		.command = "ddp-train mnist --log-json log.jsonl",
		.engine = "cpu: oneDNN 2.6.3, AVX-512",
		.job = "tux.1042.0",
		.ranks = ranks,
		.nodes = (ranks + 3) / 4,
		.configuration = configuration,
		.configuration_count = sizeof(configuration) / sizeof(configuration[0]),
		.epochs = EPOCHS,
		.steps = STEPS,
		.batch = BATCH * (size_t)ranks,
		.end = EPOCHS * STEPS,
		.places = places,
		.work = alls,
	};
	struct report_end end = {
		.reason = "finished",
		.best_top1 = 0.9922,
		.best_epoch = EPOCHS,
		.checkpoint = "runs/mnist",
		.model = "mnist.safetensors",
	};

	if (name)
		run.title = run.command = run.engine = run.job = configuration[0].key =
			configuration[0].value = end.reason = end.checkpoint = end.model = name;
	snprintf(json, sizeof(json), "%s/log.jsonl", directory);
	snprintf(page, sizeof(page), "%s/report.html", directory);
	if (report_open(&report, &options, &run, &error) < 0) {
		fprintf(stderr, "report-demo: %s\n", error.text);
		return 1;
	}
	report_log(report, "%s", name ? name : "conv1: direct, conv2: Winograd forward");
	for (unsigned epoch = 1; epoch <= EPOCHS; epoch++)
		report_one_epoch(epoch);
	end.seconds = now;
	report_end(report, &end);
	return report_close(report, NULL) < 0;
}

int main(int argc, char **argv)
{
	const char *name = argc > 4 ? argv[4] : NULL;

	ranks = argc > 2 ? atoi(argv[2]) : 4;
	pause_e3 = argc > 3 ? atol(argv[3]) : 0;
	if (argc < 2 || ranks < 1 || ranks > MOST) {
		fprintf(stderr, "usage: report-demo DIRECTORY [RANKS [MILLISECONDS [NAME]]]\n");
		return 2;
	}
	mkdir(argv[1], 0777);
	fill_places(name);
	return report_run(argv[1], name);
}
