/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sides.h - two engines that train the same network, side by side, for networks.c
 */
#ifndef DDP_TESTS_SIDES_H
#define DDP_TESTS_SIDES_H

#include <stdlib.h>
#include <string.h>

#include "base/type.h"
#include "cpu/engine-private.h"
#include "tap.h"

enum { SAMPLES = 512 };

/* What is compared, and how near it has to be. */
struct row {
	const char *name;
	const char *net;
	enum ddp_type type;
	bool tf32;
	size_t batch;
	double rate;
	double gradient, each, losses; /* limits, relative */
};

/* One of the two that are compared. */
struct side {
	const struct engine_class *class;
	struct engine *engine;
	struct model *model;
	struct ddp_scaler scaler;
};

struct work {
	const struct row *row;
	size_t steps;
	struct ddp *ddp;
	struct net *net;
	struct graph *graph;
	struct set *set;
	struct optim optim;
	struct side cuda, cpu;
	double *errors; /* of each parameter, and of all together, in each step */
	struct ddp_error error;
};

static const struct engine_class *cuda;

/* A test of [what], which passes unless [status] is an error. Returns [status]. */
static int worked(struct work *work, int status, const char *what)
{
	if (!ok(status >= 0, "%s: %s", work->row->name, what))
		printf("# %s\n", work->error.text);
	return status;
}

/* --- Making both ----------------------------------------------------------------------------- */

static void round_values(struct model *model)
{
	for (size_t i = 0; i < model->count; i++) {
		uint32_t bits = (uint32_t)ddp_to_bf16(model->values[i]) << 16;

		memcpy(&model->values[i], &bits, sizeof(bits));
	}
}

/*
 * PyTorch's initial values, as bfloat16 has them: then no type rounds them. Behind BatchNorm every
 * other channel is mostly positive and the others mostly negative: near 0 a rounding decides.
 */
static void set_values(const struct work *work, struct model *model)
{
	model_init(model, 1);
	for (size_t i = 0; i < work->graph->parameter_count; i++) {
		const struct graph_parameter *parameter = &work->graph->parameters[i];
		float *values = model_value(model, i);

		for (size_t k = 0; k < parameter->count && parameter->role == GRAPH_SHIFT; k++)
			values[k] += k % 2 ? -2 : 2;
	}
	round_values(model);
}

static struct engine_setup setup_of(struct work *work, struct side *side)
{
	bool cpu = side == &work->cpu;

	side->scaler = (struct ddp_scaler)DDP_SCALER_INIT;
	side->scaler.scale = 128;
	return (struct engine_setup){
		.ddp = work->ddp,
		.model = side->model,
		.train = work->set,
		.test = work->set,
		.optim = &work->optim,
		.batch = work->row->batch,
		.test_batch = 2 * work->row->batch,
		/* A CPU has no fp16: f32 is what both approximate. */
		.type = cpu && work->row->type == DDP_F16 ? DDP_F32 : work->row->type,
		.scaler = !cpu && work->row->type == DDP_F16 ? &side->scaler : NULL,
		.tf32 = !cpu && work->row->tf32,
		.exact = true,
		.deterministic = true,
		.threads = 1,
	};
}

static int open_side(struct work *work, struct side *side, const struct engine_class *class)
{
	struct engine_setup setup;
	int status = model_create(&side->model, work->ddp, work->graph, 1, DDP_F32,
				  class->device_gradients, 0, &work->error);

	side->class = class;
	if (status < 0)
		return status;
	set_values(work, side->model);
	setup = setup_of(work, side);
	if (class == &engine_cpu)
		status = engine_create(&side->engine, &setup, &math_plain, &work->error);
	else
		status = class->open(&side->engine, &setup, &work->error);
	return status < 0 ? status : class->push(side->engine, &work->error);
}

static int open_world(struct work *work)
{
	struct ddp_options options = DDP_OPTIONS_INIT;

	options.method = "single";
	if (ddp_init(&work->ddp, &options) == 0)
		return 0;
	snprintf(work->error.text, sizeof(work->error.text), "%s", ddp_error(work->ddp));
	return ddp_status(work->ddp);
}

static int open_both(struct work *work)
{
	bool mnist = strcmp(work->row->net, "mnist") == 0;
	struct set_options options = {
		.kind = mnist ? SET_MNIST : SET_CIFAR10, .samples = SAMPLES, .seed = 7};
	int status = open_world(work);

	if (status < 0)
		return status;
	work->net = net_create(work->row->net, 0);
	work->optim = optim_default(OPTIM_SGD);
	work->optim.momentum = 1e-30;
	status = graph_create(&work->graph, work->net, &work->error);
	if (status == 0)
		status = set_open(&work->set, &options, &work->error);
	if (status == 0)
		status = open_side(work, &work->cpu, &engine_cpu);
	if (status == 0)
		status = open_side(work, &work->cuda, cuda);
	if (status == 0)
		work->errors =
			calloc(work->steps * (work->graph->parameter_count + 1), sizeof(double));
	return status;
}

static void close_side(struct side *side)
{
	if (side->engine)
		side->class->close(side->engine);
	model_destroy(side->model);
}

static void close_both(struct work *work)
{
	close_side(&work->cuda);
	close_side(&work->cpu);
	set_close(work->set);
	graph_destroy(work->graph);
	net_destroy(work->net);
	ddp_destroy(work->ddp);
	free(work->errors);
}

#endif /* DDP_TESTS_SIDES_H */
