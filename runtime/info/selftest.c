/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <time.h>

#include "selftest.h"

enum { ROUNDS_MOST = 201, ROUNDS_LEAST = 5, FACTOR = 8 };

/* Work for each size, in bytes: small ones are repeated more often. */
#define WORK (64u << 20)

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int rounds_for(size_t bytes)
{
	size_t rounds = WORK / bytes;

	if (rounds > ROUNDS_MOST)
		return ROUNDS_MOST;
	return rounds < ROUNDS_LEAST ? ROUNDS_LEAST : (int)rounds;
}

/* Small whole numbers: their sums are exact in any order, for thousands of ranks. */
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

static int verify(struct ddp *ddp, float *data, size_t count, uint64_t *wrong)
{
	const struct ddp_world *world = ddp_world(ddp);
	int64_t sum;
	int status;

	for (size_t i = 0; i < count; i++)
		data[i] = value(world->rank, i);
	status = ddp_all_reduce(ddp, data, data, count, DDP_F32, DDP_SUM);
	if (status < 0)
		return status;
	sum = (int64_t)count_wrong(data, count, world->size);
	status = ddp_all_reduce(ddp, &sum, &sum, 1, DDP_I64, DDP_SUM);
	*wrong = (uint64_t)sum;
	return status;
}

/* Median and best of a rank; the slowest rank's count. */
static int time_size(struct ddp *ddp, float *data, struct info_timing *timing)
{
	double times[ROUNDS_MOST], both[2];
	size_t count = timing->bytes / sizeof(float);
	int rounds = rounds_for(timing->bytes);
	int status = 0;

	for (size_t i = 0; i < count; i++)
		data[i] = 0;
	for (int i = 0; i < rounds && status == 0; i++) {
		double begun;

		status = ddp_barrier(ddp);
		begun = seconds();
		if (status == 0)
			status = ddp_all_reduce(ddp, data, data, count, DDP_F32, DDP_SUM);
		times[i] = seconds() - begun;
	}
	if (status < 0)
		return status;
	qsort(times, (size_t)rounds, sizeof(times[0]), compare);
	both[0] = times[rounds / 2];
	both[1] = times[0];
	status = ddp_all_reduce(ddp, both, both, 2, DDP_F64, DDP_MAX);
	timing->median = both[0];
	timing->best = both[1];
	return status;
}

int info_selftest_run(struct ddp *ddp, size_t limit, struct info_selftest *test)
{
	void *memory;
	int status = ddp_arena_create(ddp, limit, &memory);

	test->count = 0;
	for (size_t bytes = sizeof(float); bytes <= limit && status == 0; bytes *= FACTOR) {
		struct info_timing *timing = &test->timings[test->count++];

		*timing = (struct info_timing){.bytes = bytes};
		status = verify(ddp, memory, bytes / sizeof(float), &timing->wrong);
		if (status == 0)
			status = time_size(ddp, memory, timing);
	}
	if (status == 0)
		status = ddp_arena_destroy(ddp, memory);
	return status;
}

uint64_t info_selftest_wrong(const struct info_selftest *test)
{
	uint64_t wrong = 0;

	for (int i = 0; i < test->count; i++)
		wrong += test->timings[i].wrong;
	return wrong;
}
