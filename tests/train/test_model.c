/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_model.c - models in memory and in checkpoints, with real ranks (tests/interop tests initial
 * values and files)
 */
#include "config.h"

#include "net/model.h"
#include "optim/optim.h"
#include "ranks.h"

static const char *const layouts[] = {"1", "2", "1,1"};

/* A rank's model of the network [name]. */
struct bench {
	struct ddp *ddp;
	struct net *net;
	struct graph *graph;
	struct model *model;
};

static struct ddp_error problem;

/* Fails unless [call] returns 0. The call stores its error in [problem]. */
#define BENCH_OK(call)                                                                    \
	do {                                                                              \
		if ((call) < 0) {                                                         \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, problem.text); \
			_exit(98);                                                        \
		}                                                                         \
	} while (0)

static struct bench setup(const char *name, int slots)
{
	struct bench bench = {0};

	RANK_OK(bench.ddp, ddp_init(&bench.ddp, NULL));
	bench.net = net_create(name, 0);
	RANK_CHECK(bench.net);
	BENCH_OK(graph_create(&bench.graph, bench.net, &problem));
	BENCH_OK(model_create(&bench.model, bench.ddp, bench.graph, slots, DDP_F32, false, 0,
			      &problem));
	return bench;
}

static int teardown(struct bench *bench)
{
	model_destroy(bench->model);
	graph_destroy(bench->graph);
	net_destroy(bench->net);
	ddp_destroy(bench->ddp);
	return 0;
}

/* --- Layout in memory -------------------------------------------------------------------- */

/* Returns the parameter of each element; 0: the element is in a gap. */
static uint8_t *owners(const struct model *model)
{
	uint8_t *owner = calloc(model->count, 1);

	RANK_CHECK(owner);
	for (size_t p = 0; p < model->graph->parameter_count; p++) {
		RANK_CHECK(model_gradient(model, p) == ddp_gradients_view(model->gradients, p + 1));
		for (size_t i = 0; i < model->graph->parameters[p].count; i++) {
			RANK_CHECK(model->offsets[p] + i < model->count);
			RANK_CHECK(owner[model->offsets[p] + i] == 0);
			owner[model->offsets[p] + i] = 1;
		}
	}
	return owner;
}

static void check_places(const struct bench *bench)
{
	const struct model *model = bench->model;
	uint8_t *owner = owners(model);
	size_t used = 0, all;

	for (size_t i = 0; i < model->count; i++)
		used += owner[i];
	free(owner);
	RANK_CHECK(used == bench->graph->weights);
	/* All other elements are in gaps, and the step vector follows. */
	RANK_CHECK(model->count - used < 16 * bench->graph->parameter_count);
	RANK_CHECK(ddp_gradients_all(model->gradients, &all) == model->grads);
	RANK_CHECK(model->step_vector == model->grads + model->count);
	RANK_CHECK(all == model->count + MODEL_STEP_SIZE);
	RANK_CHECK((uintptr_t)model->values % 64 == 0 && (uintptr_t)model->grads % 64 == 0);
	RANK_CHECK((uintptr_t)model->slots[0] % 64 == 0 && !model->slots[1]);
}

static int body_places(int rank)
{
	(void)rank;
	for (const char *const *name = net_names(); *name; name++) {
		struct bench bench = setup(*name, 1);

		check_places(&bench);
		teardown(&bench);
	}
	return 0;
}

TEST_ROWS(test_places, layouts)
{
	ranks_run(layouts[_i], body_places);
}

/* --- Step -------------------------------------------------------------------------------- */

static void write_gradients(const struct model *model, int rank)
{
	for (size_t p = 0; p < model->graph->parameter_count; p++) {
		float *gradient = model_gradient(model, p);

		for (size_t i = 0; i < model->graph->parameters[p].count; i++)
			gradient[i] = (float)((rank + 1) * (int)(1 + (p + i) % 7));
	}
	model->step_vector[MODEL_STOP] = rank == 0;
	model->step_vector[MODEL_LOSS] = 0.5f + (float)rank;
	model->step_vector[MODEL_SAMPLES] = 64;
}

static void sum(const struct bench *bench)
{
	const struct model *model = bench->model;

	for (size_t p = bench->graph->parameter_count + 1; p-- > 0;)
		RANK_OK(bench->ddp, ddp_gradients_ready(model->gradients, p));
	RANK_OK(bench->ddp, ddp_gradients_finish(model->gradients));
}

/* Gradients and the step vector are summed over all ranks. They are not averaged. */
static void check_sums(const struct bench *bench, int size)
{
	const struct model *model = bench->model;
	int ranks = size * (size + 1) / 2;

	for (size_t p = 0; p < bench->graph->parameter_count; p++) {
		const float *gradient = model_gradient(model, p);

		for (size_t i = 0; i < bench->graph->parameters[p].count; i++)
			RANK_CHECK(gradient[i] == (float)(ranks * (int)(1 + (p + i) % 7)));
	}
	RANK_CHECK(model->step_vector[MODEL_STOP] == 1);
	RANK_CHECK(model->step_vector[MODEL_LOSS] == 0.5f * (float)(size * size));
	RANK_CHECK(model->step_vector[MODEL_HITS] == 0);
	RANK_CHECK(model->step_vector[MODEL_SAMPLES] == (float)(64 * size));
}

/* Gaps remain zero in every array. */
static void check_gaps(const struct model *model)
{
	uint8_t *owner = owners(model);

	for (size_t i = 0; i < model->count; i++) {
		RANK_CHECK(owner[i] || (model->values[i] == 0 && model->grads[i] == 0));
		RANK_CHECK(owner[i] || (model->slots[0][i] == 0 && model->slots[1][i] == 0));
	}
	free(owner);
}

static int body_step(int rank)
{
	struct bench bench = setup("mnist", 2);
	struct model *model = bench.model;
	int size = ddp_world(bench.ddp)->size;

	model_init(model, 1);
	for (size_t i = 0; i < model->count; i++)
		RANK_CHECK(model->grads[i] == 0);
	for (int kind = 0; kind < OPTIM_KINDS; kind++) {
		struct optim optim = optim_default((enum optim_kind)kind);
		float before = model->values[0];

		optim.momentum = 0.9;
		optim.decay = 0.01;
		write_gradients(model, rank);
		sum(&bench);
		check_sums(&bench, size);
		optim_step(&optim, 1, 0.1, model->values, model->grads, model->slots, model->count);
		RANK_CHECK(model->values[0] != before);
		check_gaps(model);
		ranks_equal(bench.ddp, model->values, model->count * sizeof(float));
	}
	return teardown(&bench);
}

TEST_ROWS(test_step, layouts)
{
	ranks_run(layouts[_i], body_step);
}

/* --- Shared copy ------------------------------------------------------------------------- */

/*
 * The ranks' parts have no gaps between them, start at cache lines, and have about the same length.
 */
TEST(test_parts)
{
	static const size_t counts[] = {1, 15, 16, 17, 64, 1000, 1199888};

	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		for (int ranks = 1; ranks <= 9; ranks++) {
			size_t reached = 0, begin, end;

			for (int rank = 0; rank < ranks; rank++) {
				model_part(counts[i], rank, ranks, &begin, &end);
				ck_assert_uint_eq(begin, reached);
				ck_assert(begin % 16 == 0 || begin == counts[i]);
				ck_assert_uint_le(end - begin, counts[i] / (size_t)ranks + 32);
				reached = end;
			}
			ck_assert_uint_eq(reached, counts[i]);
		}
	}
}

static void step_part(struct bench *bench, const struct optim *optim, uint64_t step)
{
	const struct ddp_world *world = ddp_world(bench->ddp);
	struct model *model = bench->model;
	float *slots[MODEL_SLOTS];
	size_t begin, end;

	model_part(model->count, world->rank, world->size, &begin, &end);
	for (int i = 0; i < MODEL_SLOTS; i++)
		slots[i] = model->slots[i] + begin;
	optim_step(optim, step, 0.1, model->values + begin, model->grads + begin, slots,
		   end - begin);
	RANK_OK(bench->ddp, ddp_barrier(bench->ddp));
}

/* Each rank updates its part. The values are the same as on a rank that updates all parts. */
static int body_share(int rank)
{
	struct bench bench = setup("mnist", 2);
	const struct ddp_world *world = ddp_world(bench.ddp);
	struct optim optim = optim_default(OPTIM_ADAMW);
	struct model *model = bench.model, *alone;
	size_t bytes = model->count * sizeof(float);
	bool one_node = world->node_count == 1;

	BENCH_OK(model_create(&alone, bench.ddp, bench.graph, 2, DDP_F32, false, 0, &problem));
	BENCH_OK(model_share(model, bench.ddp, &problem));
	RANK_CHECK(model->shared == (world->size > 1 && one_node) && !alone->shared);
	model_init(model, 1);
	model_init(alone, 1);
	for (uint64_t step = 1; model->shared && step <= 3; step++) {
		write_gradients(model, rank);
		sum(&bench);
		step_part(&bench, &optim, step);
		optim_step(&optim, step, 0.1, alone->values, model->grads, alone->slots,
			   model->count);
		RANK_CHECK(memcmp(model->values, alone->values, bytes) == 0);
		for (int i = 0; i < MODEL_SLOTS; i++)
			RANK_CHECK(memcmp(model->slots[i], alone->slots[i], bytes) == 0);
		RANK_OK(bench.ddp, ddp_barrier(bench.ddp));
	}
	model_destroy(alone);
	return teardown(&bench);
}

TEST_LOOP(test_share, 0, 5)
{
	static const char *const shapes[] = {"1", "2", "3", "1,1", "2,1"};

	ranks_run(shapes[_i], body_share);
}

/* --- Tensors ----------------------------------------------------------------------------- */

static void number(float *to, size_t count, float from)
{
	for (size_t i = 0; i < count; i++)
		to[i] = from + (float)i;
}

/* Sets a different number in each parameter, slot and buffer. */
static void number_all(const struct model *model)
{
	const struct graph *graph = model->graph;

	for (size_t p = 0; p < graph->parameter_count; p++) {
		size_t count = graph->parameters[p].count;

		number(model_value(model, p), count, (float)p);
		for (int slot = 0; slot < MODEL_SLOTS && model->slots[slot]; slot++)
			number(model->slots[slot] + model->offsets[p], count,
			       (float)(1000 * (slot + 1)) + (float)p);
	}
	number(model->buffers, model->buffer_count, 0.25f);
}

static void check_same(const struct model *one, const struct model *other)
{
	size_t bytes = one->count * sizeof(float);

	RANK_CHECK(memcmp(one->values, other->values, bytes) == 0);
	for (int i = 0; i < MODEL_SLOTS && one->slots[i] && other->slots[i]; i++)
		RANK_CHECK(memcmp(one->slots[i], other->slots[i], bytes) == 0);
	RANK_CHECK(memcmp(one->buffers, other->buffers, one->buffer_count * sizeof(float)) == 0);
}

static const struct ddp_tensor *find(const struct model_tensors *tensors, const char *name)
{
	for (size_t i = 0; i < tensors->count; i++) {
		if (strcmp(tensors->list[i].name, name) == 0)
			return &tensors->list[i];
	}
	fprintf(stderr, "no tensor %s\n", name);
	_exit(98);
}

/* PyTorch's layout is [o][c][position]; the model's is [o][position][c]. */
static void check_layout(const struct model_tensors *tensors)
{
	const float *conv = find(tensors, "layer1.0.conv1.weight")->data;
	const float *slot = find(tensors, "optimizer.1.layer1.0.conv1.weight")->data;
	const float *norm = find(tensors, "layer1.0.bn1.weight")->data;

	RANK_CHECK(conv[0] == 3 && conv[1] == 3 + 64 && conv[9] == 3 + 1 && conv[576] == 3 + 576);
	RANK_CHECK(slot[0] == 2003 && slot[1] == 2003 + 64);
	RANK_CHECK(norm[0] == 4 && norm[1] == 5);
	RANK_CHECK(((const float *)find(tensors, "bn1.running_mean")->data)[3] == 3.25f);
	RANK_CHECK(((const float *)find(tensors, "bn1.running_var")->data)[0] == 64.25f);
	RANK_CHECK(*(const int64_t *)find(tensors, "layer4.1.bn2.num_batches_tracked")->data ==
		   4711);
}

static int body_tensors(int rank)
{
	struct bench bench = setup("cifar", 2);
	struct model_tensors tensors;
	struct model *other;

	(void)rank;
	BENCH_OK(model_create(&other, bench.ddp, bench.graph, 2, DDP_F32, false, 0, &problem));
	number_all(bench.model);
	model_tensors_create(&tensors, bench.model, true);
	RANK_CHECK(tensors.count == 3 * 62 + 40 + 20);
	model_tensors_export(&tensors, bench.model, 4711);
	check_layout(&tensors);
	model_tensors_import(&tensors, other, 4700);
	check_same(bench.model, other);
	/* num_batches_tracked is the value in the file plus the number of steps. */
	model_tensors_export(&tensors, other, 20);
	RANK_CHECK(tensors.steps == 31);
	model_tensors_destroy(&tensors);
	model_tensors_destroy(&tensors);
	model_destroy(other);
	return teardown(&bench);
}

TEST(test_tensors)
{
	ranks_run("1", body_tensors);
}

/* All ranks write and read a checkpoint, as they do in the trainer. */
static int body_checkpoint(int rank)
{
	struct bench bench = setup("mnist", 2);
	struct model_tensors tensors;
	struct model *other;
	uint64_t step;
	char here[512];

	(void)rank;
	RANK_CHECK(getcwd(here, sizeof(here)));
	BENCH_OK(model_create(&other, bench.ddp, bench.graph, 2, DDP_F32, false, 0, &problem));
	model_tensors_create(&tensors, bench.model, true);
	number_all(bench.model);
	model_tensors_export(&tensors, bench.model, 12);
	RANK_OK(bench.ddp,
		ddp_checkpoint_save(bench.ddp, here, 12, tensors.list, tensors.count, NULL, 0, 1));
	model_tensors_export(&tensors, other, 0);
	RANK_CHECK(ddp_checkpoint_load(bench.ddp, here, &step, tensors.list, tensors.count, NULL,
				       0) == 1);
	model_tensors_import(&tensors, other, 12);
	RANK_CHECK(step == 12);
	check_same(bench.model, other);
	model_tensors_destroy(&tensors);
	model_destroy(other);
	return teardown(&bench);
}

TEST_ROWS(test_checkpoint, layouts)
{
	ranks_run(layouts[_i], body_checkpoint);
}

int main(void)
{
	model_destroy(NULL);
	model_tensors_destroy(NULL);
	return unit_run("model", NULL);
}
