/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shards - what bench-shards measures: a device's copies, and sums of ranks that share it
 *
 *	shards copy			bytes per second that a large copy on the device reads and writes
 *	shards sum RANKS BYTES MS	seconds of one all-reduce of BYTES of f32 in libddp's memory, median of some
 *					rounds of MS milliseconds each, each of many sums in a row
 *
 * With DDP_BENCH_POSE each rank poses as a host of its own, so that NCCL does it over sockets. Prints one line
 * of JSON.
 */
#include "config.h"

#include "../gpu/shards.h"
#include "base/watch.h"

enum { COPY = 256 << 20, COPIES = 20, ROUNDS = 5, MOST = 100 };

static size_t sum_bytes;
static double round_seconds;

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* --- Copies ------------------------------------------------------------------------------- */

#ifdef SHARDS_ON_HOST

static bool copy(void *to, const void *from, int times)
{
	for (int i = 0; i < times; i++) {
		memcpy(to, from, COPY);
		/* So that each is made. */
		__asm__ volatile("" ::"r"(to) : "memory");
	}
	return true;
}

#else

static bool copy(void *to, const void *from, int times)
{
	bool good = true;

	for (int i = 0; i < times; i++)
		good = cudaMemcpyAsync(to, from, COPY, cudaMemcpyDeviceToDevice, NULL) == 0 && good;
	return cudaDeviceSynchronize() == cudaSuccess && good;
}

#endif

static bool measure_copies(void)
{
	void *from = device_plain(COPY), *to = device_plain(COPY);
	double rates[ROUNDS];

	if (!from || !to || !copy(to, from, 2))
		return false;
	for (int i = 0; i < ROUNDS; i++) {
		double begin = ddp_seconds();

		if (!copy(to, from, COPIES))
			return false;
		rates[i] = 2.0 * COPY * COPIES / (ddp_seconds() - begin);
	}
	qsort(rates, ROUNDS, sizeof(*rates), by_size);
	common->figures[0] = rates[ROUNDS / 2];
	device_plain_free(from);
	device_plain_free(to);
	return true;
}

/* --- Sums --------------------------------------------------------------------------------- */

static void pose(int rank)
{
	char name[32];

	if (!getenv("DDP_BENCH_POSE"))
		return;
	snprintf(name, sizeof(name), "ddp-bench-%d", rank);
	setenv("NCCL_HOSTID", name, 1);
	setenv("NCCL_SOCKET_IFNAME", "lo", 0);
	setenv("NCCL_IB_DISABLE", "1", 0);
#ifdef SHARDS_ON_HOST
	name[0] = (char)('a' + rank);
	name[1] = '\0';
	setenv("DDP_HOST_GPU", name, 1);
#endif
}

/* Seconds of one of [times] sums in a row, with all ranks at the start; negative: one failed. */
static double sums(struct ddp *ddp, void *arena, int times)
{
	double begin;
	int status = ddp_barrier(ddp);

	begin = ddp_seconds();
	for (int i = 0; i < times && status == 0; i++)
		status = ddp_device_all_reduce(ddp, arena, arena, sum_bytes / 4, DDP_F32, DDP_MAX,
					       NULL);
	if (status == 0)
		status = ddp_device_wait(ddp, NULL);
	return status == 0 ? (ddp_seconds() - begin) / times : -1;
}

/* As many as fill a round, the same on all ranks. */
static int choose_times(struct ddp *ddp, void *arena)
{
	double once;
	int32_t times = 1;

	(void)sums(ddp, arena, 2);
	once = sums(ddp, arena, 3);
	if (once > 0 && round_seconds > once)
		times = round_seconds / once < MOST ? (int32_t)(round_seconds / once) : MOST;
	return ddp_broadcast(ddp, &times, sizeof(times), 0) == 0 ? times : -1;
}

static bool measure(struct ddp *ddp)
{
	double seconds[ROUNDS];
	void *arena;
	int times;

	if (!WORKS(ddp, ddp_device_alloc(ddp, sum_bytes, &arena)))
		return false;
	times = choose_times(ddp, arena);
	for (int i = 0; i < ROUNDS; i++) {
		seconds[i] = times > 0 ? sums(ddp, arena, times) : -1;
		if (seconds[i] < 0)
			return WORKS(ddp, ddp_status(ddp));
	}
	qsort(seconds, ROUNDS, sizeof(*seconds), by_size);
	if (ddp_world(ddp)->rank == 0) {
		common->figures[0] = seconds[ROUNDS / 2];
		common->figures[1] = times;
		common->figures[2] = !ddp_device_captures(ddp);
	}
	return WORKS(ddp, ddp_device_free(ddp, arena));
}

static int one(int rank, int size)
{
	struct ddp *ddp;
	bool good;

	(void)size;
	pose(rank);
	put_number("DDP_TIMEOUT", 60);
	ddp = join(rank);
	if (!ddp)
		return EXIT_FAILURE;
	good = measure(ddp);
	ddp_destroy(ddp);
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int measure_sums(int size)
{
	struct ranks ranks;

	if (!ranks_start(&ranks, size, one) || ranks_wait(&ranks, EXIT_SUCCESS, -1) != 0)
		return EXIT_FAILURE;
	printf("{\"seconds\": %.9g, \"times\": %.0f, \"shared\": %s}\n", common->figures[0],
	       common->figures[1], common->figures[2] > 0 ? "true" : "false");
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	int size = argc > 2 ? atoi(argv[2]) : 0;

	if (!(argc == 2 && strcmp(argv[1], "copy") == 0) &&
	    !(argc == 5 && strcmp(argv[1], "sum") == 0 && size > 0 && size <= RANKS_MOST)) {
		fprintf(stderr, "usage: shards copy | shards sum RANKS BYTES MILLISECONDS\n");
		return 2;
	}
	if (!shards_begin("shards"))
		return EXIT_FAILURE;
	if (argc == 5) {
		sum_bytes = strtoull(argv[3], NULL, 10) / 4 * 4;
		round_seconds = strtod(argv[4], NULL) * 1e-3;
		return measure_sums(size);
	}
	if (!alone(measure_copies))
		return EXIT_FAILURE;
	printf("{\"copy\": %.9g}\n", common->figures[0]);
	return EXIT_SUCCESS;
}
