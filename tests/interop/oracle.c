/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oracle.c - prints libddp's results, which compare.py compares with PyTorch's
 *
 * Each line of stdin is a call, and each line of stdout is a result. All floating-point numbers are
 * hexadecimal, so that they are exact.
 */
#include "config.h"

#include <ddp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradient/buckets.h"
#include "gradient/statistics.h"

static _Noreturn void die(const char *text)
{
	fprintf(stderr, "oracle: %s\n", text);
	exit(EXIT_FAILURE);
}

static const char *word(void)
{
	const char *next = strtok(NULL, " \n");

	if (!next)
		die("a question ends early");
	return next;
}

static uint64_t number(void)
{
	return strtoull(word(), NULL, 10);
}

static float real(void)
{
	return strtof(word(), NULL);
}

static void *allocate(size_t count, size_t size)
{
	void *memory = calloc(count ? count : 1, size);

	if (!memory)
		die("out of memory");
	return memory;
}

static float *reals(size_t count)
{
	float *list = allocate(count, sizeof(*list));

	for (size_t i = 0; i < count; i++)
		list[i] = real();
	return list;
}

static void print_reals(const float *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		printf(" %a", (double)list[i]);
}

/* sampler <samples> <rank> <ranks> <seed> <epoch> <shuffle> <drop>: prints the indices */
static void answer_sampler(void)
{
	struct ddp_sampler_options options = DDP_SAMPLER_OPTIONS_INIT;
	struct ddp_error error = {0, ""};
	struct ddp_sampler *sampler;
	uint64_t epoch, index;

	options.samples = number();
	options.rank = (int)number();
	options.ranks = (int)number();
	options.seed = number();
	epoch = number();
	options.shuffle = number();
	options.drop_last = number();
	if (ddp_sampler_create(&sampler, &options, &error) < 0)
		die(error.text);
	ddp_sampler_set_epoch(sampler, epoch);
	while (ddp_sampler_next(sampler, &index))
		printf(" %" PRIu64, index);
	ddp_sampler_destroy(sampler);
}

/* buckets <first> <limit> <count> <bytes>...: prints the bucket of each tensor */
static void answer_buckets(void)
{
	size_t first = number(), limit = number(), count = number();
	size_t *bytes = allocate(count, sizeof(*bytes)), *bucket = allocate(count, sizeof(*bucket));

	for (size_t i = 0; i < count; i++)
		bytes[i] = number();
	ddp_buckets_assign(bytes, count, first, limit, bucket);
	for (size_t i = 0; i < count; i++)
		printf(" %zu", bucket[i]);
	free(bucket);
	free(bytes);
}

/* clip <limit> <count> <gradient>...: prints the norm and the gradients */
static void answer_clip(void)
{
	double limit = strtod(word(), NULL), norm;
	size_t count = number();
	float *gradients = reals(count);

	norm = ddp_norm(gradients, DDP_F32, count);
	ddp_scale(gradients, DDP_F32, count, ddp_clip_factor(norm, limit));
	printf(" %a", norm);
	print_reals(gradients, count);
	free(gradients);
}

/* moments <parts> <channels> (<count> <mean>... <m2>...)...: prints count, means and m2s */
static void answer_moments(void)
{
	size_t parts = number(), channels = number(), bytes = ddp_moments_bytes(channels);
	char *data = allocate(parts, bytes);
	float *mean = allocate(channels, sizeof(*mean)), *m2 = allocate(channels, sizeof(*m2));
	double count;

	for (size_t i = 0; i < parts; i++) {
		float *values;

		count = (double)number();
		values = reals(2 * channels);
		memcpy(data + i * bytes, &count, sizeof(count));
		memcpy(data + i * bytes + sizeof(count), values, 2 * channels * sizeof(*values));
		free(values);
	}
	ddp_moments_combine(data, parts, channels, &count, mean, m2);
	printf(" %a", count);
	print_reals(mean, channels);
	print_reals(m2, channels);
	free(m2);
	free(mean);
	free(data);
}

static const struct {
	const char *question;
	void (*answer)(void);
} answers[] = {
	{"sampler", answer_sampler},
	{"buckets", answer_buckets},
	{"clip", answer_clip},
	{"moments", answer_moments},
};

static void answer(const char *question)
{
	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		if (question && strcmp(question, answers[i].question) == 0) {
			answers[i].answer();
			putchar('\n');
			fflush(stdout);
			return;
		}
	}
	die("unknown call");
}

int main(void)
{
	char *line = NULL;
	size_t size = 0;

	while (getline(&line, &size, stdin) > 0)
		answer(strtok(line, " \n"));
	free(line);
	return EXIT_SUCCESS;
}
