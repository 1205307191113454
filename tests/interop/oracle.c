/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oracle.c - what libddp says, as text, for compare.py, which asks PyTorch the same
 *
 * One question a line on stdin, one answer a line on stdout. Numbers of floating type are
 * hexadecimal both ways, so that nothing is lost.
 */
#include "config.h"

#include <ddp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradient/buckets.h"
#include "gradient/statistics.h"

static _Noreturn void give_up(const char *text)
{
	fprintf(stderr, "oracle: %s\n", text);
	exit(EXIT_FAILURE);
}

/* The next word of the question. */
static const char *word(void)
{
	const char *next = strtok(NULL, " \n");

	if (!next)
		give_up("a question ends early");
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

static void *room(size_t count, size_t size)
{
	void *memory = calloc(count ? count : 1, size);

	if (!memory)
		give_up("out of memory");
	return memory;
}

static float *reals(size_t count)
{
	float *list = room(count, sizeof(*list));

	for (size_t i = 0; i < count; i++)
		list[i] = real();
	return list;
}

static void print_reals(const float *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		printf(" %a", (double)list[i]);
}

/* sampler <samples> <rank> <ranks> <seed> <epoch> <shuffle> <drop>: indices */
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
		give_up(error.text);
	ddp_sampler_set_epoch(sampler, epoch);
	while (ddp_sampler_next(sampler, &index))
		printf(" %" PRIu64, index);
	ddp_sampler_destroy(sampler);
}

/* buckets <first> <limit> <count> <bytes>...: the bucket of each */
static void answer_buckets(void)
{
	size_t first = number(), limit = number(), count = number();
	size_t *bytes = room(count, sizeof(*bytes)), *bucket = room(count, sizeof(*bucket));

	for (size_t i = 0; i < count; i++)
		bytes[i] = number();
	ddp_buckets_assign(bytes, count, first, limit, bucket);
	for (size_t i = 0; i < count; i++)
		printf(" %zu", bucket[i]);
	free(bucket);
	free(bytes);
}

/* scaler <scale> <growth> <backoff> <interval> <tracker> <steps> <found>...: scale tracker */
static void answer_scaler(void)
{
	struct ddp_scaler scaler;
	uint64_t steps;

	scaler.scale = real();
	scaler.growth = strtod(word(), NULL);
	scaler.backoff = strtod(word(), NULL);
	scaler.interval = (int32_t)number();
	scaler.good_steps = (int32_t)number();
	for (steps = number(); steps > 0; steps--)
		ddp_scaler_update(&scaler, number() != 0);
	printf(" %a %d", (double)scaler.scale, (int)scaler.good_steps);
}

/* unscale <scale> <count> <gradient>...: found gradients */
static void answer_unscale(void)
{
	struct ddp_scaler scaler = DDP_SCALER_INIT;
	float *gradients;
	size_t count;

	scaler.scale = real();
	count = number();
	gradients = reals(count);
	printf(" %d", ddp_scaler_unscale(&scaler, gradients, count));
	print_reals(gradients, count);
	free(gradients);
}

/* clip <limit> <count> <gradient>...: norm gradients */
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

/* evaluate <samples> <classes> <label>... <logit>...: loss top1 top5 samples */
static void answer_evaluate(void)
{
	size_t samples = number(), classes = number();
	int32_t *labels = room(samples, sizeof(*labels));
	struct ddp_evaluation evaluation = {0, 0, 0, 0};
	float *logits;

	for (size_t i = 0; i < samples; i++)
		labels[i] = (int32_t)strtol(word(), NULL, 10);
	logits = reals(samples * classes);
	ddp_evaluation_add(&evaluation, logits, labels, samples, classes);
	printf(" %a %" PRIu64 " %" PRIu64 " %" PRIu64, evaluation.loss, evaluation.top1,
	       evaluation.top5, evaluation.samples);
	free(logits);
	free(labels);
}

/* moments <parts> <channels> (<count> <mean>... <m2>...)...: count means m2s */
static void answer_moments(void)
{
	size_t parts = number(), channels = number(), bytes = ddp_moments_bytes(channels);
	char *data = room(parts, bytes);
	float *mean = room(channels, sizeof(*mean)), *m2 = room(channels, sizeof(*m2));
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
	{"sampler", answer_sampler}, {"buckets", answer_buckets}, {"scaler", answer_scaler},
	{"unscale", answer_unscale}, {"clip", answer_clip},	  {"evaluate", answer_evaluate},
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
	give_up("what is asked is not known");
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
