/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workshop.h - a network, a model, synthetic digits and an engine, for tests that need all of these
 */
#ifndef DDP_TESTS_WORKSHOP_H
#define DDP_TESTS_WORKSHOP_H

#include <math.h>

#include "cpu/engine-private.h"
#include "unit.h"

enum { WORKSHOP_SAMPLES = 24, WORKSHOP_BATCH = 8 };

struct workshop {
	struct ddp *ddp;
	struct graph *graph;
	struct model *model;
	struct set *set;
	struct optim optim;
	struct engine_setup setup; /* may be changed before workshop_engine() */
	struct engine *engine;
	uint64_t indices[WORKSHOP_SAMPLES], orders[WORKSHOP_SAMPLES];
};

/* If [status] is an error, ends the test or the rank with a message. */
static inline void workshop_must(int status, const char *what, const char *text)
{
	if (status < 0)
		ck_abort_msg("%s: %s", what, text);
}

static inline void workshop_open(struct workshop *shop, const struct net *net)
{
	struct set_options options = {.kind = net->channels == 3 ? SET_CIFAR10 : SET_MNIST,
				      .samples = WORKSHOP_SAMPLES,
				      .seed = 5};
	struct ddp_error error;

	memset(shop, 0, sizeof(*shop));
	workshop_must(ddp_init(&shop->ddp, NULL), "init", shop->ddp ? ddp_error(shop->ddp) : "");
	workshop_must(graph_create(&shop->graph, net, &error), "graph", error.text);
	workshop_must(model_create(&shop->model, shop->ddp, shop->graph, 2, DDP_F32, false, 0,
				   &error),
		      "model", error.text);
	options.ddp = shop->ddp;
	workshop_must(set_open(&shop->set, &options, &error), "set", error.text);
	model_init(shop->model, 1);
	/* BatchNorm's initial values, ones and zeros, would hide a missing product or sum. */
	for (size_t i = 0; i < shop->graph->parameter_count; i++) {
		float *value = model_value(shop->model, i);

		for (size_t k = 0; k < shop->graph->parameters[i].count; k++)
			if (shop->graph->parameters[i].role >= GRAPH_SCALE)
				value[k] += 0.1f * (float)(k % 5) - 0.15f;
	}
	for (uint64_t i = 0; i < WORKSHOP_SAMPLES; i++) {
		shop->indices[i] = i;
		shop->orders[i] = 1000 - 7 * i;
	}
	shop->optim = optim_default(OPTIM_SGD);
	shop->setup = (struct engine_setup){.ddp = shop->ddp,
					    .model = shop->model,
					    .train = shop->set,
					    .test = shop->set,
					    .optim = &shop->optim,
					    .batch = WORKSHOP_BATCH,
					    .test_batch = WORKSHOP_BATCH,
					    .type = DDP_F32,
					    .threads = 1};
}

static inline void workshop_engine(struct workshop *shop, const struct math *math)
{
	struct ddp_error error;

	workshop_must(engine_create(&shop->engine, &shop->setup, math, &error), "engine",
		      error.text);
}

static inline struct batch workshop_batch(const struct workshop *shop, size_t from, size_t count)
{
	return (struct batch){.indices = shop->indices + from,
			      .orders = shop->orders + from,
			      .count = count,
			      .seed = 3,
			      .epoch = 2};
}

/*
 * Runs a step with [count] samples, from sample [from] on. All ranks together have [global]
 * samples. If [rate] is 0, the model does not change.
 */
static inline struct engine_step workshop_step(struct workshop *shop, size_t from, size_t count,
					       size_t global, double rate)
{
	struct batch batch = workshop_batch(shop, from, count);
	struct engine_step done;
	struct ddp_error error;

	workshop_must(engine_cpu.step(shop->engine, &batch, global, 1, rate, false, &done, &error),
		      "step", error.text);
	return done;
}

/* Returns the distance of two arrays, relative to the length (2-norm) of the first. */
static inline double workshop_distance(const float *a, const float *b, size_t count)
{
	double apart = 0, length = 0;

	for (size_t i = 0; i < count; i++) {
		apart += pow((double)a[i] - (double)b[i], 2);
		length += pow((double)a[i], 2);
	}
	return apart > 0 ? sqrt(apart / length) : apart;
}

static inline void workshop_close(struct workshop *shop)
{
	engine_cpu.close(shop->engine);
	model_destroy(shop->model);
	graph_destroy(shop->graph);
	set_close(shop->set);
	ddp_destroy(shop->ddp);
}

#endif /* DDP_TESTS_WORKSHOP_H */
