/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report-demo - a run that never was, so that its report can be looked at
 *
 *	report-demo DIRECTORY [RANKS [MILLISECONDS [NAME]]]
 *
 * Writes report.html, log.jsonl and event files into DIRECTORY, with so many milliseconds between
 * two beats. On a terminal it shows the live line. NAME stands in all texts that a user chooses.
 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "report/report.h"

enum { EPOCHS = 14, STEPS = 469, EVERY = 12, BATCH = 64 /* of a rank */ };

static struct report_pair configuration[] = {
	{"net", "mnist"},
	{"data", ""},
	{"epochs", "14"},
	{"batch", "64"},
	{"optimizer", "adadelta"},
	{"lr", "1.0"},
	{"schedule", "step"},
	{"gamma", "0.7"},
	{"step-size", "1"},
	{"seed", "1"},
	{"amp", "off"},
	{"engine", "auto"},
	{"checkpoint", "runs/mnist"},
	{"save-model", "mnist.safetensors"},
};

struct demo {
	struct report *report;
	struct report_rank *beat, *all;
	int ranks;
	long pause; /* milliseconds */
	const char *name;
	uint64_t state, total, samples;
	double seconds;
};

/* -1 to 1, the same in every run. */
static double noise(struct demo *demo)
{
	demo->state = demo->state * 6364136223846793005u + 1442695040888963407u;
	return (double)(int32_t)(demo->state >> 32) / 2147483648.0;
}

static void pause_for(long milliseconds)
{
	struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};

	while (milliseconds > 0 && nanosleep(&time, &time) < 0 && errno == EINTR)
		;
}

/* Rank 3 runs hot for a while; the slowest one sets the pace. */
static double demo_work(struct demo *demo, int rank, double done, unsigned steps)
{
	double work = 0.0325 * steps * (1 + 0.015 * noise(demo) + 0.01 * (rank % 5));

	if (rank == 3 && done > 0.35 && done < 0.6)
		work *= 1.22;
	return work;
}

static double demo_ranks(struct demo *demo, double done, unsigned steps)
{
	double slowest = 0;

	for (int rank = 0; rank < demo->ranks; rank++) {
		double work = demo_work(demo, rank, done, steps);

		demo->beat[rank].seconds[ENGINE_DATA] = 0.02 * work;
		demo->beat[rank].seconds[ENGINE_COMPUTE] = 0.98 * work;
		slowest = fmax(slowest, work);
	}
	for (int rank = 0; rank < demo->ranks; rank++) {
		struct report_rank *one = &demo->beat[rank], *all = &demo->all[rank];

		one->samples = steps * BATCH;
		one->seconds[ENGINE_REDUCE] =
			slowest * 1.012 - one->seconds[ENGINE_DATA] - one->seconds[ENGINE_COMPUTE];
		for (int phase = 0; phase < ENGINE_PHASES; phase++)
			all->seconds[phase] += one->seconds[phase];
		all->samples += one->samples;
	}
	return slowest * 1.02;
}

static void demo_beat(struct demo *demo, unsigned epoch, uint64_t step, unsigned steps)
{
	double done = (double)demo->total / (EPOCHS * STEPS);
	double loss = 0.018 + 2.28 * exp(-(double)demo->total / 55) +
		      0.21 * exp(-(double)demo->total / 900);
	struct report_beat beat = {
		.epoch = epoch,
		.step = step,
		.total = demo->total,
		.loss = loss * (1 + 0.25 * noise(demo)),
		.top1 = fmin(1, 1 - 0.33 * loss * (1 + 0.2 * noise(demo))),
		.rate = pow(0.7, epoch - 1),
		.samples = steps * BATCH * (uint64_t)demo->ranks,
		.seconds = demo_ranks(demo, done, steps),
		.ranks = demo->beat,
	};

	demo->seconds += beat.seconds;
	demo->samples += beat.samples;
	report_beat(demo->report, &beat);
	pause_for(demo->pause);
}

static void demo_epoch(struct demo *demo, unsigned number)
{
	double begin = demo->seconds;
	double error = 0.0078 + 0.016 * exp(-(number - 1.0) / 2.2) + 0.0004 * noise(demo);
	struct report_epoch epoch = {
		.epoch = number,
		.train_loss = 0.02 + 0.24 * exp(-(number - 1.0) / 1.6),
		.train_top1 = 0.994 - 0.07 * exp(-(number - 1.0) / 1.4),
		.evaluated = true,
		.loss = 3 * error,
		.top1 = 1 - error,
		.top5 = 1 - error / 60,
		.test_samples = 10000,
		.samples = STEPS * BATCH * (uint64_t)demo->ranks,
		.evaluation = 0.9,
		.best = number < 10 || number == EPOCHS,
	};

	for (uint64_t step = 1; step <= STEPS; step++) {
		demo->total++;
		if (step % EVERY == 0)
			demo_beat(demo, number, step, EVERY);
		else if (step == STEPS)
			demo_beat(demo, number, step, STEPS % EVERY);
	}
	epoch.total = demo->total;
	epoch.seconds = demo->seconds - begin;
	demo->seconds += epoch.evaluation + 0.3;
	for (int rank = 0; rank < demo->ranks; rank++)
		demo->all[rank].evaluation += epoch.evaluation;
	report_epoch(demo->report, &epoch);
	if (number % 5 == 0)
		report_say(demo->report, "checkpoint of step %llu written to runs/mnist",
			   (unsigned long long)demo->total);
}

static void demo_places(struct demo *demo)
{
	for (int rank = 0; rank < demo->ranks; rank++) {
		struct report_rank *one = &demo->beat[rank];

		snprintf(one->node, sizeof(one->node), "n%d", 1 + rank / 4);
		if (demo->name)
			snprintf(one->node, sizeof(one->node), "%s", demo->name);
		snprintf(one->device, sizeof(one->device), "CPUs %d-%d", rank % 4 * 2,
			 rank % 4 * 2 + 1);
		one->threads = 2;
		one->resident = (uint64_t)(61 + rank % 3) << 20;
		demo->all[rank] = *one;
	}
}

static int demo_run(struct demo *demo, const char *directory)
{
	struct ddp_error error = {0};
	char json[512], page[512];
	struct report_options options = {
		.json = json,
		.page = page,
		.events = directory,
		.live = -1,
	};
	struct report_run run = {
		.title = "mnist: 1,199,882 parameters, 60,000 drawn digits",
		.engine = "cpu: oneDNN 2.6.3, AVX-512",
		.job = "tux.1042.0",
		.ranks = demo->ranks,
		.nodes = (demo->ranks + 3) / 4,
		.configuration = configuration,
		.configuration_count = sizeof(configuration) / sizeof(configuration[0]),
		.epochs = EPOCHS,
		.steps = STEPS,
		.batch = BATCH * (size_t)demo->ranks,
		.table = demo->beat,
	};
	struct report_end end = {
		.reason = "finished",
		.best_top1 = 0.9922,
		.best_epoch = EPOCHS,
		.ranks = demo->all,
		.checkpoint = "runs/mnist/checkpoint-0000006566.safetensors",
		.model = "mnist.safetensors",
	};

	if (demo->name)
		run.title = run.engine = run.job = configuration[0].key = configuration[0].value =
			end.reason = end.checkpoint = end.model = demo->name;
	snprintf(json, sizeof(json), "%s/log.jsonl", directory);
	snprintf(page, sizeof(page), "%s/report.html", directory);
	if (report_open(&demo->report, &options, &run, &error) < 0) {
		fprintf(stderr, "report-demo: %s\n", error.text);
		return 1;
	}
	if (demo->name)
		report_say(demo->report, "%s", demo->name);
	report_say(demo->report, "conv1: direct, conv2: Winograd forward, sparse backward");
	for (unsigned epoch = 1; epoch <= EPOCHS; epoch++)
		demo_epoch(demo, epoch);
	end.seconds = demo->seconds;
	end.samples = demo->samples;
	report_end(demo->report, &end);
	return report_close(demo->report, NULL) < 0;
}

int main(int argc, char **argv)
{
	struct demo demo = {.state = 1, .ranks = argc > 2 ? atoi(argv[2]) : 4};
	int status = 2;

	if (argc < 2 || demo.ranks < 1 || demo.ranks > 4096) {
		fprintf(stderr, "usage: report-demo DIRECTORY [RANKS [MILLISECONDS [NAME]]]\n");
		return 2;
	}
	demo.pause = argc > 3 ? atol(argv[3]) : 0;
	demo.name = argc > 4 ? argv[4] : NULL;
	demo.beat = calloc((size_t)demo.ranks, sizeof(*demo.beat));
	demo.all = calloc((size_t)demo.ranks, sizeof(*demo.all));
	mkdir(argv[1], 0777);
	if (demo.beat && demo.all) {
		demo_places(&demo);
		status = demo_run(&demo, argv[1]);
	}
	free(demo.beat);
	free(demo.all);
	return status;
}
