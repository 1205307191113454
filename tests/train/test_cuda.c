/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda.c - the CUDA engine on an emulated GPU, compared with the CPU engine
 *
 * The engine's kernels are compiled for the host. Streams run their work in random order.
 */
#include "config.h"

#include <stdio.h>

#include "duo.h"
#include "networks.h"

static const struct {
	const char *name;
	const struct net *net;
	double rate;
} nets[] = {
	{"like mnist", &like_mnist, 0.02},
	{"odd", &odd, 0.01},
	{"residual", &residual, 0.05},
	{"tangled", &tangled, 0.001},
};

enum { STEPS = 20 };

/* --- Comparison with the CPU engine ---------------------------------------------------------- */

/*
 * After the first step, SGD's slot has the gradient. Later steps stay close, in full and in short
 * batches. Both engines use the same dropout and samples.
 */
TEST_ROWS(test_steps, nets)
{
	struct engine_step want, got;
	struct duo duo;

	duo_open(&duo, nets[_i].net, DDP_F32);
	duo.setup.smoothing = 0.1f;
	duo_engines(&duo);
	want = duo_steps(&duo, false, 1, nets[_i].rate);
	got = duo_steps(&duo, true, 1, nets[_i].rate);
	duo_compare_results(nets[_i].name, &want, &got, 1e-6);
	duo_pull(&duo);
	duo_near(nets[_i].name, "gradients",
		 workshop_distance(duo.shop.model->slots[0], duo.model->slots[0], duo.model->count),
		 3e-6);
	duo_near(nets[_i].name, "models", duo_apart(duo.shop.model, duo.model), 3e-6);
	want = duo_steps(&duo, false, STEPS - 1, nets[_i].rate);
	got = duo_steps(&duo, true, STEPS - 1, nets[_i].rate);
	duo_compare_results(nets[_i].name, &want, &got, 1e-5);
	duo_pull(&duo);
	duo_near(nets[_i].name, "values after all",
		 workshop_distance(duo.shop.model->values, duo.model->values, duo.model->count),
		 2e-4);
	duo_close(&duo);
}

static const struct {
	const char *name;
	size_t nodes; /* most nodes of a step's graph */
	enum ddp_type type;
} ours[] = {
	{"mnist", 18, DDP_F32},
	{"mnist", 19, DDP_BF16},
	{"cifar", 147, DDP_F32},
};

/* test_emulated compares losses of these networks with the CPU engine's. */
TEST_ROWS(test_graph_is_small, ours)
{
	struct net *net = net_create(ours[_i].name, 10);
	struct engine_step done;
	struct ddp_error error;
	struct duo duo;

	duo_open(&duo, net, DDP_F32);
	duo.setup.batch = duo.setup.test_batch = 1;
	duo.setup.type = ours[_i].type;
	queues_nodes = 0;
	duo_engine(&duo);
	for (uint64_t step = 1; step <= 2; step++) {
		struct batch batch = workshop_batch(&duo.shop, step, 1);

		workshop_must(engine_cuda.step(duo.engine, &batch, 1, step, 0.01, false, &done,
					       &error),
			      "step", error.text);
	}
	duo_settle(&duo);
	ck_assert_uint_gt(queues_nodes, 0);
	ck_assert_uint_le(queues_nodes, ours[_i].nodes);
	duo_close(&duo);
	net_destroy(net);
}

static const struct {
	const char *name;
	double clip;
	bool no_dropout;
	enum optim_kind optim;
} ways[] = {
	{"clipped", 0.05, false, OPTIM_SGD},
	{"without dropout", 0, true, OPTIM_SGD},
	{"AdamW", 0, false, OPTIM_ADAMW},
	{"Adadelta, clipped", 0.05, true, OPTIM_ADADELTA},
};

TEST_ROWS(test_ways, ways)
{
	struct engine_step want, got;
	struct duo duo;

	duo_open(&duo, &like_mnist, DDP_F32);
	duo.shop.optim = optim_default(ways[_i].optim);
	duo.setup.clip = ways[_i].clip;
	duo.setup.no_dropout = ways[_i].no_dropout;
	duo_engines(&duo);
	want = duo_steps(&duo, false, STEPS / 2, 1e-3);
	got = duo_steps(&duo, true, STEPS / 2, 1e-3);
	duo_compare_results(ways[_i].name, &want, &got, 1e-5);
	duo_pull(&duo);
	duo_near(ways[_i].name, "values",
		 workshop_distance(duo.shop.model->values, duo.model->values, duo.model->count),
		 1e-5);
	duo_close(&duo);
}

/* Two runs give the same bits, although the order of work on streams is random. */
TEST_ROWS(test_again, nets)
{
	struct duo duo[2];

	for (int i = 0; i < 2; i++) {
		setenv("DDP_SEED", i ? "77" : "5", 1);
		duo_open(&duo[i], nets[_i].net, DDP_F32);
		duo_engine(&duo[i]);
		duo_steps(&duo[i], true, DUO_BATCHES, nets[_i].rate);
		duo_pull(&duo[i]);
	}
	ck_assert(memcmp(duo[0].model->values, duo[1].model->values,
			 duo[0].model->count * sizeof(float)) == 0);
	for (int i = 0; i < 2; i++)
		duo_close(&duo[i]);
}

/* --- Other types ------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	enum ddp_type type;
	double most[ROWS(nets)]; /* largest distance of gradients from those in f32 */
} types[] = {
	{"bf16", DDP_BF16, {0.1, 0.15, 0.15, 0.05}},
	{"fp16", DDP_F16, {0.06, 0.06, 0.06, 0.01}},
};

/*
 * Returns the distance of the first step's gradient in [type] from the one in f32. After this step,
 * SGD's slot has the gradient.
 */
static double apart_in(enum ddp_type type, int net)
{
	struct duo duo;
	double apart;

	duo_open(&duo, nets[net].net, DDP_F32);
	duo.setup.type = type;
	/* with this scale f16 does not overflow */
	duo.scaler.scale = 256;
	if (type == DDP_F16)
		duo.setup.scaler = &duo.scaler;
	duo_engines(&duo);
	duo_steps(&duo, false, 1, 0);
	duo_steps(&duo, true, 1, 0);
	duo_pull(&duo);
	apart = workshop_distance(duo.shop.model->slots[0], duo.model->slots[0], duo.model->count);
	duo_close(&duo);
	return apart;
}

TEST_ROWS(test_types, types)
{
	for (int net = 0; net < ROWS(nets); net++) {
		double apart = apart_in(types[_i].type, net);

		printf("# %s, %s: %.3g apart\n", types[_i].name, nets[net].name, apart);
		ck_assert_msg(apart > 0 && apart < types[_i].most[net],
			      "%s, %s: gradients are %.3g apart", types[_i].name, nets[net].name,
			      apart);
	}
}

/* --- Evaluation ------------------------------------------------------------------------------------- */

/* Runs evaluations between steps, with batches of several sizes. */
TEST_ROWS(test_evaluation, nets)
{
	static const size_t counts[] = {WORKSHOP_SAMPLES, 7, 1};
	struct ddp_error error;
	struct duo duo;

	duo_open(&duo, nets[_i].net, DDP_F32);
	duo.setup.test_batch = duo.shop.setup.test_batch = WORKSHOP_SAMPLES;
	duo_engines(&duo);
	duo_steps(&duo, false, 2, nets[_i].rate);
	for (int i = 0; i < 2; i++)
		duo_step(&duo, true, nets[_i].rate, false);
	for (size_t i = 0; i < 3; i++) {
		struct batch batch = workshop_batch(&duo.shop, i, counts[i]);
		struct ddp_evaluation want = {0}, got = {0};

		engine_cpu.evaluate(duo.shop.engine, &batch, &want, NULL);
		workshop_must(engine_cuda.evaluate(duo.engine, &batch, &got, &error), "evaluate",
			      error.text);
		unit_number(nets[_i].name, "samples", (int64_t)got.samples, (int64_t)want.samples);
		unit_number(nets[_i].name, "top 1", (int64_t)got.top1, (int64_t)want.top1);
		ck_assert_double_eq_tol(got.loss, want.loss, 1e-5 * want.loss);
	}
	duo_steps(&duo, false, 2, nets[_i].rate);
	duo_steps(&duo, true, 2, nets[_i].rate);
	duo_pull(&duo);
	duo_near(nets[_i].name, "models", duo_apart(duo.shop.model, duo.model), 1e-5);
	duo_close(&duo);
}

UNIT_MAIN("cuda", NULL)
