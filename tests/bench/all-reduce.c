/* SPDX-License-Identifier: Apache-2.0 */
/*
 * all-reduce RANKS arena|private|bound [fresh|again] - libddp's side of bench-all-reduce, and the
 * bound
 *
 * The bound is the time of additions without communication: each of RANKS processes adds a part of
 * one vector to another vector in private memory. Together the processes add as many bytes as the
 * all-reduce does.
 */
#include "config.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "all-reduce.h"
#include "local/group.h"

enum { RANKS = 8 };

struct board {
	char ticket[DDP_GROUP_TICKET];
	_Atomic int ready;
};

struct rank {
	struct ddp_group *group;
	struct ddp_watch watch;
	struct ddp_error error;
	float *other; /* second vector, for the bound */
	ddp_kernel *kernel;
	int ranks;
	enum ddp_simd simd;
};

static void die(const char *text)
{
	fprintf(stderr, "all-reduce: %s\n", text);
	_exit(1);
}

static void reduce(void *data, float *vector, size_t bytes)
{
	struct rank *rank = data;
	struct ddp_call call = {.kind = 1,
				.type = DDP_F32,
				.op = DDP_SUM,
				.count = bytes / sizeof(float),
				.name = "all-reduce"};

	if (ddp_group_all_reduce(rank->group, &call, vector, vector, 0.5, &rank->watch,
				 &rank->error) < 0)
		die(rank->error.text);
}

static void add(void *data, float *vector, size_t bytes)
{
	const struct rank *rank = data;
	const void *from[2] = {vector, rank->other};
	void *to[1] = {vector};

	rank->kernel(to, 1, from, 2, bytes / sizeof(float) / (size_t)rank->ranks, 1);
}

static float *make_vector(size_t bytes)
{
	float *vector = aligned_alloc(4096, bytes);

	if (!vector)
		die("no memory");
	memset(vector, 0, bytes);
	return vector;
}

static void join(struct rank *rank, struct board *board, int index, int size)
{
	static const int ranks[RANKS] = {0, 1, 2, 3, 4, 5, 6, 7};
	struct ddp_log log = {.level = DDP_LEVEL_ERROR};
	struct ddp_group_options options = {
		.index = index, .size = size, .ranks = ranks, .host = "here", .log = &log};
	int status;

	if (ddp_simd_choose(&options.simd, &rank->error) < 0)
		die(rank->error.text);
	rank->simd = options.simd;
	rank->watch = ddp_watch_start(120, NULL, NULL);
	if (index == 0) {
		status = ddp_group_create(&rank->group, &options, board->ticket, &rank->error);
		board->ready = 1;
	} else {
		while (!board->ready)
			usleep(100);
		status = ddp_group_attach(&rank->group, &options, board->ticket, &rank->watch,
					  &rank->error);
	}
	if (status < 0 || ddp_group_meet(rank->group, &rank->watch, &rank->error) < 0)
		die(rank->error.text);
}

/* Binds each rank to a CPU, like MPI's launchers, if there are enough CPUs. */
static void bind(int index, int size)
{
	cpu_set_t all, one;
	int seen = 0;

	CPU_ZERO(&one);
	if (sched_getaffinity(0, sizeof(all), &all) < 0 || CPU_COUNT(&all) < size)
		return;
	for (size_t i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &all) && seen++ == index)
			CPU_SET(i, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

static void run_rank(struct board *board, int index, int size, const char *mode, bool fresh)
{
	struct rank rank = {.ranks = size};
	struct ddp_region *region = NULL;
	struct bench_side side = {.name = mode,
				  .rank = index,
				  .ranks = size,
				  .fresh = fresh,
				  .reduce = reduce,
				  .data = &rank};
	float *vector = make_vector(BENCH_LARGEST);

	bind(index, size);
	join(&rank, board, index, size);
	if (strcmp(mode, "arena") == 0) {
		if (ddp_region_create(&region, rank.group, BENCH_LARGEST, &rank.watch,
				      &rank.error) < 0)
			die(rank.error.text);
		vector = ddp_region_part(region, index);
	} else if (strcmp(mode, "bound") == 0) {
		rank.other = make_vector(BENCH_LARGEST);
		rank.kernel = ddp_kernel_get(DDP_F32, DDP_SUM, rank.simd);
		side.reduce = add;
	}
	bench_run(&side, vector);
	fflush(stdout);
	ddp_group_leave(rank.group);
	_exit(0);
}

int main(int argc, char **argv)
{
	int size = argc > 2 ? atoi(argv[1]) : 0, status, result = 0;
	struct board *board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (size < 1 || size > RANKS || board == MAP_FAILED)
		die("usage: all-reduce RANKS arena|private|bound [fresh|again]");
	for (int r = 0; r < size; r++)
		if (fork() == 0)
			run_rank(board, r, size, argv[2],
				 argc > 3 && strcmp(argv[3], "fresh") == 0);
	while (wait(&status) > 0)
		result |= status != 0;
	return result;
}
