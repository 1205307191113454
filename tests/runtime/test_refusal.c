/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_refusal.c - a call that fails before its first message: no rank continues with the results of
 * another call
 *
 * Ranks are processes. Their devices are emulated in host memory: ranks that share one are staged,
 * the others have NCCL.
 */
#include "config.h"

#include <math.h>

#include "gpus.h"

static const struct gpus_layout layouts[] = {{"2", "aa"},      {"1,1", "aa"}, {"2,2", "aabb"},
					     {"1,1,1", "aaa"}, {"3", "abc"},  {"1,1,1", "abc"},
					     {"2,2", "abcd"}};

/* --- Collectives -------------------------------------------------------------------------- */

static struct ddp_gradients *gradients, *device_gradients;
static float data[64];
static void *arena, *device_memory;

static const struct ddp_parameter parameters[] = {{"weight", 40}, {"bias", 10}};

/* In the first rows, a rank refuses the call; in the others, it refuses a broadcast instead. */
enum call {
	ALL_REDUCE,
	ALL_REDUCE_OPERATION,
	BROADCAST,
	ALL_GATHER,
	ARENA_DESTROY,
	GRADIENTS_CREATE,
	GRADIENTS_FINISH,
	GRADIENTS_PLACE,
	DEVICE_ALL_REDUCE,
	DEVICE_BROADCAST,
	DEVICE_ALL_GATHER,
	DEVICE_ALLOC,
	REFUSABLE,
	BARRIER = REFUSABLE,
	AGREE,
	ARENA_CREATE,
	SHARED_CREATE,
	MOMENTS,
	EVALUATION,
	TENSORS,
	CALLS
};

/* Names of the refused calls in messages. */
static const char *const names[CALLS] = {
	[ALL_REDUCE... ALL_REDUCE_OPERATION] = "ddp_all_reduce",
	[BROADCAST] = "ddp_broadcast",
	[ALL_GATHER] = "ddp_all_gather",
	[ARENA_DESTROY] = "ddp_arena_destroy",
	[GRADIENTS_CREATE] = "ddp_gradients_create",
	[GRADIENTS_FINISH] = "ddp_gradients_finish",
	[GRADIENTS_PLACE] = "ddp_gradients_place",
	[DEVICE_ALL_REDUCE] = "ddp_device_all_reduce",
	[DEVICE_BROADCAST] = "ddp_device_broadcast",
	[DEVICE_ALL_GATHER] = "ddp_device_all_gather",
	[DEVICE_ALLOC] = "ddp_device_alloc",
	[REFUSABLE... TENSORS] = "ddp_broadcast",
};

/* Makes a call with a wrong argument. */
static int refuse(struct ddp *ddp, enum call call)
{
	struct ddp_gradients *created;
	void *memory;

	switch (call) {
	case ALL_REDUCE:
		return ddp_all_reduce(ddp, data, data, 8, DDP_TYPE_COUNT, DDP_SUM);
	case ALL_REDUCE_OPERATION:
		return ddp_all_reduce(ddp, data, data, 8, DDP_F32, DDP_OP_COUNT);
	case ALL_GATHER:
		return ddp_all_gather(ddp, data, data, SIZE_MAX / 2 + 1);
	case ARENA_DESTROY:
		return ddp_arena_destroy(ddp, data);
	case GRADIENTS_CREATE:
		return ddp_gradients_create(&created, ddp, NULL, parameters, 0);
	case GRADIENTS_FINISH:
		return ddp_gradients_finish_on(gradients, NULL);
	case GRADIENTS_PLACE:
		return ddp_gradients_place(device_gradients, NULL, NULL, NULL);
	case DEVICE_ALL_REDUCE:
		return ddp_device_all_reduce(ddp, device_memory, device_memory, 8, DDP_TYPE_COUNT,
					     DDP_SUM, NULL);
	case DEVICE_BROADCAST:
		return ddp_device_broadcast(ddp, device_memory, 8, -1, NULL);
	case DEVICE_ALL_GATHER:
		return ddp_device_all_gather(ddp, device_memory, device_memory, SIZE_MAX / 2 + 1,
					     NULL);
	case DEVICE_ALLOC:
		return ddp_device_alloc(ddp, 0, &memory);
	default:
		return ddp_broadcast(ddp, data, sizeof(data), 77);
	}
}

/* Makes a call with correct arguments. */
static int make(struct ddp *ddp, enum call call)
{
	static float all[4 * ROWS(data)];
	const struct ddp_tensor tensor = {"weight", DDP_F32, 1, {ROWS(data)}, data};
	struct ddp_evaluation sums = {1, 1, 1, 1};
	struct ddp_gradients *created;
	double count = 2;
	void *memory;
	int status;

	switch (call) {
	case BROADCAST:
		return ddp_broadcast(ddp, data, sizeof(data), 0);
	case ALL_GATHER:
		return ddp_all_gather(ddp, data, all, sizeof(data));
	case ARENA_DESTROY:
		return ddp_arena_destroy(ddp, arena);
	case GRADIENTS_CREATE:
		status = ddp_gradients_create(&created, ddp, NULL, parameters, 2);
		ddp_gradients_destroy(created);
		return status;
	case GRADIENTS_FINISH:
		return ddp_gradients_finish(gradients);
	case GRADIENTS_PLACE:
		return ddp_gradients_place(device_gradients, device_memory, NULL, NULL);
	case DEVICE_ALL_REDUCE:
		return ddp_device_all_reduce(ddp, device_memory, device_memory, 8, DDP_F32, DDP_SUM,
					     NULL);
	case DEVICE_BROADCAST:
		return ddp_device_broadcast(ddp, device_memory, 8, 0, NULL);
	case DEVICE_ALL_GATHER:
		return ddp_device_all_gather(ddp, device_memory, device_memory, 8, NULL);
	case DEVICE_ALLOC:
		return ddp_device_alloc(ddp, 8, &memory);
	case BARRIER:
		return ddp_barrier(ddp);
	case AGREE:
		return ddp_agree(ddp, 0, NULL);
	case ARENA_CREATE:
		return ddp_arena_create(ddp, 8, &memory);
	case SHARED_CREATE:
		return ddp_shared_create(ddp, 8, &memory);
	case MOMENTS:
		return ddp_all_reduce_moments(ddp, &count, data, data + 8, 8);
	case EVALUATION:
		return ddp_evaluation_reduce(ddp, &sums);
	case TENSORS:
		return ddp_tensors_broadcast(ddp, &tensor, 1);
	default:
		return ddp_all_reduce(ddp, data, data, 8, DDP_F32, DDP_SUM);
	}
}

static void prepare(struct ddp *ddp)
{
	struct ddp_gradients_options options = DDP_GRADIENTS_OPTIONS_INIT;

	RANK_OK(ddp, ddp_arena_create(ddp, 64, &arena));
	RANK_OK(ddp, ddp_gradients_create(&gradients, ddp, &options, parameters, 2));
	options.device = true;
	RANK_OK(ddp, ddp_gradients_create(&device_gradients, ddp, &options, parameters, 2));
	RANK_OK(ddp, ddp_device_alloc(ddp, ddp_gradients_bytes(device_gradients) + 1024,
				      &device_memory));
}

/* --- Refusals ----------------------------------------------------------------------------- */

static void expect_sum(struct ddp *ddp)
{
	float one = 1;

	RANK_OK(ddp, ddp_all_reduce(ddp, &one, &one, 1, DDP_F32, DDP_SUM));
	RANK_CHECK(one == (float)ddp_world(ddp)->size);
}

GPUS_BODY(body_all_refuse)
{
	prepare(ddp);
	for (enum call i = 0; i < CALLS; i++) {
		int status = refuse(ddp, i);

		RANK_CHECK(status == DDP_ERR_ARGUMENT || status == DDP_ERR_STATE);
		RANK_CHECK(status == ddp_status(ddp));
		RANK_CHECK(strncmp(ddp_error(ddp), names[i], strlen(names[i])) == 0);
		expect_sum(ddp);
		if (i != ARENA_DESTROY)
			RANK_OK(ddp, make(ddp, i));
		expect_sum(ddp);
	}
	RANK_OK(ddp, ddp_device_wait(ddp, NULL));
	RANK_OK(ddp, ddp_arena_destroy(ddp, arena));
	ddp_gradients_destroy(gradients);
	ddp_gradients_destroy(device_gradients);
}

TEST_ROWS(test_world_continues_if_all_ranks_refuse_a_call, layouts)
{
	gpus_run(&layouts[_i], body_all_refuse);
}

static enum call call;

/*
 * Waits until all ranks have returned from prepare(). A rank that is still in it would get the
 * refusal's error there, from the store.
 */
static void await_all(const struct ddp_world *world)
{
	char path[32];

	snprintf(path, sizeof(path), "prepared-%d", world->rank);
	RANK_CHECK(fclose(fopen(path, "w")) == 0);
	for (int rank = 0; rank < world->size; rank++) {
		snprintf(path, sizeof(path), "prepared-%d", rank);
		while (access(path, F_OK) < 0)
			usleep(1000);
	}
}

/* The last rank refuses the call, and would continue. */
static int body_one_refuses(int rank)
{
	struct ddp *ddp = gpus_join();
	int status;

	prepare(ddp);
	await_all(ddp_world(ddp));
	status = rank == ddp_world(ddp)->size - 1 ? refuse(ddp, call) : make(ddp, call);
	if (status == 0)
		status = ddp_device_wait(ddp, NULL);
	/* A rank that only sends in the call detects the refusal later, at the latest in a barrier. */
	if (status == 0)
		status = ddp_barrier(ddp);
	if (status != DDP_ERR_MISMATCH)
		fprintf(stderr, "status %d: %s\n", status, ddp_error(ddp));
	RANK_CHECK(status == DDP_ERR_MISMATCH);
	RANK_CHECK(ddp_barrier(ddp) == DDP_ERR_MISMATCH);
	ddp_exit(ddp);
	return 97;
}

/* A layout with groups, TCP and staged sums, and one with TCP and NCCL only. */
TEST_LOOP(test_refusal_by_one_rank_is_a_mismatch, 0, 2 * CALLS)
{
	static struct ranks ranks;

	call = (enum call)(_i % CALLS);
	gpus_start(&ranks, &layouts[_i < CALLS ? 2 : 5], body_one_refuses);
	ranks_wait(&ranks, false);
	for (int rank = 0; rank < ranks.size; rank++) {
		ck_assert_msg(ranks.statuses[rank] == ddp_exit_status(DDP_ERR_MISMATCH),
			      "%s, rank %d ended with %d: %s", names[call], rank,
			      ranks.statuses[rank], ranks.text[rank]);
		unit_pieces("text", ranks.text[rank],
			    (const char *[]){names[call], " (refused", " calls ", " #", NULL});
	}
}

/* --- Failures of one rank ------------------------------------------------------------------ */

static int remaining = -1; /* number of allocations until one fails; -1: none fails */

static bool fails(void)
{
	return remaining >= 0 && remaining-- == 0;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);

void *__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	return fails() ? NULL : __real_calloc(count, size);
}

enum { FAILURES = 6 };

static int failure;

/*
 * In rank 1, allocation number [failure] of the call fails. If all ranks return the same status, the
 * world continues. Otherwise, rank 1 exits with its error.
 */
static int body_no_memory(int rank)
{
	struct ddp *ddp = gpus_join();
	int status;

	prepare(ddp);
	remaining = rank == 1 ? failure : -1;
	status = make(ddp, call);
	remaining = -1;
	if (ddp_is_peer_error(status) || ddp_barrier(ddp) < 0)
		ddp_exit(ddp);
	ranks_equal(ddp, &status, sizeof(status));
	expect_sum(ddp);
	return 0;
}

TEST_LOOP(test_rank_without_memory_ends_the_world_or_no_rank_fails, 0, CALLS *FAILURES)
{
	static struct ranks ranks;
	bool ended;

	call = (enum call)(_i / FAILURES);
	failure = _i % FAILURES;
	gpus_start(&ranks, &layouts[(_i / FAILURES + failure) % 3], body_no_memory);
	ranks_wait(&ranks, false);
	ended = ranks.statuses[1] != 0;
	for (int rank = 0; rank < ranks.size; rank++) {
		int want = rank == 1 ? DDP_ERR_MEMORY : DDP_ERR_ABORTED;

		ck_assert_msg(ranks.statuses[rank] == (ended ? ddp_exit_status(want) : 0),
			      "call %d, failure %d, layout %s, rank %d ended with %d: %s", call,
			      failure, ranks.layout, rank, ranks.statuses[rank], ranks.text[rank]);
		ck_assert_msg(!ended || rank == 1 || strstr(ranks.text[rank], "rank 1 on "), "%s",
			      ranks.text[rank]);
	}
}

static int body_nan_count(int rank)
{
	struct ddp *ddp = ranks_join();
	double count = rank == 1 ? NAN : 2;
	int status = ddp_all_reduce_moments(ddp, &count, data, data + 8, 8);

	RANK_CHECK(status == (rank == 1 ? DDP_ERR_ARGUMENT : DDP_ERR_ABORTED));
	RANK_CHECK(ddp_barrier(ddp) == status);
	ddp_exit(ddp);
	return 97;
}

TEST_ROWS(test_nan_count_ends_the_world, layouts)
{
	static struct ranks ranks;

	ranks_start(&ranks, layouts[_i].nodes, body_nan_count);
	ranks_wait(&ranks, false);
	for (int rank = 0; rank < ranks.size; rank++) {
		/* A rank may still be in ddp_init() when rank 1 ends the world. */
		ck_assert_msg(ranks.statuses[rank] == ddp_exit_status(rank == 1 ? DDP_ERR_ARGUMENT
										: DDP_ERR_ABORTED),
			      "rank %d ended with %d: %s", rank, ranks.statuses[rank],
			      ranks.text[rank]);
		unit_has("text", ranks.text[rank],
			 rank == 1 ? "moments: the count is nan"
				   : "rank 1 on |moments: the count is nan");
	}
}

/* --- The first error ------------------------------------------------------------------------ */

/* Rank 1 dies. The other ranks then call with wrong arguments, and exit. */
static int body_first_error(int rank)
{
	struct ddp *ddp = ranks_join();
	struct ddp_error first;
	double count = NAN;
	int status;

	if (rank == 1)
		raise(SIGKILL);
	while ((status = ddp_barrier(ddp)) == 0)
		;
	RANK_CHECK(status == DDP_ERR_PEER || status == DDP_ERR_ABORTED);
	snprintf(first.text, sizeof(first.text), "%s", ddp_error(ddp));
	for (enum call i = ALL_REDUCE; i < REFUSABLE; i++)
		if (i < GRADIENTS_FINISH || i >= DEVICE_ALL_REDUCE)
			RANK_CHECK(refuse(ddp, i) == status);
	RANK_CHECK(ddp_device_wait(ddp, NULL) == status);
	RANK_CHECK(ddp_all_reduce_moments(ddp, &count, data, data, 8) == status);
	RANK_CHECK(ddp_agree(ddp, DDP_ERR_FILE, "a file") == status);
	RANK_CHECK(ddp_status(ddp) == status && strcmp(ddp_error(ddp), first.text) == 0);
	ddp_exit(ddp);
	return 97;
}

TEST_ROWS(test_first_error_that_ended_the_world_stays, layouts)
{
	static struct ranks ranks;

	ranks_start(&ranks, layouts[_i].nodes, body_first_error);
	ranks_wait(&ranks, false);
	for (int rank = 0; rank < ranks.size; rank++)
		ck_assert_msg(ranks.statuses[rank] ==
				      (rank == 1 ? -SIGKILL
				       : ranks.statuses[rank] == ddp_exit_status(DDP_ERR_ABORTED)
					       ? ddp_exit_status(DDP_ERR_ABORTED)
					       : ddp_exit_status(DDP_ERR_PEER)),
			      "rank %d ended with %d: %s", rank, ranks.statuses[rank],
			      ranks.text[rank]);
}

UNIT_MAIN("refusal", gpus_use)
