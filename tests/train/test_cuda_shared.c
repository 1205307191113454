/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_shared.c - the CUDA engine on ranks that share an emulated GPU, compared with ranks
 * that each have a GPU
 *
 * The bits must be the same, in every run and after a resume. Memory must stay within the rank's
 * share. A lost rank must be reported.
 */
#include "config.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>

#include "cuda/device.h"
#include "duo.h"
#include "networks.h"
#include "ranks.h"

static int row;

/*
 * The gradients of fc3 and fc2 exceed 1 MiB, so they fill the first bucket. The gradients of fc1
 * are in the next bucket.
 */
static const struct net_layer wide_layers[] = {
	{.kind = NET_CONV, .name = "conv0", .outputs = 8, .size = 4, .stride = 4},
	{.kind = NET_DENSE, .name = "fc1", .outputs = 200, .bias = true},
	{.kind = NET_RELU},
	{.kind = NET_DENSE, .name = "fc2", .outputs = 1320, .bias = true},
	{.kind = NET_RELU},
	{.kind = NET_DENSE, .name = "fc3", .outputs = 10, .bias = true},
};
NETWORK(wide, wide_layers);

/*
 * Sums over emulated ranks have the same order on any GPUs. So the bits are the same as with a GPU
 * for each rank.
 */
static const struct {
	const char *name;
	const struct net *net;
	bool sync_norm;
	enum ddp_type wire, type;
} rows[] = {
	{"like mnist, fp16", &like_mnist, false, DDP_F32, DDP_F16},
	{"like mnist, bf16 on the wire", &like_mnist, false, DDP_BF16, DDP_F32},
	{"tangled, synchronised, bf16", &tangled, true, DDP_F32, DDP_BF16},
	{"two buckets", &wide, false, DDP_F32, DDP_F32},
	{"like mnist", &like_mnist, false, DDP_F32, DDP_F32},
	{"residual", &residual, false, DDP_F32, DDP_F32},
	{"residual, synchronised", &residual, true, DDP_F32, DDP_F32},
};

enum { SHARED_STEPS = 9, RESUMED = 4 }; /* more steps than can be in progress at once */

static int find_row(const char *name)
{
	for (int i = 0; i < ROWS(rows); i++)
		if (strcmp(rows[i].name, name) == 0)
			return i;
	ck_abort_msg("no row \"%s\"", name);
}

/* Opens a world with this rank on [gpu]. Worlds of the same ranks need different names. */
static void open_world(struct duo *duo, const char *name, char gpu)
{
	setenv("TORCHELASTIC_RUN_ID", name, 1);
	duo_seat(HOST_MODULES, gpu);
	duo_open(duo, rows[row].net, rows[row].wire);
	duo->setup.sync_norm = rows[row].sync_norm;
	duo->setup.type = rows[row].type;
	if (duo->setup.type == DDP_F16)
		duo->setup.scaler = &duo->scaler;
}

/* Runs [count] steps of duo->model. [seed] selects the random delays of the streams. */
static struct engine_step train(struct duo *duo, int seed, int count)
{
	struct engine_step report;

	ranks_number("DDP_SEED", seed);
	duo_engine(duo);
	report = duo_steps(duo, true, count, 1e-3);
	duo_pull(duo);
	return report;
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
	RANK_CHECK(queues_nodes > 0 && wanted.skipped == 0);
	RANK_CHECK(ddp_gradients_buckets(apart.model->gradients) == (rows[row].net == &wide) + 1);
	queues_nodes = 0;
	open_world(&duo, "shared", 'a');
	got = train(&duo, 1000 + rank, SHARED_STEPS);
	RANK_CHECK(ddp_device_captures(apart.shop.ddp) && !ddp_device_captures(duo.shop.ddp));
	check_same(&duo, apart.model, &wanted, &got, "on one GPU");
	RANK_CHECK(queues_nodes == 0);
	start_again(&duo);
	got = train(&duo, 5 + rank, RESUMED);
	engine_cuda.close(duo.engine);
	more = train(&duo, 6 + rank, SHARED_STEPS - RESUMED);
	duo_add(&got, &more);
	/* the losses of two parts of a batch are added in another order */
	RANK_CHECK(fabs(got.loss - wanted.loss) < 1e-12 * wanted.loss);
	got.loss = wanted.loss;
	check_same(&duo, apart.model, &wanted, &got, "resumed");
	duo_close(&duo);
	duo_close(&apart);
	return 0;
}

TEST_LOOP(test_one_gpu, 0, unit_rows(4, ROWS(rows)))
{
	row = _i;
	ranks_run("4", share_gpu);
}

/* Numbers of ranks for which the sums are enqueued differently. */
static const struct {
	const char *name, *size;
} sizes[] = {
	{"residual, synchronised", "8"},
	{"like mnist", "2"},
};

TEST_LOOP(test_one_gpu_sizes, 0, unit_rows(1, ROWS(sizes)))
{
	row = find_row(sizes[_i].name);
	ranks_run(sizes[_i].size, share_gpu);
}

/* Without a graph, a step is reported at once. So no rank runs ahead of sums that may never end. */
static int keeps_up(int rank)
{
	struct engine_step done;
	struct duo duo;

	row = find_row("residual, synchronised");
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

/*
 * All memory of a rank, including CUDA's, exactly fits in the rank's share. A share that is one
 * byte smaller is too small.
 */
static int keeps_share(int rank)
{
	struct ddp_error error;
	struct duo duo;
	size_t used;

	(void)rank;
	row = find_row("residual, synchronised");
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
	RANK_CHECK(strstr(error.text, "so 1 bytes are missing") &&
		   strstr(error.text, "Lower --batch."));
	model_destroy(duo.model);
	workshop_close(&duo.shop);
	return 0;
}

TEST(test_share)
{
	ranks_run("2", keeps_share);
}

/* --- Sums after a graph ------------------------------------------------------------------------ */

/*
 * A graph that contains ddp_gradients_ready_on() for all gradients copies them to the host;
 * ddp_gradients_finish_on() after each launch sums them (ddp.h). ddp-train does not use this.
 */
static int sums_after_graph(int rank)
{
	static float values[1 << 20];
	struct device_graph *graph = NULL;
	struct ddp_gradients *gradients;
	struct device *device;
	struct ddp_error error;
	float *memory;
	struct duo duo;
	struct ddp *ddp;
	void *stream;
	size_t count;

	row = find_row("two buckets");
	open_world(&duo, "graph", 'a');
	ddp = duo.shop.ddp;
	gradients = duo.model->gradients;
	RANK_OK(ddp, ddp_device_join(ddp));
	RANK_OK(ddp, ddp_device_alloc(ddp, ddp_gradients_bytes(gradients), (void **)&memory));
	RANK_CHECK(device_open(&device, 0, 0.5, &error) == 0);
	RANK_OK(ddp,
		ddp_gradients_place(gradients, memory, device_stream(device, DEVICE_REDUCE), NULL));
	stream = device_stream(device, DEVICE_COMPUTE);
	(void)ddp_gradients_all(gradients, &count);
	RANK_CHECK(count < ROWS(values) && device_capture_begin(device, &error) == 0);
	for (size_t i = 0; i <= duo.shop.graph->parameter_count; i++)
		RANK_OK(ddp, ddp_gradients_ready_on(gradients, i, stream));
	RANK_CHECK(device_capture_end(device, &graph, &error) == 0);
	for (int step = 0; step < 3; step++) {
		for (size_t i = 0; i < count; i++)
			values[i] = (float)(rank + step);
		RANK_CHECK(device_copy(device, DEVICE_COMPUTE, memory, values,
				       count * sizeof(*values), &error) == 0);
		RANK_CHECK(device_launch(device, graph, &error) == 0);
		RANK_OK(ddp, ddp_gradients_finish_on(gradients, stream));
		RANK_OK(ddp, ddp_device_wait(ddp, stream));
		RANK_CHECK(memory[0] == (float)(1 + 2 * step) && memory[count - 1] == memory[0]);
	}
	device_graph_destroy(graph);
	RANK_OK(ddp, ddp_device_free(ddp, memory));
	duo_close(&duo);
	device_close(device);
	return 0;
}

TEST(test_sums_after_graph)
{
	ranks_run("2", sums_after_graph);
}

/* --- Several GPUs ------------------------------------------------------------------------------ */

/*
 * GPUs of the ranks, as letters. Ranks with the same letter share a GPU. The order of sums is not
 * the same as with a GPU for each rank.
 */
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

	row = find_row(composed[layout].row);
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

/* --- Lost ranks -------------------------------------------------------------------------------- */

/* The rank that is killed, which may be the first or another one of its GPU. */
static int victim;
static const char *gpus;

/*
 * The other ranks fail while steps are in progress, name the lost rank, and free everything. They
 * must not report a step without the lost rank's part, even though a stream continues with wrong
 * values after its sum was aborted.
 */
static int loses_one(int rank)
{
	struct engine_step done, report = {0};
	struct ddp_error error = {0, ""};
	struct duo duo;
	int status = 0;

	row = find_row("like mnist");
	open_world(&duo, "shared", gpus[rank]);
	duo_engine(&duo);
	for (int i = 0; status == 0; i++) {
		struct batch batch = duo_batch(&duo, (uint64_t)i);

		if (rank == victim && i == SHARED_STEPS)
			raise(SIGKILL);
		status = engine_cuda.step(duo.engine, &batch, 8, (uint64_t)i + 1, 0.01, false,
					  &done, &error);
		if (status == 0)
			duo_add(&report, &done);
	}
	RANK_CHECK(ddp_is_peer_error(status) && report.steps <= SHARED_STEPS);
	fprintf(stderr, "%s\n", error.text);
	/* Rank 0's loss: call the engine again. Otherwise: close it at once. */
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
	setenv("DDP_TIMEOUT", "60", 1);
	ranks_start(&ranks, "4", loses_one);
	ranks_wait(&ranks, false);
	unsetenv("DDP_TIMEOUT");
	for (int rank = 0; rank < ranks.size; rank++) {
		const char *text = ranks.text[rank];

		if (rank == victim)
			continue;
		ck_assert_msg(ranks.statuses[rank] == 7, "rank %d ended with %d:\n%s", rank,
			      ranks.statuses[rank], text);
		/*
		 * If NCCL detects the loss before libddp does, the message does not name the rank.
		 */
		ck_assert_msg(strstr(text, name) ||
				      (_i >= 2 && strstr(text, "remote process exited")),
			      "rank %d says:\n%s", rank, text);
		ck_assert_msg(strstr(text, "sums of gradients have ended"), "rank %d says:\n%s",
			      rank, text);
		ck_assert_msg(!strstr(text, "unfinished work"), "rank %d says:\n%s", rank, text);
	}
	ck_assert_int_eq(ranks.statuses[victim], -SIGKILL);
}

UNIT_MAIN("cuda shared", NULL)
