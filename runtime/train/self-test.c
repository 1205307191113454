/* SPDX-License-Identifier: Apache-2.0 */
/*
 * self-test.c - comparison of a GPU with the CPU engine
 *
 * Each training is a child process, whose JSON log has the losses. So a fault or a hang of the GPU
 * ends one training only. Images, weights and dropout depend on the seed alone.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/command.h"
#include "run.h"

enum { LOSSES = 32, LIMIT_S = 300 };

struct training {
	double losses[LOSSES]; /* loss of each step */
	int count;
	char engine[256], device[128];
};

/*
 * Types in which each network is trained on the GPU. [most] is the largest relative difference of a
 * loss that is accepted.
 */
static const struct {
	const char *title, *amp;
	double most;
} types[] = {{"f32", "off", 1e-3}, {"bf16", "bf16", 5e-2}};

enum { TYPES = sizeof(types) / sizeof(types[0]) };

/*
 * Options for the trainings of each network. All steps take some seconds on one CPU. The cifar
 * network is trained for two steps only, because BatchNorm amplifies rounding errors. After more
 * steps, rounding errors would exceed the errors that the test should find.
 */
static const char *const sizes[OPTION_NETS][4] = {
	[OPTION_MNIST] = {"--samples=320", "--steps=10", "--batch=32", "--lr=0.05"},
	[OPTION_CIFAR] = {"--samples=32", "--steps=2", "--batch=16", "--lr=0.01"},
};

/* The child is not a rank of the step in which this program runs, but keeps this program's GPU. */
static void leave_world(void)
{
	static const char *const names[] = {"DDP_RANK",	  "DDP_SIZE",	  "RANK",
					    "WORLD_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
}

/* Copies the string value of [key] in [line] to [text]. */
static void read_string(const char *line, const char *key, char *text, size_t size)
{
	const char *at = strstr(line, key);
	size_t length = at ? strcspn(at + strlen(key), "\"") : 0;

	if (at)
		snprintf(text, size, "%.*s", (int)length, at + strlen(key));
}

static void read_log(char *log, struct training *training)
{
	char *rest = NULL;

	for (char *line = strtok_r(log, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		bool step = strstr(line, "{\"event\": \"step\"") == line;
		const char *key = "\"loss\": ", *at = step ? strstr(line, key) : NULL;

		if (strstr(line, "{\"event\": \"run\"") == line) {
			read_string(line, "\"engine\": \"", training->engine,
				    sizeof(training->engine));
			read_string(line, "\"device\": \"", training->device,
				    sizeof(training->device));
		}
		if (at && training->count < LOSSES)
			training->losses[training->count++] = strtod(at + strlen(key), NULL);
	}
}

/* Trains on [engine] in a child process. Returns false after an error message. */
static bool train(enum option_net net, const char *engine, const char *amp,
		  struct training *training)
{
	char engine_option[32], amp_option[32], program[] = "/proc/self/exe";
	char *argv[] = {program,
			(char *)option_nets[net],
			engine_option,
			amp_option,
			(char *)sizes[net][0],
			(char *)sizes[net][1],
			(char *)sizes[net][2],
			(char *)sizes[net][3],
			"--optimizer=sgd",
			"--deterministic",
			"--ranks=1",
			"--log-every=1",
			"--log-json=-",
			NULL};
	const struct ddp_command how = {.limit = LIMIT_S, .grace = 5, .prepare = leave_world};
	struct ddp_command_said said;
	bool good;

	snprintf(engine_option, sizeof(engine_option), "--engine=%s", engine);
	snprintf(amp_option, sizeof(amp_option), "--amp=%s", amp);
	*training = (struct training){.count = 0};
	ddp_command_run(argv, &how, &said);
	if (said.out.data)
		read_log(said.out.data, training);
	good = said.status == 0 && !said.timed_out && training->count > 0;
	if (!good)
		fprintf(stderr, "ddp-train: the self-test of %s on %s with --amp %s %s %d\n%s",
			option_nets[net], engine, amp,
			said.timed_out ? "did not end; exit status" : "failed with exit status",
			said.status, said.err.data ? said.err.data : "");
	ddp_command_said_free(&said);
	return good;
}

/* Largest relative difference of two losses; infinity if one is not a number. */
static double compare(const struct training *one, const struct training *other)
{
	double most = 0;

	if (one->count != other->count)
		return INFINITY;
	for (int i = 0; i < one->count; i++) {
		double difference = fabs(one->losses[i] - other->losses[i]) / fabs(one->losses[i]);

		if (!(difference <= most))
			most = isnan(difference) ? INFINITY : difference;
	}
	return most;
}

int self_test(const char *net)
{
	struct training cpu, gpu;
	char line[256] = "";
	bool good = true;

	for (int i = 0; i < OPTION_NETS; i++) {
		size_t used = strlen(line);

		if (net && strcmp(net, option_nets[i]) != 0)
			continue;
		if (!train((enum option_net)i, "cpu", "off", &cpu))
			return EXIT_FAILURE;
		used += (size_t)snprintf(line + used, sizeof(line) - used, "; %s", option_nets[i]);
		for (int type = 0; type < TYPES; type++) {
			double difference;

			if (!train((enum option_net)i, "cuda", types[type].amp, &gpu))
				return EXIT_FAILURE;
			difference = compare(&cpu, &gpu);
			good = good && difference <= types[type].most;
			used += (size_t)snprintf(line + used, sizeof(line) - used, " %s %.1e",
						 types[type].title, difference);
		}
	}
	printf("ddp-train %s self-test %s: %s; %s%s\n", PACKAGE_VERSION, good ? "passed" : "FAILED",
	       gpu.device, gpu.engine, line);
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
