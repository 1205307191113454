/* SPDX-License-Identifier: Apache-2.0 */
/* selftest.c - check and time all-reduce calls on vectors of several sizes */
#include "config.h"

#include <stdlib.h>

#include "base/watch.h"
#include "info.h"

enum { ROUNDS_MOST = 51, ROUNDS_LEAST = 5, FACTOR = 8 };

/* Number of bytes that are summed for each vector size. So small vectors are summed more often. */
#define WORK (64u << 20)

static int rounds_for(size_t bytes)
{
	size_t rounds = WORK / bytes;

	if (rounds > ROUNDS_MOST)
		return ROUNDS_MOST;
	return rounds < ROUNDS_LEAST ? ROUNDS_LEAST : (int)rounds;
}

/* Returns a small integer, so that sums over thousands of ranks are exact in any order. */
static float value(int rank, size_t i)
{
	return (float)((i * 7 + (size_t)rank * 3) % 1021);
}

static uint64_t count_wrong(const float *data, size_t count, int size)
{
	uint64_t wrong = 0;

	for (size_t i = 0; i < count; i++) {
		float want = 0;

		for (int rank = 0; rank < size; rank++)
			want += value(rank, i);
		wrong += data[i] != want;
	}
	return wrong;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* A vector, and the memory in which it is summed. */
struct vector {
	struct ddp *ddp;
	void *memory; /* an arena, or GPU memory */
	float *data;  /* the vector in host memory: the arena, or a copy of the GPU memory */
	struct info_copier *copier; /* NULL if the vector is in an arena */
};

static int refuse_copy(const struct vector *vector)
{
	ddp_abort(vector->ddp, "ddp-info cannot copy between host and GPU memory");
	return ddp_barrier(vector->ddp);
}

/* Copy the vector to the GPU or, with [back], from it. Does nothing for an arena. */
static int copy(const struct vector *vector, size_t bytes, bool back)
{
	if (!vector->copier || info_copy(vector->copier, vector->memory, vector->data, bytes, back))
		return 0;
	return refuse_copy(vector);
}

static int sum(const struct vector *vector, size_t count)
{
	void *memory = vector->memory;
	int status;

	if (!vector->copier)
		return ddp_all_reduce(vector->ddp, memory, memory, count, DDP_F32, DDP_SUM);
	status = ddp_device_all_reduce(vector->ddp, memory, memory, count, DDP_F32, DDP_SUM, NULL);
	return status < 0 ? status : ddp_device_wait(vector->ddp, NULL);
}

static int verify(const struct vector *vector, size_t count, uint64_t *wrong)
{
	const struct ddp_world *world = ddp_world(vector->ddp);
	size_t bytes = count * sizeof(float);
	int64_t total;
	int status;

	for (size_t i = 0; i < count; i++)
		vector->data[i] = value(world->rank, i);
	if ((status = copy(vector, bytes, false)) < 0 || (status = sum(vector, count)) < 0 ||
	    (status = copy(vector, bytes, true)) < 0)
		return status;
	total = (int64_t)count_wrong(vector->data, count, world->size);
	status = ddp_all_reduce(vector->ddp, &total, &total, 1, DDP_I64, DDP_SUM);
	*wrong = (uint64_t)total;
	return status;
}

/* Measure this rank's median and best time. Set them in [timing] to the maximum over all ranks. */
static int time_size(const struct vector *vector, struct info_timing *timing)
{
	double times[ROUNDS_MOST], both[2];
	size_t count = timing->bytes / sizeof(float);
	int rounds = rounds_for(timing->bytes);
	int status;

	for (size_t i = 0; i < count; i++)
		vector->data[i] = 0;
	status = copy(vector, timing->bytes, false);
	for (int i = 0; i < rounds && status == 0; i++) {
		double started;

		status = ddp_barrier(vector->ddp);
		started = ddp_seconds();
		if (status == 0)
			status = sum(vector, count);
		times[i] = ddp_seconds() - started;
	}
	if (status < 0)
		return status;
	qsort(times, (size_t)rounds, sizeof(times[0]), compare);
	both[0] = times[rounds / 2];
	both[1] = times[0];
	status = ddp_all_reduce(vector->ddp, both, both, 2, DDP_F64, DDP_MAX);
	timing->median = both[0];
	timing->best = both[1];
	return status;
}

static int run(const struct vector *vector, size_t limit, struct info_selftest *test)
{
	int status = 0;

	for (size_t bytes = sizeof(float); bytes <= limit && status == 0; bytes *= FACTOR) {
		struct info_timing *timing = &test->timings[test->count++];

		*timing = (struct info_timing){.bytes = bytes};
		status = verify(vector, bytes / sizeof(float), &timing->wrong);
		if (status == 0)
			status = time_size(vector, timing);
	}
	return status;
}

int info_selftest_run(struct info_selftest *test, struct ddp *ddp, size_t limit)
{
	struct vector vector = {.ddp = ddp};
	int status;

	test->count = 0;
	if (!test->device) {
		status = ddp_arena_create(ddp, limit, &vector.memory);
		vector.data = vector.memory;
		if (status == 0)
			status = run(&vector, limit, test);
		return status < 0 ? status : ddp_arena_destroy(ddp, vector.memory);
	}
	status = ddp_device_alloc(ddp, limit, &vector.memory);
	if (status < 0)
		return status;
	vector.data = malloc(limit);
	vector.copier = info_copier_open(ddp_world(ddp)->device);
	/* If this rank cannot copy, it aborts, because the other ranks would wait for it. */
	status = vector.data && vector.copier ? run(&vector, limit, test) : refuse_copy(&vector);
	if (status == 0)
		status = ddp_device_free(ddp, vector.memory);
	free(vector.data);
	return status;
}

uint64_t info_selftest_wrong(const struct info_selftest *test)
{
	uint64_t wrong = 0;

	for (int i = 0; i < test->count; i++)
		wrong += test->timings[i].wrong;
	return wrong;
}
