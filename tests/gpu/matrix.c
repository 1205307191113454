/* SPDX-License-Identifier: Apache-2.0 */
/*
 * matrix.c - what the card multiplies per second in bf16, by the engine's own dense layer, made large
 *
 * Prints {"event": "matrix", "flops": N}: the best of some runs, which is the rate that a training's share
 * is told of.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/watch.h"
#include "dense.h"

enum { SIDE = 8192, PRODUCTS = 20, RUNS = 10 };

struct work {
	struct device *device;
	struct dense *dense;
	void *x, *weights, *y, *scratch;
};

static int prepare(struct work *work, struct ddp_error *error)
{
	const struct dense_options options = {.name = "matrix",
					      .in = SIDE,
					      .out = SIDE,
					      .first = true,
					      .type = DDP_BF16,
					      .batch = SIDE};
	size_t bytes = (size_t)SIDE * SIDE * 2;
	int status = device_open(&work->device, 0, 0, error);

	if (status == 0)
		status = dense_create(&work->dense, work->device, &options, error);
	if (status == 0)
		status = device_alloc(work->device, &work->x, bytes, "x", NULL, error);
	if (status == 0)
		status = device_alloc(work->device, &work->weights, bytes, "weights", NULL, error);
	if (status == 0)
		status = device_alloc(work->device, &work->y, bytes, "y", NULL, error);
	if (status == 0)
		status = device_alloc(work->device, &work->scratch, dense_scratch(work->dense) + 1,
				      "scratch", NULL, error);
	return status;
}

/* Zeros draw less power than numbers, and so run at a higher clock. */
static int fill(struct work *work, struct ddp_error *error)
{
	size_t count = (size_t)SIDE * SIDE;
	uint16_t *numbers = malloc(count * sizeof(*numbers));
	int status = numbers ? 0 : DDP_ERR_MEMORY;
	uint32_t random = 1;

	for (size_t i = 0; numbers && i < count; i++) {
		random = random * 1664525u + 1013904223u;
		/* From 0.5 to 1, of either sign. */
		numbers[i] = (uint16_t)(0x3f00u | (random >> 25) | (random & 0x8000u));
	}
	if (status == 0)
		status = device_copy(work->device, DEVICE_COMPUTE, work->x, numbers, count * 2,
				     error);
	if (status == 0)
		status = device_copy(work->device, DEVICE_COMPUTE, work->weights, numbers,
				     count * 2, error);
	if (status == 0)
		status = device_wait(work->device, DEVICE_COMPUTE, error);
	free(numbers);
	return status;
}

/* Seconds of one product. */
static int measure(struct work *work, double *seconds, struct ddp_error *error)
{
	double begin = ddp_seconds();
	int status = 0;

	for (int i = 0; status == 0 && i < PRODUCTS; i++)
		status = dense_forward(work->dense, DEVICE_COMPUTE, false, work->x, work->weights,
				       NULL, work->y, work->scratch, error);
	if (status == 0)
		status = device_wait(work->device, DEVICE_COMPUTE, error);
	*seconds = (ddp_seconds() - begin) / PRODUCTS;
	return status;
}

int main(void)
{
	struct ddp_error error = {0, ""};
	struct work work;
	double best = 0, seconds = 0;
	int status;

	memset(&work, 0, sizeof(work));
	status = prepare(&work, &error);
	if (status == 0)
		status = fill(&work, &error);
	for (int run = 0; status == 0 && run < RUNS; run++) {
		status = measure(&work, &seconds, &error);
		best = best > 0 && best < seconds ? best : seconds;
	}
	if (status == 0)
		printf("{\"event\": \"matrix\", \"flops\": %.6g}\n",
		       2.0 * SIDE * SIDE * SIDE / best);
	else
		fprintf(stderr, "matrix: %s\n", error.text);
	dense_destroy(work.dense);
	device_close(work.device);
	return status == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
