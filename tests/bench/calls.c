/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls.c - times small all-reduces of ranks that share memory
 *
 *     calls RANKS     prints a line for each size: bytes, nanoseconds per call (fifth percentile, median)
 *
 * bench-calls runs this program with two builds of libddp.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ddp.h"

enum { BLOCKS = 150, CALLS = 200, LARGEST = 1024 };

static double nanoseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void set(const char *name, int number)
{
	char text[32];

	snprintf(text, sizeof(text), "%d", number);
	setenv(name, text, 1);
}

static void check(struct ddp *ddp, int status)
{
	if (status < 0)
		ddp_exit(ddp);
}

static void rank_main(int rank, int size, int parent)
{
	static const size_t counts[] = {2, 16, 128, LARGEST};
	static float vector[LARGEST];
	double times[BLOCKS];
	struct ddp *ddp = NULL;

	set("RANK", rank);
	set("WORLD_SIZE", size);
	set("LOCAL_RANK", rank);
	set("LOCAL_WORLD_SIZE", size);
	set("GROUP_RANK", 0);
	set("GROUP_WORLD_SIZE", 1);
	set("TORCHELASTIC_RUN_ID", parent);
	set("TORCHELASTIC_RESTART_COUNT", 0);
	setenv("MASTER_ADDR", "127.0.0.1", 1);
	set("MASTER_PORT", 1);
	check(ddp, ddp_init(&ddp, NULL));
	for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
		for (int block = 0; block < BLOCKS; block++) {
			double begin = nanoseconds();

			for (int i = 0; i < CALLS; i++)
				check(ddp, ddp_all_reduce(ddp, vector, vector, counts[c], DDP_F32,
							  DDP_MAX));
			times[block] = (nanoseconds() - begin) / CALLS;
		}
		qsort(times, BLOCKS, sizeof(*times), compare);
		if (rank == 0)
			printf("%zu %.1f %.1f\n", counts[c] * sizeof(*vector), times[BLOCKS / 20],
			       times[BLOCKS / 2]);
	}
	ddp_destroy(ddp);
	exit(0);
}

int main(int argc, char **argv)
{
	int size = argc > 1 ? atoi(argv[1]) : 2, status, failed = 0;

	for (int rank = 0; rank < size; rank++)
		if (fork() == 0)
			rank_main(rank, size, getppid());
	while (wait(&status) > 0)
		failed |= status;
	return failed != 0;
}
