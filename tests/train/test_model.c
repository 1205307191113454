/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_model.c - the copy of a model that the ranks of a node share
 *
 * tests/interop tests initial values and files, test_engine the sums of gradients, and test_runs
 * checkpoints.
 */
#include "config.h"

#include "net/model.h"
#include "optim/optim.h"
#include "ranks.h"

static struct ddp_error problem;

static struct model *create(struct ddp *ddp, const struct graph *graph)
{
	struct model *model;

	if (model_create(&model, ddp, graph, 2, DDP_F32, false, 0, &problem) < 0) {
		fprintf(stderr, "%s\n", problem.text);
		_exit(98);
	}
	return model;
}

/* Updates this rank's part of the shared copy, and all parts of [alone]. */
static void step_both(struct ddp *ddp, struct model *model, struct model *alone, uint64_t step)
{
	const struct optim optim = optim_default(OPTIM_ADAMW);
	float *slots[MODEL_SLOTS];
	size_t begin, end;

	for (size_t i = 0; i < model->count; i++)
		model->grads[i] = (float)(1 + i % 7);
	model_part(model->count, ddp_world(ddp)->rank, ddp_world(ddp)->size, &begin, &end);
	for (int i = 0; i < MODEL_SLOTS; i++)
		slots[i] = model->slots[i] + begin;
	optim_step(&optim, step, 0.1, model->values + begin, model->grads + begin, slots,
		   end - begin);
	optim_step(&optim, step, 0.1, alone->values, model->grads, alone->slots, model->count);
	RANK_OK(ddp, ddp_barrier(ddp));
}

/* Each rank updates its part. The values are the same as on a rank that updates all parts. */
static int share(int rank)
{
	struct ddp *ddp = ranks_join();
	const struct ddp_world *world = ddp_world(ddp);
	struct net *net = net_create("mnist", 0);
	struct model *model, *alone;
	struct graph *graph;
	size_t bytes;

	(void)rank;
	RANK_CHECK(graph_create(&graph, net, &problem) == 0);
	model = create(ddp, graph);
	alone = create(ddp, graph);
	bytes = model->count * sizeof(float);
	RANK_CHECK(model_share(model, ddp, &problem) == 0);
	RANK_CHECK(model->shared == (world->size > 1 && world->node_count == 1) && !alone->shared);
	model_init(model, 1);
	model_init(alone, 1);
	RANK_OK(ddp, ddp_barrier(ddp)); /* each rank writes all values of the shared copy */
	for (uint64_t step = 1; model->shared && step <= 2; step++) {
		step_both(ddp, model, alone, step);
		RANK_CHECK(memcmp(model->values, alone->values, bytes) == 0);
		for (int i = 0; i < MODEL_SLOTS; i++)
			RANK_CHECK(memcmp(model->slots[i], alone->slots[i], bytes) == 0);
		RANK_OK(ddp, ddp_barrier(ddp));
	}
	model_destroy(alone);
	model_destroy(model);
	graph_destroy(graph);
	net_destroy(net);
	ddp_destroy(ddp);
	return 0;
}

TEST_LOOP(test_share, 0, 4)
{
	static const char *const layouts[] = {"1", "2", "3", "1,1"};

	ranks_run(layouts[_i], share);
}

UNIT_MAIN("model", NULL)
