/* SPDX-License-Identifier: Apache-2.0 */
/* test_world.c - ddp_init() and the collectives between processes, in one group and in several */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "ranks.h"

/*
 * Layouts with one group, groups of equal and different sizes, one rank per node, and more ranks
 * than cores.
 */
static const char *const layouts[] = {"1", "4", "1,1", "1,3", "2,2,2", "3,1,2", "1,1,1,1,1,1,1"};

/* Layouts for what does not depend on the number of groups. */
static const char *const few_layouts[] = {"1", "2", "1,2"};

/* --- Identity ---------------------------------------------------------------------------- */

RANKS_TEST(test_world, few_layouts)
{
	const struct ddp_world *world = ddp_world(ddp);

	RANK_CHECK(world->rank == rank);
	RANK_CHECK(world->size == atoi(getenv("WORLD_SIZE")));
	RANK_CHECK(world->local_rank == atoi(getenv("LOCAL_RANK")));
	RANK_CHECK(world->node_rank == atoi(getenv("GROUP_RANK")));
	RANK_CHECK(strcmp(world->method, world->size > 1 ? "file" : "single") == 0);
	RANK_CHECK(strcmp(world->wide, world->node_count > 1 ? "tcp" : "none") == 0);
	RANK_CHECK(ddp_status(ddp) == 0 && ddp_error(ddp)[0] == '\0');
}

static bool handles_sigterm(void)
{
	struct sigaction action;

	return sigaction(SIGTERM, NULL, &action) == 0 && action.sa_handler != SIG_DFL;
}

/* libddp handles SIGTERM only if there are other ranks, and never if the program forbids it. */
static int body_sigterm(int rank)
{
	struct ddp_options options = DDP_OPTIONS_INIT;
	struct ddp *ddp;

	(void)rank;
	options.no_signals = true;
	RANK_OK(ddp, ddp_init(&ddp, &options));
	RANK_CHECK(!handles_sigterm());
	ddp_destroy(ddp);
	ddp = ranks_join();
	RANK_CHECK(handles_sigterm() == (ddp_world(ddp)->size > 1));
	ddp_destroy(ddp);
	return 0;
}

TEST(test_sigterm_handler)
{
	ranks_run("1", body_sigterm);
	ranks_run("2", body_sigterm);
}

static int body_no_engine(int rank)
{
	struct ddp *ddp;

	(void)rank;
	setenv("DDP_WIDE", "mpi", 1);
	setenv("DDP_MODULES", "/nowhere", 1);
	RANK_CHECK(ddp_init(&ddp, NULL) < 0);
	RANK_CHECK(strstr(ddp_error(ddp), "ddp_mpi.so"));
	ddp_destroy(ddp);
	return 0;
}

TEST(test_no_engine)
{
	ranks_run("1,1", body_no_engine);
}

/* --- All-reduce -------------------------------------------------------------------------- */

static const size_t counts[] = {0, 1, 2, 3, 7, 64, 1000, 4097, 65536 + 5, 1 << 20};

/* A small integer, so that sums are exact in all types except U8. */
static int value(int rank, size_t i)
{
	return (int)((i * 5 + (size_t)rank * 3) % 13);
}

static void set(void *data, enum ddp_type type, size_t i, int number)
{
	float f = (float)number;
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	switch (type) {
	case DDP_F32:
		((float *)data)[i] = f;
		break;
	case DDP_F64:
		((double *)data)[i] = number;
		break;
	case DDP_BF16:
		((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
		break;
	case DDP_F16: /* normalized; exact for 0 to 2047 */
		((uint16_t *)data)[i] =
			number == 0 ? 0
				    : (uint16_t)(((((bits >> 23) & 0xff) - 127 + 15) << 10) |
						 ((bits >> 13) & 0x3ff));
		break;
	case DDP_I32:
		((int32_t *)data)[i] = number;
		break;
	case DDP_I64:
		((int64_t *)data)[i] = number;
		break;
	default:
		((uint8_t *)data)[i] = (uint8_t)number;
	}
}

static int expected(enum ddp_op op, int size, size_t i)
{
	int result = value(0, i);

	for (int rank = 1; rank < size; rank++) {
		int next = value(rank, i);

		if (op == DDP_SUM)
			result += next;
		else if (op == DDP_MAX ? next > result : next < result)
			result = next;
	}
	return result;
}

static void reduce_and_check(struct ddp *ddp, void *data, size_t count, enum ddp_type type,
			     enum ddp_op op)
{
	const struct ddp_world *world = ddp_world(ddp);
	size_t bytes = ddp_type_size(type) * count;
	char *want = malloc(bytes + 1);

	RANK_CHECK(want);
	for (size_t i = 0; i < count; i++) {
		set(data, type, i, value(world->rank, i));
		set(want, type, i, expected(op, world->size, i));
	}
	RANK_OK(ddp, ddp_all_reduce(ddp, data, data, count, type, op));
	RANK_CHECK(memcmp(data, want, bytes) == 0);
	free(want);
}

RANKS_TEST(test_all_reduce, layouts)
{
	size_t most = counts[ROWS(counts) - 1] * 4;
	void *arena, *heap = malloc(most);

	RANK_CHECK(heap);
	RANK_OK(ddp, ddp_arena_create(ddp, most, &arena));
	for (int i = 0; i < ROWS(counts); i++)
		for (int type = 0; type < DDP_TYPE_COUNT; type++) {
			size_t count = counts[i];

			if (count * ddp_type_size((enum ddp_type)type) > most)
				count = most / 8;
			for (int op = 0; op < DDP_OP_COUNT; op++) {
				if (count > 5000 && (op != DDP_SUM || type > DDP_F16))
					continue;
				/* in registered memory, or in memory of the program */
				reduce_and_check(ddp, (i + type + op) % 2 ? arena : heap, count,
						 (enum ddp_type)type, (enum ddp_op)op);
			}
		}
	free(heap);
	RANK_OK(ddp, ddp_arena_destroy(ddp, arena));
}

/*
 * The sum of these numbers depends on the order of addition. All ranks get the same bits, in every
 * run.
 */
RANKS_TEST(test_bits, layouts)
{
	static const size_t lengths[] = {1, 17, 4099, 50000};
	size_t bytes = lengths[3] * sizeof(float);
	float *data = malloc(bytes), *sum = malloc(bytes), *again = malloc(bytes);
	uint64_t random = 88172645463325252u + (uint64_t)rank;

	RANK_CHECK(data && sum && again);
	for (size_t i = 0; i < lengths[3]; i++)
		data[i] = (float)unit_random(&random, 1u << 30) / 3e5f;
	for (int i = 0; i < ROWS(lengths); i++) {
		RANK_OK(ddp, ddp_all_reduce(ddp, data, sum, lengths[i], DDP_F32, DDP_SUM));
		RANK_OK(ddp, ddp_all_reduce(ddp, data, again, lengths[i], DDP_F32, DDP_SUM));
		RANK_CHECK(memcmp(sum, again, lengths[i] * sizeof(float)) == 0);
		ranks_equal(ddp, sum, lengths[i] * sizeof(float));
	}
	free(data);
	free(sum);
	free(again);
}

/* Returns the KiB of shared memory in this process's page table. */
static long resident_shared(void)
{
	FILE *file = fopen("/proc/self/status", "r");
	long kilobytes = -1;
	char line[128];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "RssShmem: %ld", &kilobytes) == 1)
			break;
	if (file)
		fclose(file);
	return kilobytes;
}

/* All ranks of a node share one block of memory, which has the requested size. */
RANKS_TEST(test_shared, few_layouts)
{
	enum { COUNT = 3000000 };
	const struct ddp_world *world = ddp_world(ddp);
	_Atomic uint32_t *shared;
	long before = resident_shared();
	void *memory;

	RANK_OK(ddp, ddp_shared_create(ddp, COUNT * sizeof(*shared), &memory));
	shared = memory;
	RANK_CHECK(resident_shared() - before < 2 * COUNT * (long)sizeof(*shared) / 1024);
	for (int i = 0; i < COUNT; i += COUNT / 7)
		RANK_CHECK(atomic_load(&shared[i]) == 0);
	atomic_fetch_add(&shared[COUNT - 1], 0);
	RANK_OK(ddp, ddp_barrier(ddp));
	for (int i = 0; i < COUNT; i += COUNT / 7)
		atomic_fetch_add(&shared[i], (uint32_t)world->local_rank + 1);
	RANK_OK(ddp, ddp_barrier(ddp));
	for (int i = 0; i < COUNT; i += COUNT / 7)
		RANK_CHECK(atomic_load(&shared[i]) ==
			   (uint32_t)(world->local_size * (world->local_size + 1) / 2));
	RANK_OK(ddp, ddp_arena_destroy(ddp, memory));
}

/*
 * Rank 1, which makes the memory of the second node, cannot make files of this size. All ranks fail,
 * also those of the first node, and can then continue.
 */
RANK_BODY(body_no_arena)
{
	const struct rlimit limit = {1 << 20, RLIM_INFINITY};
	void *memory;

	signal(SIGXFSZ, SIG_IGN);
	if (rank == 1)
		RANK_CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	for (int i = 0; i < 2; i++) {
		RANK_CHECK(ddp_arena_create(ddp, 8 << 20, &memory) == DDP_ERR_SYSTEM && !memory);
		RANK_CHECK(strstr(ddp_error(ddp),
				  "the arena failed on rank 1: cannot make shared memory"));
		RANK_CHECK(ddp_shared_create(ddp, 8 << 20, &memory) == DDP_ERR_SYSTEM && !memory);
	}
	RANK_OK(ddp, ddp_arena_create(ddp, 1000, &memory));
	RANK_OK(ddp, ddp_barrier(ddp));
}

TEST(test_no_arena)
{
	ranks_run("1,2", body_no_arena);
}

/* The ranks request different sizes. */
RANK_BODY(body_other_size)
{
	void *memory;

	RANK_CHECK(ddp_arena_create(ddp, 1000 + (size_t)rank, &memory) == DDP_ERR_MISMATCH);
	RANK_CHECK(strstr(ddp_error(ddp), " got 1002 bytes on one rank, but 1000 on another"));
}

TEST(test_arena_of_another_size)
{
	ranks_run("1,2", body_other_size);
}

/* If [send] and [recv] differ, an all-reduce does not change [send]. */
RANK_BODY(body_separate_buffers)
{
	float send[100], recv[100];

	for (int i = 0; i < 100; i++)
		send[i] = (float)value(rank, (size_t)i);
	RANK_OK(ddp, ddp_all_reduce(ddp, send, recv, 100, DDP_F32, DDP_SUM));
	for (int i = 0; i < 100; i++) {
		RANK_CHECK(send[i] == (float)value(rank, (size_t)i));
		RANK_CHECK(recv[i] == (float)expected(DDP_SUM, ddp_world(ddp)->size, (size_t)i));
	}
}

TEST_ROWS(test_separate_buffers, few_layouts)
{
	ranks_run(few_layouts[_i], body_separate_buffers);
}

/* --- Broadcast, all-gather, barrier ------------------------------------------------------ */

RANKS_TEST(test_broadcast, layouts)
{
	static const size_t sizes[] = {0, 1, 13, 4096, 300001};
	char *data = malloc(sizes[4]);

	RANK_CHECK(data);
	for (int root = 0; root < ddp_world(ddp)->size; root++)
		for (int i = 0; i < ROWS(sizes); i++) {
			memset(data, rank == root ? 'a' + root : '?', sizes[i]);
			RANK_OK(ddp, ddp_broadcast(ddp, data, sizes[i], root));
			for (size_t at = 0; at < sizes[i]; at++)
				RANK_CHECK(data[at] == 'a' + root);
		}
	free(data);
}

RANKS_TEST(test_all_gather, layouts)
{
	static const size_t sizes[] = {0, 1, 8, 100, 300001};
	int size = ddp_world(ddp)->size;
	char *send = malloc(sizes[4]), *recv = malloc(sizes[4] * (size_t)size);

	RANK_CHECK(send && recv);
	for (int i = 0; i < ROWS(sizes); i++) {
		memset(send, 'a' + rank, sizes[i]);
		RANK_OK(ddp, ddp_all_gather(ddp, send, recv, sizes[i]));
		for (size_t at = 0; at < sizes[i] * (size_t)size; at++)
			RANK_CHECK(recv[at] == (char)('a' + at / sizes[i]));
	}
	free(send);
	free(recv);
}

/*
 * If some ranks have an error, all ranks return the error of the first one of these. The text names
 * that rank, unless all ranks have the same error. The ranks can then continue.
 */
RANKS_TEST(test_agree, few_layouts)
{
	int last = ddp_world(ddp)->size - 1;
	char name[32];

	RANK_OK(ddp, ddp_agree(ddp, 0, NULL));
	RANK_CHECK(ddp_agree(ddp, DDP_ERR_FILE, "all have it") == DDP_ERR_FILE);
	RANK_CHECK(strcmp(ddp_error(ddp), "all have it") == 0);
	RANK_CHECK(ddp_agree(ddp, DDP_ERR_FILE, rank ? "yours" : "mine") == DDP_ERR_FILE);
	RANK_CHECK(strncmp(ddp_error(ddp), last ? "rank 0 on " : "mine", last ? 10 : 5) == 0);
	RANK_CHECK(ddp_agree(ddp, rank == last ? DDP_ERR_FORMAT : 0, "line 3") == DDP_ERR_FORMAT);
	snprintf(name, sizeof(name), last ? "rank %d on " : "line 3", last);
	RANK_CHECK(strstr(ddp_error(ddp), name) == ddp_error(ddp));
	RANK_CHECK(strcmp(ddp_error(ddp) + strlen(ddp_error(ddp)) - 6, "line 3") == 0);
	RANK_CHECK(ddp_agree(ddp, rank ? 0 : DDP_ERR_MEMORY, NULL) == DDP_ERR_MEMORY);
	RANK_CHECK(strstr(ddp_error(ddp), ddp_strerror(DDP_ERR_MEMORY)));
	RANK_OK(ddp, ddp_agree(ddp, 0, NULL));
}

/*
 * A rank leaves a barrier only after all ranks have entered it. Each rank creates a file before the
 * barrier, and looks for all files after it.
 */
RANKS_TEST(test_barrier, layouts)
{
	char name[64];

	for (int round = 0; round < 20; round++) {
		int fd;

		snprintf(name, sizeof(name), "mark-%d-%d", round, rank);
		fd = open(name, O_CREAT | O_WRONLY, 0600);
		RANK_CHECK(fd >= 0);
		close(fd);
		RANK_OK(ddp, ddp_barrier(ddp));
		for (int other = 0; other < ddp_world(ddp)->size; other++) {
			snprintf(name, sizeof(name), "mark-%d-%d", round, other);
			RANK_CHECK(access(name, F_OK) == 0);
		}
	}
}

/* --- Statistics -------------------------------------------------------------------------- */

/* Rank r contributes r + 1 values, r to 2r. The last rank contributes none. */
RANKS_TEST(test_moments, layouts)
{
	int size = ddp_world(ddp)->size, own = rank < size - 1 || size == 1 ? rank + 1 : 0;
	double count = own, total = 0, sum = 0, squares = 0;
	float mean = (float)(1.5 * rank), m2 = 0;

	for (int i = 0; i < own; i++)
		m2 += ((float)(rank + i) - mean) * ((float)(rank + i) - mean);
	for (int r = 0; r < size; r++)
		for (int i = 0; i < (r < size - 1 || size == 1 ? r + 1 : 0); i++) {
			total += 1;
			sum += r + i;
			squares += (r + i) * (r + i);
		}
	RANK_OK(ddp, ddp_all_reduce_moments(ddp, &count, &mean, &m2, 1));
	RANK_CHECK(count == total);
	RANK_CHECK(fabs((double)mean - sum / total) < 1e-6);
	RANK_CHECK(fabs((double)m2 - (squares - sum * sum / total)) < 1e-5);
	ranks_equal(ddp, &mean, sizeof(mean));
	ranks_equal(ddp, &m2, sizeof(m2));
	count = 0;
	mean = m2 = NAN;
	RANK_OK(ddp, ddp_all_reduce_moments(ddp, &count, &mean, &m2, 1));
	RANK_CHECK(count == 0 && mean == 0 && m2 == 0);
}

/* The sums of all ranks are those of one rank that evaluates all samples. */
RANKS_TEST(test_evaluation, few_layouts)
{
	static const float logits[][3] = {{2, 1, 0}, {0, 0, 5}, {1, 3, 1}};
	static const int32_t labels[] = {0, 1, 1};
	struct ddp_evaluation sums = {0, 0, 0, 0}, all = {0, 0, 0, 0};

	for (int r = 0; r < ddp_world(ddp)->size; r++)
		ddp_evaluation_add(&all, logits[r % 3], &labels[r % 3], 1, 3);
	ddp_evaluation_add(&sums, logits[rank % 3], &labels[rank % 3], 1, 3);
	RANK_OK(ddp, ddp_evaluation_reduce(ddp, &sums));
	RANK_CHECK(sums.samples == all.samples && sums.top1 == all.top1);
	RANK_CHECK(sums.top5 == all.top5 && fabs(sums.loss - all.loss) < 1e-6);
	ranks_equal(ddp, &sums, sizeof(sums));
}

/* --- Leaks ------------------------------------------------------------------------------- */

static int body_no_leak(int rank)
{
	int status = body_separate_buffers(rank);

	unit_find_leaks();
	return status;
}

/* After ddp_destroy() no memory is left. */
TEST_ROWS(test_no_leak, few_layouts)
{
	ranks_run(few_layouts[_i], body_no_leak);
}

/* --- Without shared memory --------------------------------------------------------------- */

static int body_local_off(int rank)
{
	setenv("DDP_LOCAL", "off", 1);
	return body_separate_buffers(rank);
}

TEST(test_local_off)
{
	ranks_run("3", body_local_off);
	ranks_run("2,1", body_local_off);
}

static int body_no_memfd(int rank)
{
	RANK_CHECK(forbid_call(SYS_memfd_create, EPERM)); /* as in some containers */
	return body_separate_buffers(rank);
}

/* Without memfd_create(), the leader of each node prints a warning. */
TEST(test_no_memfd)
{
	static struct ranks ranks;

	ranks_start(&ranks, "2,2", body_no_memfd);
	ranks_wait(&ranks, false);
	for (int rank = 0; rank < 4; rank++) {
		ck_assert_msg(ranks.statuses[rank] == 0, "rank %d:\n%s", rank, ranks.text[rank]);
		if (rank % 2 == 0)
			unit_has(
				"leader", ranks.text[rank],
				"the 2 ranks of |use tcp among themselves instead of shared "
				"memory: |memfd_create(), which shared memory needs: Operation not permitted");
		else
			ck_assert_str_eq(ranks.text[rank], "");
	}
}

/* --- One container per rank -------------------------------------------------------------- */

#define RENDEZVOUS ".ddp/torchrun-test-127.0.0.1-7.0"

/*
 * The leader of the other node has created a directory. Rank 0 removes it, as the last rank of an
 * earlier world does. That is possible only until the leader's socket is in the directory. Rank 2
 * starts after the removal.
 */
static int body_removed(int rank)
{
	if (rank == 0) {
		while (rmdir(RENDEZVOUS) < 0 && errno == ENOENT)
			;
		RANK_CHECK(mkdir("removed", 0700) == 0);
	} else {
		while (rank == 2 && access("removed", F_OK) < 0)
			usleep(1000);
		enter_container();
	}
	setenv("DDP_LOCAL", "on", 1);
	ddp_destroy(ranks_join());
	return 0;
}

TEST(test_directory_removed_before_rank_0_begins)
{
	if (!has_containers()) {
		printf("no containers: this user may make no namespaces\n");
		return;
	}
	for (int i = 0; i < 8; i++)
		ranks_run("1,2", body_removed);
}

/* --- Two handles ------------------------------------------------------------------------- */

/*
 * Each process joins two worlds at the same time. The ranks look for the second world before rank 0
 * begins it, and are older than the first one.
 */
static int body_two_handles(int rank)
{
	struct ddp *ddp[2];
	double sum = 1;

	for (int i = 0; i < 2; i++) {
		usleep(i == 0 || rank == 0 ? 100000 : 0);
		ddp[i] = ranks_join();
	}
	for (int i = 0; i < 2; i++)
		RANK_OK(ddp[i], ddp_all_reduce(ddp[i], &sum, &sum, 1, DDP_F64, DDP_SUM));
	RANK_CHECK(sum == 9);
	ddp_destroy(ddp[0]);
	RANK_OK(ddp[1], ddp_barrier(ddp[1]));
	ddp_destroy(ddp[1]);
	return 0;
}

TEST(test_two_handles)
{
	ranks_run("3", body_two_handles);
	ranks_run("1,2", body_two_handles);
	ranks_run("1,1,1", body_two_handles);
}

/* --- Worlds of the program ----------------------------------------------------------------- */

static int variable(const char *name)
{
	return atoi(getenv(name));
}

/* Joins the world [job] as [rank] of [size] in an order that no variable of the environment has. */
static struct ddp *join_given(struct ddp_options *options, const char *job, int rank, int size)
{
	char directory[32];
	struct ddp *ddp;

	snprintf(directory, sizeof(directory), "world-%s", job);
	RANK_CHECK(mkdir(directory, 0700) == 0 || errno == EEXIST);
	options->job = job;
	options->directory = directory;
	options->rank = rank;
	options->world_size = size;
	RANK_OK(ddp, ddp_init(&ddp, options));
	RANK_CHECK(ddp_world(ddp)->rank == rank);
	RANK_CHECK(strcmp(ddp_world(ddp)->job, job) == 0);
	RANK_CHECK(strcmp(ddp_world(ddp)->source, "program") == 0);
	return ddp;
}

/* Each rank is in three worlds: all ranks backwards, the ranks of its node, and one rank per node. */
static int body_given_worlds(int rank)
{
	struct ddp_options options[3] = {DDP_OPTIONS_INIT, DDP_OPTIONS_INIT, DDP_OPTIONS_INIT};
	int size = variable("WORLD_SIZE"), local = variable("LOCAL_RANK");
	int local_size = variable("LOCAL_WORLD_SIZE"), node = variable("GROUP_RANK");
	int nodes = variable("GROUP_WORLD_SIZE");
	char of_node[16], of_column[16];
	int ranks[16], sums[3] = {rank, rank, rank};
	struct ddp *ddp[3];

	snprintf(of_node, sizeof(of_node), "node-%d", node);
	snprintf(of_column, sizeof(of_column), "column-%d", local);
	options[0].local_rank = local_size - 1 - local;
	options[0].local_size = local_size;
	options[0].node_rank = node;
	options[0].node_count = nodes;
	ddp[0] = join_given(&options[0], "all", size - 1 - rank, size);
	ddp[1] = join_given(&options[1], of_node, local, local_size);
	options[2].local_size = 1;
	options[2].node_rank = node;
	options[2].node_count = nodes;
	ddp[2] = join_given(&options[2], of_column, node, nodes);
	RANK_OK(ddp[0], ddp_all_gather(ddp[0], &rank, ranks, sizeof(rank)));
	for (int i = 0; i < size; i++)
		RANK_CHECK(ranks[i] == size - 1 - i);
	for (int i = 0; i < 3; i++)
		RANK_OK(ddp[i], ddp_all_reduce(ddp[i], &sums[i], &sums[i], 1, DDP_I32, DDP_SUM));
	RANK_CHECK(sums[0] == size * (size - 1) / 2);
	RANK_CHECK(sums[1] == local_size * (rank - local) + local_size * (local_size - 1) / 2);
	RANK_CHECK(sums[2] == nodes * local + local_size * nodes * (nodes - 1) / 2);
	for (int i = 0; i < 3; i++)
		ddp_destroy(ddp[i]);
	return 0;
}

TEST(test_given_worlds)
{
	ranks_run("3", body_given_worlds);
	ranks_run("1,1", body_given_worlds);
	ranks_run("2,2", body_given_worlds);
}

static int body_options(int rank)
{
	struct ddp_options options = DDP_OPTIONS_INIT;
	struct ddp *ddp;

	/* a program that was built with release 1.0 */
	options.size = offsetof(struct ddp_options, rank);
	options.world_size = 77;
	RANK_OK(ddp, ddp_init(&ddp, &options));
	RANK_CHECK(ddp_world(ddp)->rank == rank && ddp_world(ddp)->size == 1);
	ddp_destroy(ddp);
	options.size = sizeof(options) + 1;
	RANK_CHECK(ddp_init(&ddp, &options) == DDP_ERR_ARGUMENT);
	RANK_CHECK(strstr(ddp_error(ddp), "not older"));
	ddp_destroy(ddp);
	options.size = sizeof(options);
	RANK_CHECK(ddp_init(&ddp, &options) == DDP_ERR_ARGUMENT);
	RANK_CHECK(strstr(ddp_error(ddp), "job to less than"));
	ddp_destroy(ddp);
	options.job = options.directory = "x";
	options.rank = 77;
	RANK_CHECK(ddp_init(&ddp, &options) == DDP_ERR_ARGUMENT);
	RANK_CHECK(strstr(ddp_error(ddp), "rank=77 is not below world_size=77"));
	ddp_destroy(ddp);
	return 0;
}

TEST(test_options)
{
	ranks_run("1", body_options);
}

/* --- Another thread aborts ----------------------------------------------------------------- */

static void *wait_for_others(void *ddp)
{
	return (void *)(intptr_t)ddp_barrier(ddp);
}

/* Rank 0 aborts while its other thread is in a barrier, for which rank 1 arrives too late. */
RANK_BODY(body_abort_of_thread)
{
	pthread_t thread;
	void *status;

	if (rank == 0) {
		RANK_CHECK(pthread_create(&thread, NULL, wait_for_others, ddp) == 0);
		usleep(20000);
		ddp_abort(ddp, "enough");
		RANK_CHECK(pthread_join(thread, &status) == 0);
		RANK_CHECK((intptr_t)status == DDP_ERR_ABORTED);
		RANK_CHECK(mkdir("aborted", 0700) == 0);
	}
	while (access("aborted", F_OK) != 0)
		usleep(1000);
	/* The abort may arrive after the barrier that rank 0 began. */
	if (ddp_barrier(ddp) == 0)
		(void)ddp_barrier(ddp);
	RANK_CHECK(ddp_status(ddp) == DDP_ERR_ABORTED);
	RANK_CHECK(strstr(ddp_error(ddp), "aborted: enough"));
}

TEST(test_abort_of_thread)
{
	ranks_run("2", body_abort_of_thread);
	ranks_run("1,1", body_abort_of_thread);
}

/* --- Misuse ------------------------------------------------------------------------------ */

/* A wrong argument is an error. The ranks can then continue. */
RANK_BODY(body_wrong_arguments)
{
	float x = 1;

	RANK_CHECK(ddp_all_reduce(ddp, &x, &x, 1, (enum ddp_type)99, DDP_SUM) == DDP_ERR_ARGUMENT);
	RANK_CHECK(strstr(ddp_error(ddp), "99"));
	RANK_CHECK(ddp_broadcast(ddp, &x, 4, 77) == DDP_ERR_ARGUMENT);
	RANK_CHECK(strstr(ddp_error(ddp), "77"));
	RANK_CHECK(ddp_arena_destroy(ddp, &x) == DDP_ERR_ARGUMENT);
	RANK_OK(ddp, ddp_all_reduce(ddp, &x, &x, 1, DDP_F32, DDP_SUM));
	RANK_CHECK(x == (float)ddp_world(ddp)->size);
}

TEST(test_wrong_arguments)
{
	ranks_run("2", body_wrong_arguments);
	ranks_run("1,1", body_wrong_arguments);
}

/* --- Devices ------------------------------------------------------------------------------- */

/* Rank 0 has no device. All ranks return this error, and can then continue without devices. */
static int body_no_device(int rank)
{
	static float data[2];
	struct ddp *ddp;

	setenv("CUDA_VISIBLE_DEVICES", rank == 0 ? "" : "0", 1);
	ddp = ranks_join();
	RANK_CHECK(ddp_world(ddp)->device == (rank == 0 ? -1 : 0));
	RANK_CHECK(ddp_device_all_reduce(ddp, data, data, 2, DDP_F32, DDP_SUM, NULL) ==
		   DDP_ERR_STATE);
	RANK_CHECK(strstr(ddp_error(ddp), "ddp_device_join()"));
	for (int i = 0; i < 2; i++) {
		RANK_CHECK(ddp_device_join(ddp) == DDP_ERR_ENVIRONMENT);
		RANK_CHECK(ddp_world(ddp)->size == 1 ||
			   strncmp(ddp_error(ddp), "rank 0 on ", 10) == 0);
		RANK_CHECK(strstr(ddp_error(ddp), "no device is visible"));
		RANK_CHECK(strstr(ddp_error(ddp), "--gres=gpu:N"));
	}
	RANK_CHECK(ddp_device_wait(ddp, NULL) == DDP_ERR_STATE);
	RANK_OK(ddp, ddp_barrier(ddp));
	ddp_destroy(ddp);
	return 0;
}

TEST_ROWS(test_no_device, few_layouts)
{
	ranks_run(few_layouts[_i], body_no_device);
}

/* --- MPI ------------------------------------------------------------------------------------ */

#ifdef HAVE_MPIRUN

/* Signals whose handlers MPI must not change. The program has its own handler for one of them. */
static const int handled[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGHUP};

static void handle(int number)
{
	_exit(128 + number);
}

/* Stores the handlers of [handled] in [handlers]. */
static void get_handlers(void (*handlers[])(int))
{
	for (int i = 0; i < ROWS(handled); i++) {
		struct sigaction action;

		sigaction(handled[i], NULL, &action);
		handlers[i] = action.sa_handler;
	}
}

/* Rank 1 aborts. The other ranks get its text. */
static void abort_over_mpi(struct ddp *ddp, int rank)
{
	int status = 0;

	if (rank == 1)
		ddp_abort(ddp, "enough");
	while (rank != 1 && status == 0)
		status = ddp_barrier(ddp);
	RANK_CHECK(rank == 1 || (status == DDP_ERR_ABORTED && strstr(ddp_error(ddp), "enough")));
}

/* A process that MPI's launcher started. The rank differs from the MPI rank. */
static int run_launched(int size, bool aborts)
{
	const char *number = getenv("OMPI_COMM_WORLD_RANK");
	int rank = size - 1 - atoi(number ? number : getenv("PMI_RANK"));
	void (*before[ROWS(handled)])(int), (*after[ROWS(handled)])(int);
	struct ddp *ddp;

	setenv("DDP_WIDE", "mpi", 1);
	ranks_environment(rank, size, 0, 1, rank, size);
	signal(SIGFPE, handle);
	get_handlers(before);
	ddp = ranks_join();
	RANK_CHECK(strcmp(ddp_world(ddp)->wide, "mpi") == 0);
	test_all_reduce_body_joined(ddp, rank);
	test_broadcast_body_joined(ddp, rank);
	test_all_gather_body_joined(ddp, rank);
	test_barrier_body_joined(ddp, rank);
	get_handlers(after);
	RANK_CHECK(memcmp(before, after, sizeof(before)) == 0);
	if (aborts)
		abort_over_mpi(ddp, rank);
	usleep((useconds_t)(rank * 20000)); /* ranks leave one after the other */
	ddp_destroy(ddp);
	return 0;
}

/* Open MPI 5 and its PMIx leak memory, which LeakSanitizer must ignore. */
const char *__lsan_default_suppressions(void) __attribute__((visibility("default")));

const char *__lsan_default_suppressions(void)
{
	return "leak:libmpi\nleak:libopen-pal\nleak:libpmix\nleak:vasprintf\n";
}

/* Runs all collectives over MPI. With an odd number of ranks, a rank then aborts. */
TEST_LOOP(test_mpi, 3, 5)
{
	char directory[256], command[1024];

	unit_directory(directory, sizeof(directory));
	snprintf(command, sizeof(command), "cd %s && TMPDIR=%s exec %s -np %d /proc/%d/exe %d %d",
		 directory, directory, MPIRUN, _i, getpid(), _i, _i % 2);
	ck_assert_int_eq(system(command), 0);
	unit_remove(directory);
}

int main(int argc, char **argv)
{
	return argc == 3 ? run_launched(atoi(argv[1]), atoi(argv[2])) : unit_run("world", NULL);
}

#else

UNIT_MAIN("world", NULL)

#endif /* HAVE_MPIRUN */
