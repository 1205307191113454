/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtual - one rank of bench-virtual: times the sum of one parameter's gradients, plain and over
 * virtual ranks
 *
 * For each size, rank 0 prints the bytes, and the microseconds of three sums: a plain one, one over
 * as many virtual ranks as ranks, and one over four times as many. Each time is a median. The three
 * sums run in turns. There is no backward pass that could overlap with the sums.
 */
#include "config.h"

#include <ddp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { WAYS = 3, LEAST = 9, MOST = 301, EACH = 4 };

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return 1e6 * (double)time.tv_sec + 1e-3 * (double)time.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void check(struct ddp *ddp, int status)
{
	if (status < 0)
		ddp_exit(ddp);
}

static struct ddp_gradients *create(struct ddp *ddp, size_t count, int way)
{
	const struct ddp_parameter parameter = {"gradients", count};
	struct ddp_gradients_options options = DDP_GRADIENTS_OPTIONS_INIT;
	size_t size = (size_t)ddp_world(ddp)->size;
	struct ddp_gradients *gradients;
	float *view;

	options.virtual_ranks = way == 0 ? 0 : way == 1 ? size : EACH * size;
	check(ddp, ddp_gradients_create(&gradients, ddp, &options, &parameter, 1));
	view = ddp_gradients_view(gradients, 0);
	for (size_t i = 0; i < count; i++)
		view[i] = (float)(i % 1000) - 499.5f;
	return gradients;
}

static void measure(struct ddp *ddp, size_t count)
{
	size_t rounds = (size_t)(100 << 20) / (count * sizeof(float));
	double *times[WAYS];
	struct ddp_gradients *gradients[WAYS];

	rounds = rounds < LEAST ? LEAST : rounds > MOST ? MOST : rounds;
	for (int way = 0; way < WAYS; way++) {
		gradients[way] = create(ddp, count, way);
		times[way] = calloc(rounds, sizeof(double));
		if (!times[way])
			abort();
	}
	for (size_t i = 0; i < rounds; i++)
		for (int way = 0; way < WAYS; way++) {
			double begin;

			check(ddp, ddp_barrier(ddp));
			begin = now();
			for (int part = 0; part < (way == 2 ? EACH : 1); part++)
				check(ddp, ddp_gradients_finish(gradients[way]));
			times[way][i] = now() - begin;
		}
	for (int way = 0; way < WAYS; way++) {
		qsort(times[way], rounds, sizeof(double), compare);
		ddp_gradients_destroy(gradients[way]);
	}
	if (ddp_world(ddp)->rank == 0)
		printf("%zu %.1f %.1f %.1f\n", count * sizeof(float), times[0][rounds / 2],
		       times[1][rounds / 2], times[2][rounds / 2]);
	fflush(stdout);
	for (int way = 0; way < WAYS; way++)
		free(times[way]);
}

int main(void)
{
	static const size_t sizes[] = {1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 25 << 20};
	struct ddp *ddp = NULL;
	int status = ddp_init(&ddp, NULL);

	check(ddp, status);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		measure(ddp, sizes[i] / sizeof(float));
	ddp_destroy(ddp);
	return 0;
}
