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

static int all_reduce(struct ddp *ddp, bool refused)
{
	return ddp_all_reduce(ddp, data, data, 8, refused ? DDP_TYPE_COUNT : DDP_F32, DDP_SUM);
}

static int all_reduce_operation(struct ddp *ddp, bool refused)
{
	return ddp_all_reduce(ddp, data, data, 8, DDP_F32, refused ? DDP_OP_COUNT : DDP_SUM);
}

static int broadcast(struct ddp *ddp, bool refused)
{
	return ddp_broadcast(ddp, data, sizeof(data), refused ? 77 : 0);
}

static int all_gather(struct ddp *ddp, bool refused)
{
	static float all[4 * ROWS(data)];

	return ddp_all_gather(ddp, data, all, refused ? SIZE_MAX / 2 + 1 : sizeof(data));
}

static int arena_destroy(struct ddp *ddp, bool refused)
{
	return ddp_arena_destroy(ddp, refused ? data : arena);
}

static int gradients_create(struct ddp *ddp, bool refused)
{
	struct ddp_gradients *created;
	int status = ddp_gradients_create(&created, ddp, NULL, parameters,
					  refused ? 0 : (size_t)ROWS(parameters));

	ddp_gradients_destroy(created);
	return status;
}

static int gradients_finish(struct ddp *ddp, bool refused)
{
	(void)ddp;
	return refused ? ddp_gradients_finish_on(gradients, NULL) : ddp_gradients_finish(gradients);
}

static int gradients_place(struct ddp *ddp, bool refused)
{
	(void)ddp;
	return ddp_gradients_place(device_gradients, refused ? NULL : device_memory, NULL, NULL);
}

static int device_all_reduce(struct ddp *ddp, bool refused)
{
	return ddp_device_all_reduce(ddp, device_memory, device_memory, 8,
				     refused ? DDP_TYPE_COUNT : DDP_F32, DDP_SUM, NULL);
}

static int device_broadcast(struct ddp *ddp, bool refused)
{
	return ddp_device_broadcast(ddp, device_memory, 8, refused ? -1 : 0, NULL);
}

static int device_all_gather(struct ddp *ddp, bool refused)
{
	return ddp_device_all_gather(ddp, device_memory, device_memory,
				     refused ? SIZE_MAX / 2 + 1 : 8, NULL);
}

static int device_alloc(struct ddp *ddp, bool refused)
{
	void *memory;

	return ddp_device_alloc(ddp, refused ? 0 : 8, &memory);
}

static int barrier(struct ddp *ddp, bool refused)
{
	return refused ? broadcast(ddp, true) : ddp_barrier(ddp);
}

static int agree(struct ddp *ddp, bool refused)
{
	return refused ? broadcast(ddp, true) : ddp_agree(ddp, 0, NULL);
}

static int arena_create(struct ddp *ddp, bool refused)
{
	void *memory;

	return refused ? broadcast(ddp, true) : ddp_arena_create(ddp, 8, &memory);
}

static int shared_create(struct ddp *ddp, bool refused)
{
	void *memory;

	return refused ? broadcast(ddp, true) : ddp_shared_create(ddp, 8, &memory);
}

static int moments(struct ddp *ddp, bool refused)
{
	double count = 2;

	return refused ? broadcast(ddp, true)
		       : ddp_all_reduce_moments(ddp, &count, data, data + 8, 8);
}

static int evaluation(struct ddp *ddp, bool refused)
{
	struct ddp_evaluation sums = {1, 1, 1, 1};

	return refused ? broadcast(ddp, true) : ddp_evaluation_reduce(ddp, &sums);
}

static int tensors(struct ddp *ddp, bool refused)
{
	const struct ddp_tensor tensor = {"weight", DDP_F32, 1, {ROWS(data)}, data};

	return refused ? broadcast(ddp, true) : ddp_tensors_broadcast(ddp, &tensor, 1);
}

/* In the first rows, a rank refuses the call; in the others, it refuses a broadcast instead. */
static const struct call {
	const char *refused; /* name in messages */
	int (*make)(struct ddp *ddp, bool refused);
} calls[] = {
	{"ddp_all_reduce", all_reduce},
	{"ddp_all_reduce", all_reduce_operation},
	{"ddp_broadcast", broadcast},
	{"ddp_all_gather", all_gather},
	{"ddp_arena_destroy", arena_destroy},
	{"ddp_gradients_create", gradients_create},
	{"ddp_gradients_finish", gradients_finish},
	{"ddp_gradients_place", gradients_place},
	{"ddp_device_all_reduce", device_all_reduce},
	{"ddp_device_broadcast", device_broadcast},
	{"ddp_device_all_gather", device_all_gather},
	{"ddp_device_alloc", device_alloc},
	{"ddp_broadcast", barrier},
	{"ddp_broadcast", agree},
	{"ddp_broadcast", arena_create},
	{"ddp_broadcast", shared_create},
	{"ddp_broadcast", moments},
	{"ddp_broadcast", evaluation},
	{"ddp_broadcast", tensors},
};

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
	for (int i = 0; i < ROWS(calls); i++) {
		int status = calls[i].make(ddp, true);

		RANK_CHECK(status == DDP_ERR_ARGUMENT || status == DDP_ERR_STATE);
		RANK_CHECK(status == ddp_status(ddp));
		RANK_CHECK(strncmp(ddp_error(ddp), calls[i].refused, strlen(calls[i].refused)) ==
			   0);
		expect_sum(ddp);
		if (calls[i].make != arena_destroy)
			RANK_OK(ddp, calls[i].make(ddp, false));
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

static const struct call *call;

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
	status = call->make(ddp, rank == ddp_world(ddp)->size - 1);
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

TEST_LOOP(test_refusal_by_one_rank_is_a_mismatch, 0, ROWS(layouts) * ROWS(calls))
{
	static struct ranks ranks;

	call = &calls[_i % ROWS(calls)];
	gpus_start(&ranks, &layouts[_i / ROWS(calls)], body_one_refuses);
	ranks_wait(&ranks, false);
	for (int rank = 0; rank < ranks.size; rank++) {
		ck_assert_msg(ranks.statuses[rank] == ddp_exit_status(DDP_ERR_MISMATCH),
			      "%s, rank %d ended with %d: %s", call->refused, rank,
			      ranks.statuses[rank], ranks.text[rank]);
		unit_pieces("text", ranks.text[rank],
			    (const char *[]){call->refused, " (refused", " calls ", " #", NULL});
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
	status = call->make(ddp, false);
	remaining = -1;
	if (ddp_is_peer_error(status) || ddp_barrier(ddp) < 0)
		ddp_exit(ddp);
	ranks_equal(ddp, &status, sizeof(status));
	expect_sum(ddp);
	return 0;
}

TEST_LOOP(test_rank_without_memory_ends_the_world_or_no_rank_fails, 0, ROWS(calls) * FAILURES)
{
	static struct ranks ranks;
	static const struct gpus_layout *const layout_of[] = {&layouts[0], &layouts[1],
							      &layouts[2]};

	call = &calls[_i / FAILURES];
	failure = _i % FAILURES;
	for (int i = 0; i < ROWS(layout_of); i++) {
		gpus_start(&ranks, layout_of[i], body_no_memory);
		ranks_wait(&ranks, false);
		for (int rank = 0; rank < ranks.size && ranks.statuses[1] != 0; rank++) {
			ck_assert_msg(ranks.statuses[rank] ==
					      ddp_exit_status(rank == 1 ? DDP_ERR_MEMORY
									: DDP_ERR_ABORTED),
				      "call %d, failure %d, layout %s, rank %d ended with %d: %s",
				      _i / FAILURES, failure, ranks.layout, rank,
				      ranks.statuses[rank], ranks.text[rank]);
			ck_assert_msg(rank == 1 || strstr(ranks.text[rank], "rank 1 on "), "%s",
				      ranks.text[rank]);
		}
		for (int rank = 0; rank < ranks.size && ranks.statuses[1] == 0; rank++)
			ck_assert_msg(ranks.statuses[rank] == 0,
				      "call %d, failure %d, layout %s, rank %d ended with %d: %s",
				      _i / FAILURES, failure, ranks.layout, rank,
				      ranks.statuses[rank], ranks.text[rank]);
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
			 rank == 1 ? "moments: a count of nan"
				   : "rank 1 on |moments: a count of nan");
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
	RANK_CHECK(all_reduce(ddp, true) == status);
	RANK_CHECK(broadcast(ddp, true) == status);
	RANK_CHECK(arena_destroy(ddp, true) == status);
	RANK_CHECK(gradients_create(ddp, true) == status);
	RANK_CHECK(device_all_reduce(ddp, true) == status);
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
