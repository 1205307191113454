/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_engine.c - steps of the CPU engine with the plain loops
 *
 * The tests compare losses and gradients for different numbers of ranks, batches and algorithms.
 * test_cuda compares them with the CUDA engine's, and tests/interop with PyTorch's in double
 * precision.
 */
#include "config.h"

#include <sched.h>

#include "networks.h"
#include "ranks.h"
#include "workshop.h"

static const struct {
	const char *name;
	const struct net *net;
} nets[] = {
	{"like mnist", &like_mnist},
	{"odd", &odd},
	{"residual", &residual},
	{"tangled", &tangled},
};

/* --- Equal gradients from other computations ---------------------------------------------- */

/* Returns the gradients of a step, in memory that the caller frees. */
static float *slopes_of(struct workshop *shop, size_t from, size_t count, size_t global)
{
	size_t bytes = shop->model->count * sizeof(float);
	float *copy = malloc(bytes);

	ck_assert_ptr_nonnull(copy);
	workshop_step(shop, from, count, global, 0);
	return memcpy(copy, shop->model->grads, bytes);
}

static float *slopes_with(const struct net *net, enum ddp_type type, bool exact)
{
	struct workshop shop;
	float *slopes;

	workshop_open(&shop, net);
	shop.setup.type = type;
	shop.setup.exact = exact;
	workshop_engine(&shop, &math_plain);
	slopes = slopes_of(&shop, 0, WORKSHOP_BATCH, WORKSHOP_BATCH);
	workshop_close(&shop);
	return slopes;
}

static size_t count_of(const struct net *net)
{
	struct workshop shop;
	size_t count;

	workshop_open(&shop, net);
	count = shop.model->count;
	workshop_close(&shop);
	return count;
}

/*
 * bfloat16 has 8 bits of precision. The last layer's gradient differs from f32's by rounding only.
 * In earlier layers some ReLUs and maxima are decided differently, but the gradient still has about
 * the same direction.
 */
TEST_ROWS(test_bf16, nets)
{
	size_t count = count_of(nets[_i].net), last;
	float *want = slopes_with(nets[_i].net, DDP_F32, false);
	float *got = slopes_with(nets[_i].net, DDP_BF16, false);
	struct workshop shop;
	double apart = workshop_distance(want, got, count);

	ck_assert_msg(apart > 0 && apart < 0.25, "%s: bf16 is %.3g away", nets[_i].name, apart);
	workshop_open(&shop, nets[_i].net);
	last = shop.model->offsets[shop.graph->nodes[shop.graph->node_count - 1].weight];
	apart = workshop_distance(want + last, got + last, 10);
	ck_assert_msg(apart < 0.02, "%s: bf16 is %.3g away at the end", nets[_i].name, apart);
	workshop_close(&shop);
	free(want);
	free(got);
}

/* Lists omit zeros and add in another order, so the results are close but not equal. */
TEST_ROWS(test_lists, nets)
{
	size_t count = count_of(nets[_i].net);
	float *dense = slopes_with(nets[_i].net, DDP_F32, true);
	float *listed = slopes_with(nets[_i].net, DDP_F32, false);
	double apart = workshop_distance(dense, listed, count);

	ck_assert_msg(apart < 1e-6, "%s: lists are %.3g away", nets[_i].name, apart);
	/*
	 * The first two networks can use lists, so their results must differ. The others' must not.
	 */
	ck_assert((apart > 0) == (_i < 2));
	free(dense);
	free(listed);
}

/* --- Ranks ------------------------------------------------------------------------------------- */

/* Results of one rank with all samples. Forked ranks inherit them. */
static struct {
	const struct net *net;
	float *slopes;
	double loss;
	uint64_t hits;
} one;

/* First sample of each rank's part. Parts have different sizes. */
static const size_t parts[] = {0, 3, 6, 7, WORKSHOP_BATCH};

static int part_of_all(int rank)
{
	struct workshop shop;
	struct engine_step done;
	struct ddp_error error;
	struct batch batch;
	size_t from, count;
	double apart;

	workshop_open(&shop, one.net);
	from = shop.ddp && ddp_world(shop.ddp)->size == 2 ? parts[2 * rank] : parts[rank];
	count = (ddp_world(shop.ddp)->size == 2 ? parts[2 * rank + 2] : parts[rank + 1]) - from;
	shop.setup.sync_norm = true;
	workshop_engine(&shop, &math_plain);
	batch = workshop_batch(&shop, from, count);
	RANK_OK(shop.ddp, engine_cpu.step(shop.engine, &batch, WORKSHOP_BATCH, 1, 0, rank == 1,
					  &done, &error));
	RANK_CHECK(done.stop);
	RANK_CHECK(done.hits == one.hits && done.samples == WORKSHOP_BATCH);
	RANK_CHECK(fabs(done.loss - one.loss) < 1e-6 * one.loss);
	apart = workshop_distance(one.slopes, shop.model->grads, shop.model->count);
	if (!(apart < 3e-6))
		fprintf(stderr, "the gradient is %.3g away\n", apart);
	RANK_CHECK(apart < 3e-6);
	workshop_close(&shop);
	return 0;
}

/* A batch gives the same gradient on any number of ranks, with dropout too. */
TEST_ROWS(test_ranks, nets)
{
	struct workshop shop;
	struct engine_step done;

	workshop_open(&shop, nets[_i].net);
	workshop_engine(&shop, &math_plain);
	one.net = nets[_i].net;
	one.slopes = slopes_of(&shop, 0, WORKSHOP_BATCH, WORKSHOP_BATCH);
	done = workshop_step(&shop, 0, WORKSHOP_BATCH, WORKSHOP_BATCH, 0);
	ck_assert(!done.stop);
	one.loss = done.loss;
	one.hits = done.hits;
	workshop_close(&shop);
	ranks_run("2", part_of_all);
	ranks_run("4", part_of_all);
	free(one.slopes);
}

/* --- Evaluation --------------------------------------------------------------------------------- */

/*
 * Evaluation in smaller pieces gives the same sums. test_cuda compares the sums with the CUDA
 * engine's.
 */
TEST_ROWS(test_evaluation, nets)
{
	struct ddp_evaluation got[2] = {{0}};
	struct workshop shop;
	struct batch batch;
	struct ddp_error error;

	workshop_open(&shop, nets[_i].net);
	shop.setup.batch = 2;
	shop.setup.test_batch = WORKSHOP_SAMPLES;
	workshop_engine(&shop, &math_plain);
	workshop_step(&shop, 0, 2, 2, 0);
	batch = workshop_batch(&shop, 0, WORKSHOP_SAMPLES);
	for (int i = 0; i < 2; i++) {
		if (i)
			shop.engine->piece = 3;
		ck_assert_int_eq(engine_cpu.evaluate(shop.engine, &batch, &got[i], &error), 0);
		unit_number(nets[_i].name, "samples", (int64_t)got[i].samples, WORKSHOP_SAMPLES);
	}
	ck_assert_double_eq_tol(got[0].loss, got[1].loss, 1e-6 * got[0].loss);
	unit_number(nets[_i].name, "hits", (int64_t)got[1].top1, (int64_t)got[0].top1);
	workshop_close(&shop);
}

/* --- Threads and modules --------------------------------------------------------------------------- */

static int cpus_of_this(void)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	RANK_CHECK(sched_getaffinity(0, sizeof(cpus), &cpus) == 0);
	return CPU_COUNT(&cpus);
}

/* Ranks that may use the same CPUs divide these CPUs. Each rank has at least one thread. */
static int threads_shared(int rank)
{
	int cpus = cpus_of_this(), threads = 0;
	struct ddp *ddp;

	(void)rank;
	RANK_OK(ddp, ddp_init(&ddp, NULL));
	RANK_OK(ddp, engine_threads(ddp, &threads, NULL));
	cpus /= ddp_world(ddp)->size;
	RANK_CHECK(threads == (cpus > 1 ? cpus : 1));
	ddp_destroy(ddp);
	return 0;
}

/* Rank 0 may use one CPU, and rank 1 the others. So they do not divide CPUs. */
static int threads_apart(int rank)
{
	int all = cpus_of_this(), threads = 0;
	cpu_set_t cpus;
	struct ddp *ddp;

	RANK_CHECK(sched_getaffinity(0, sizeof(cpus), &cpus) == 0);
	for (size_t cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &cpus) && (seen++ == 0) != (rank == 0))
			CPU_CLR(cpu, &cpus);
	}
	RANK_CHECK(all < 2 || sched_setaffinity(0, sizeof(cpus), &cpus) == 0);
	RANK_OK(ddp, ddp_init(&ddp, NULL));
	RANK_OK(ddp, engine_threads(ddp, &threads, NULL));
	RANK_CHECK(threads == (rank == 0 || all < 2 ? 1 : all - 1));
	ddp_destroy(ddp);
	return 0;
}

TEST(test_threads)
{
	ranks_run("1", threads_shared);
	ranks_run("2", threads_shared);
	ranks_run("2", threads_apart);
}

/* Returns the gradient with the default library, and describes that library. */
static float *slopes_by_module(const struct net *net, char *describe, size_t size)
{
	struct ddp_error error;
	struct workshop shop;
	float *slopes;

	workshop_open(&shop, net);
	workshop_must(engine_cpu.open(&shop.engine, &shop.setup, &error), "open", error.text);
	snprintf(describe, size, "%s", engine_cpu.describe(shop.engine));
	slopes = slopes_of(&shop, 0, WORKSHOP_BATCH, WORKSHOP_BATCH);
	workshop_close(&shop);
	return slopes;
}

static bool has_threads;

/*
 * LeakSanitizer crashes when it scans the threads of libgomp, which oneDNN uses. LeakSanitizer
 * calls this function at exit.
 */
int __lsan_is_turned_off(void);
__attribute__((visibility("default"))) int __lsan_is_turned_off(void)
{
	return has_threads;
}

/* Every library and every chosen algorithm gives the same gradient. */
TEST_ROWS(test_module, nets)
{
	char describe[256];
	size_t count = count_of(nets[_i].net);
	float *want = slopes_with(nets[_i].net, DDP_F32, true), *got;
	double apart;

	has_threads = true;
	got = slopes_by_module(nets[_i].net, describe, sizeof(describe));
#ifdef HAVE_ONEDNN
	ck_assert_msg(strncmp(describe, "oneDNN", 6) == 0, "%s", describe);
#endif
	apart = workshop_distance(want, got, count);
	ck_assert_msg(apart < 1e-4, "%s: %s is %.3g away", nets[_i].name, describe, apart);
	free(want);
	free(got);
}

/* If the module is missing, the plain loops are used and a warning is printed. */
static int plain_warns(int rank)
{
	char describe[256];

	(void)rank;
	setenv("DDP_MODULES", "/nowhere", 1);
	free(slopes_by_module(&odd, describe, sizeof(describe)));
	RANK_CHECK(strncmp(describe, "plain C", 7) == 0);
	return 0;
}

TEST(test_fallback)
{
	static struct ranks ranks;

	ranks_start(&ranks, "1", plain_warns);
	ranks_wait(&ranks, false);
	ck_assert_msg(ranks.statuses[0] == 0, "%s", ranks.text[0]);
	UNIT_SAYS("warning", ranks.text[0], "oneDNN", "slower", "Install libdnnl");
}

UNIT_MAIN("engine", NULL)
