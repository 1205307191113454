/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA engine on ranks that share an emulated GPU, against ranks with one each (test_cuda_ranks): the same
 * bits, the same from run to run, and after a resume; within its share; and when a rank is lost.
 */
#include "config.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>

#include "duo.h"
#include "networks.h"
#include "ranks.h"

static int row;

/* Sums of emulated ranks have one order wherever these sit: so all bits are those of ranks with a GPU each. */
static const struct {
	const char *name;
	const struct net *net;
	bool sync_norm;
	enum ddp_type wire, type;
	bool tf32;
} rows[] = {
	{"like mnist", &like_mnist, false, DDP_F32, DDP_F32, false},
	{"like mnist, tf32", &like_mnist, false, DDP_F32, DDP_F32, true},
	{"like mnist, bf16", &like_mnist, false, DDP_F32, DDP_BF16, false},
	{"like mnist, fp16", &like_mnist, false, DDP_F32, DDP_F16, false},
	{"like mnist, bf16 on the wire", &like_mnist, false, DDP_BF16, DDP_F32, false},
	{"residual", &residual, false, DDP_F32, DDP_F32, false},
	{"residual, synchronised", &residual, true, DDP_F32, DDP_F32, false},
	{"tangled, synchronised, bf16", &tangled, true, DDP_F32, DDP_BF16, false},
};

enum { SHARED_STEPS = 11, RESUMED = 5 }; /* some more than are under way at once */

/* A world of the test, whose rank is on [gpu]; there may be several, each of another [name]. */
static void open_world(struct duo *duo, const char *name, char gpu)
{
	setenv("TORCHELASTIC_RUN_ID", name, 1);
	duo_seat(HOST_MODULES, gpu);
	duo_open(duo, rows[row].net, rows[row].wire);
	duo->setup.sync_norm = rows[row].sync_norm;
	duo->setup.type = rows[row].type;
	duo->setup.tf32 = rows[row].tf32;
	if (duo->setup.type == DDP_F16)
		duo->setup.scaler = &duo->scaler;
}

/* What [count] steps more make of duo->model, with streams that are late by [seed]. */
static struct engine_step train(struct duo *duo, int seed, int count)
{
	struct engine_step told;

	ranks_number("DDP_SEED", seed);
	duo_engine(duo);
	told = duo_steps(duo, true, count, 0.01);
	duo_pull(duo);
	return told;
}

static void start_again(struct duo *duo)
{
	engine_cuda.close(duo->engine);
	duo->engine = NULL;
	duo->steps[1] = 0;
	duo->scaler = (struct ddp_scaler)DDP_SCALER_INIT;
	duo_copy(duo->model, duo->shop.model);
}

static void check_same(const struct duo *duo, const struct model *want,
		       const struct engine_step *wanted, const struct engine_step *got,
		       const char *what)
{
	const struct model *model = duo->model;
	double apart = duo_apart(want, model);

	if (apart != 0)
		fprintf(stderr, "%s, %s: %.3g apart\n", rows[row].name, what, apart);
	RANK_CHECK(apart == 0);
	RANK_CHECK(memcmp(model->values, want->values, model->count * sizeof(float)) == 0);
	RANK_CHECK(got->steps == wanted->steps && got->samples == wanted->samples);
	RANK_CHECK(got->hits == wanted->hits && got->loss == wanted->loss);
}

static int share_gpu(int rank)
{
	struct engine_step wanted, got, more;
	struct duo apart, duo;

	open_world(&apart, "apart", (char)('a' + rank));
	wanted = train(&apart, rank, SHARED_STEPS);
	RANK_CHECK(cuda_nodes(apart.engine) > 0 && wanted.skipped == 0);
	open_world(&duo, "shared", 'a');
	for (int turn = 1; turn < 3; turn++) {
		got = train(&duo, 1000 * turn + rank, SHARED_STEPS);
		RANK_CHECK(ddp_device_captures(apart.shop.ddp) &&
			   !ddp_device_captures(duo.shop.ddp));
		check_same(&duo, apart.model, &wanted, &got, "on one GPU");
		RANK_CHECK((cuda_nodes(duo.engine) > 0) != rows[row].sync_norm);
		start_again(&duo);
	}
	got = train(&duo, 5 + rank, RESUMED);
	engine_cuda.close(duo.engine);
	more = train(&duo, 6 + rank, SHARED_STEPS - RESUMED);
	duo_add(&got, &more);
	/* Losses of two parts are added in another order. */
	RANK_CHECK(fabs(got.loss - wanted.loss) < 1e-12 * wanted.loss);
	got.loss = wanted.loss;
	check_same(&duo, apart.model, &wanted, &got, "resumed");
	duo_close(&duo);
	duo_close(&apart);
	return 0;
}

TEST_ROWS(test_one_gpu, rows)
{
	row = _i;
	ranks_run("4", share_gpu);
}

/* Those that differ in how their sums are enqueued. */
static const struct {
	const char *name, *size;
} sizes[] = {
	{"like mnist", "2"},
	{"like mnist", "8"},
	{"residual, synchronised", "2"},
	{"residual, synchronised", "8"},
};

TEST_ROWS(test_one_gpu_sizes, sizes)
{
	for (row = 0; strcmp(rows[row].name, sizes[_i].name) != 0;)
		row++;
	ranks_run(sizes[_i].size, share_gpu);
}

/* Steps that no graph has are told at once: nobody is ahead of sums that may never come. */
static int keeps_up(int rank)
{
	struct engine_step done;
	struct duo duo;

	row = 6;
	RANK_CHECK(strcmp(rows[row].name, "residual, synchronised") == 0);
	(void)rank;
	open_world(&duo, "shared", 'a');
	duo_engine(&duo);
	for (int i = 0; i < SHARED_STEPS; i++) {
		done = duo_step(&duo, true, 0.01, i == 3);
		RANK_CHECK(done.steps == 1 && done.stop == (i == 3));
	}
	duo_close(&duo);
	return 0;
}

TEST(test_keeps_up)
{
	ranks_run("2", keeps_up);
}

static void set_memory(size_t bytes)
{
	char text[24];

	snprintf(text, sizeof(text), "%zu", bytes);
	setenv("DDP_EMULATED_MEMORY", text, 1);
}

/* All that a rank takes is within its share, CUDA's own part too; a byte less is too little. */
static int keeps_share(int rank)
{
	struct ddp_error error;
	struct duo duo;
	size_t used;

	(void)rank;
	row = 6;
	setenv("DDP_EMULATED_CONTEXT", "1000000", 1);
	open_world(&duo, "shared", 'a');
	duo.setup.share = 0.25;
	duo_engine(&duo);
	duo_steps(&duo, true, 3, 0.01);
	used = engine_cuda.memory(duo.engine);
	RANK_CHECK(used > 1000000);
	engine_cuda.close(duo.engine);
	set_memory(4 * used);
	duo_engine(&duo);
	RANK_CHECK(engine_cuda.memory(duo.engine) == used);
	engine_cuda.close(duo.engine);
	set_memory(4 * used - 4);
	duo.engine = NULL;
	RANK_CHECK(engine_cuda.open(&duo.engine, &duo.setup, &error) == DDP_ERR_MEMORY);
	fprintf(stderr, "%s\n", error.text);
	RANK_CHECK(strstr(error.text, "(1000000 bytes of it for CUDA)"));
	RANK_CHECK(strstr(error.text, " 1 bytes too little") &&
		   strstr(error.text, "lower --batch"));
	model_destroy(duo.model);
	workshop_close(&duo.shop);
	return 0;
}

TEST(test_share)
{
	ranks_run("2", keeps_share);
}

/* --- Several GPUs ------------------------------------------------------------------------------ */

/* GPUs of the ranks, by letter: those of one letter share it. Their sums have another order than apart. */
static const struct {
	const char *name, *row, *gpus;
} composed[] = {
	{"four on two", "like mnist", "abab"},
	{"three and one, synchronised", "residual, synchronised", "aaba"},
};

static int layout;

static int composes(int rank)
{
	struct engine_step wanted, got;
	struct duo apart, duo;

	for (row = 0; strcmp(rows[row].name, composed[layout].row) != 0;)
		row++;
	open_world(&apart, "apart", (char)('a' + rank));
	wanted = train(&apart, rank, SHARED_STEPS);
	open_world(&duo, "shared", composed[layout].gpus[rank]);
	got = train(&duo, 77 + rank, SHARED_STEPS);
	RANK_CHECK(!ddp_device_captures(duo.shop.ddp));
	RANK_CHECK(got.samples == wanted.samples && duo_apart(apart.model, duo.model) < 1e-4);
	ranks_equal(duo.shop.ddp, duo.model->values, duo.model->count * sizeof(float));
	duo_close(&duo);
	duo_close(&apart);
	return 0;
}

TEST_ROWS(test_composed, composed)
{
	char size[24];

	layout = _i;
	snprintf(size, sizeof(size), "%zu", strlen(composed[_i].gpus));
	ranks_run(size, composes);
}

/* --- What is left of a rank's troubles --------------------------------------------------------- */

/* Which rank dies, the first one of a GPU or another; and the GPUs. */
static int victim;
static const char *gpus;

/*
 * The others fail while steps are under way, name it, and give everything back. No step is told that the lost
 * rank had no part in: a sum that is given up lets its stream go on, with numbers that mean nothing.
 */
static int loses_one(int rank)
{
	struct engine_step done, told = {0};
	struct ddp_error error = {0, ""};
	struct duo duo;
	int status = 0;

	row = 0;
	open_world(&duo, "shared", gpus[rank]);
	duo_engine(&duo);
	for (int i = 0; status == 0; i++) {
		struct batch batch = duo_batch(&duo, (uint64_t)i);

		if (rank == victim && i == SHARED_STEPS)
			raise(SIGKILL);
		status = engine_cuda.step(duo.engine, &batch, 8, (uint64_t)i + 1, 0.01, false,
					  &done, &error);
		if (status == 0)
			duo_add(&told, &done);
	}
	RANK_CHECK(ddp_is_peer_error(status) && told.steps <= SHARED_STEPS);
	fprintf(stderr, "%s\n", error.text);
	/* Whether it is asked again, or closed at once. */
	if (victim == 0)
		RANK_CHECK(engine_cuda.pull(duo.engine, &error) < 0);
	engine_cuda.close(duo.engine);
	_exit(7);
}

TEST_LOOP(test_lost, 0, 4)
{
	static struct ranks ranks;
	char name[16];

	victim = _i % 2;
	gpus = _i < 2 ? "aaaa" : "abcd";
	snprintf(name, sizeof(name), "rank %d", victim);
	setenv("DDP_TIMEOUT", "10", 1);
	ranks_start(&ranks, "4", loses_one);
	ranks_wait(&ranks, false);
	unsetenv("DDP_TIMEOUT");
	for (int rank = 0; rank < ranks.size; rank++) {
		const char *text = ranks.text[rank];

		if (rank == victim)
			continue;
		ck_assert_msg(ranks.statuses[rank] == 7, "rank %d ended with %d:\n%s", rank,
			      ranks.statuses[rank], text);
		/* Where NCCL is quicker than libddp it tells that one is lost, not which. */
		ck_assert_msg(strstr(text, name) ||
				      (_i >= 2 && strstr(text, "remote process exited")),
			      "rank %d says:\n%s", rank, text);
		ck_assert_msg(strstr(text, "of the sums of gradients"), "rank %d says:\n%s", rank,
			      text);
		ck_assert_msg(!strstr(text, "left behind"), "rank %d says:\n%s", rank, text);
	}
	ck_assert_int_eq(ranks.statuses[victim], -SIGKILL);
}

UNIT_MAIN("cuda shared", NULL)
