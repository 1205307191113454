/* SPDX-License-Identifier: Apache-2.0 */
/*
 * all-reduce.h - the measurement that all sides of bench-all-reduce share
 *
 * This header includes no other header of the project, because MPI's compilers compile the MPI
 * program.
 */
#ifndef DDP_BENCH_ALL_REDUCE_H
#define DDP_BENCH_ALL_REDUCE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCHES = 21, BENCH_LARGEST = 64 << 20 };

static const size_t bench_sizes[] = {4,	    1024,   4096,    8192,    16384,
				     65536, 262144, 1048576, 4194304, 67108864};

enum { BENCH_SIZES = sizeof(bench_sizes) / sizeof(bench_sizes[0]) };

/*
 * Returns the number of calls in a batch, which is the same on all ranks. There are enough calls
 * for the clock's resolution.
 */
static inline int bench_calls(size_t bytes, int ranks)
{
	int calls = bytes <= 16384 ? 400 : bytes <= 262144 ? 60 : bytes <= 4194304 ? 6 : 1;

	return ranks > 2 && calls > 10 ? calls / 10 : calls;
}

static inline int bench_batches(size_t bytes)
{
	return bytes <= 4194304 ? BATCHES : 7;
}

static inline double bench_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static inline int bench_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct bench_side {
	const char *name;
	int rank, ranks;
	/* before each call write the vector, as a backward pass does; this is not timed */
	bool fresh;
	void (*reduce)(void *data, float *vector, size_t bytes);
	void *data;
};

/* Runs one batch. Returns the microseconds per call. */
static inline double bench_batch(const struct bench_side *side, float *vector, size_t bytes,
				 int calls)
{
	double took = 0, from = bench_now();

	for (int i = 0; i < calls; i++) {
		if (side->fresh) {
			memset(vector, 0, bytes);
			from = bench_now();
		}
		side->reduce(side->data, vector, bytes);
		if (side->fresh)
			took += bench_now() - from;
	}
	return (side->fresh ? took : bench_now() - from) / calls;
}

/*
 * Runs all sizes. For each size, rank 0 prints a line: ranks, bytes, name, and microseconds (the
 * median of the batches).
 */
static inline void bench_run(const struct bench_side *side, float *vector)
{
	double times[BATCHES];

	for (int s = 0; s < BENCH_SIZES; s++) {
		size_t bytes = bench_sizes[s];
		int calls = bench_calls(bytes, side->ranks), batches = bench_batches(bytes);

		if (side->ranks > 2 && bytes > 4194304)
			continue;
		for (int b = -2; b < batches; b++) {
			double took = bench_batch(side, vector, bytes, calls);

			if (b >= 0)
				times[b] = took;
		}
		qsort(times, (size_t)batches, sizeof(*times), bench_compare);
		if (side->rank == 0)
			printf("%d\t%zu\t%s\t%.3f\n", side->ranks, bytes, side->name,
			       times[batches / 2]);
	}
}

#endif /* DDP_BENCH_ALL_REDUCE_H */
