/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradient of an operation's output is masked in place by the ReLU that ends it, and lies
 * there until it is passed on; after that nobody looks at it.
 */
#include "config.h"

#include <string.h>

#include "base/watch.h"
#include "engine-private.h"
#include "pool.h"

/* An operation on its way back. */
struct back {
	struct engine *engine;
	const struct program_op *op;
	struct unit *unit;
	int index;
	size_t count;
	void *dy; /* of what is written first */
	void *dx; /* where the input's gradient goes: NULL, its place, or the temporary one */
};

void *engine_gradient(const struct engine *engine, int index)
{
	return engine_room(engine, engine->program->values[index].gradient);
}

static size_t all_of(const struct back *back, int value)
{
	return back->count * back->engine->program->values[value].elements;
}

static int ready(const struct back *back, int parameter)
{
	struct engine *engine = back->engine;
	double begin = ddp_seconds();
	int status;

	/* With statistics of all ranks nothing may be under way while these are summed. */
	if (parameter < 0 || engine->sync_norm)
		return 0;
	status = ddp_gradients_ready(engine->setup.model->gradients, (size_t)parameter + 1);
	engine->seconds[ENGINE_REDUCE] += ddp_seconds() - begin;
	return status;
}

/* Parameters become ready from the last to the first. */
static int both_ready(const struct back *back, struct ddp_error *error)
{
	int status = ready(back, back->op->node->bias);

	if (status == 0)
		status = ready(back, back->op->node->weight);
	return status < 0 ? engine_fail(back->engine, status, error) : 0;
}

static float *gradient_of(const struct back *back, int parameter)
{
	return parameter < 0 ? NULL : model_gradient(back->engine->setup.model, (size_t)parameter);
}

/* A rank that has no samples for this step. */
static void clear_parameters(const struct back *back)
{
	const struct graph *graph = back->engine->setup.model->graph;
	int parameters[] = {back->op->node->weight, back->op->node->bias};

	for (int i = 0; i < 2; i++) {
		if (parameters[i] >= 0)
			memset(gradient_of(back, parameters[i]), 0,
			       graph->parameters[parameters[i]].count * sizeof(float));
	}
}

static int dense(const struct back *back, struct ddp_error *error)
{
	const struct engine *engine = back->engine;
	const struct program_op *op = back->op;
	const void *x = engine_value(engine, op->input);
	int status;

	if (op->relu && !op->masked)
		engine->kernels->relu_back(back->dy, engine_value(engine, op->output), back->dy,
					   all_of(back, op->output), engine->setup.type);
	status = engine->math->back_weights(back->unit->math, back->count, x, back->dy,
					    gradient_of(back, op->node->weight),
					    gradient_of(back, op->node->bias), error);
	if (status == 0)
		status = both_ready(back, error);
	if (status == 0 && back->dx)
		status = engine->math->back_data(back->unit->math, back->count, back->dy, back->dx,
						 error);
	return status;
}

static int listed(const struct back *back, struct ddp_error *error)
{
	const struct engine *engine = back->engine;
	const struct program_op *op = back->op;
	const struct program_op *pool = &engine->program->ops[op->pool];
	const uint8_t *keep = NULL;
	float *bias = gradient_of(back, op->node->bias), scale = 1;
	int status;

	if (op->dropout != PROGRAM_NONE) {
		keep = engine_room(engine, engine->program->ops[op->dropout].keep);
		scale = engine->units[op->dropout].dropout.scale;
	}
	engine->kernels->list(&back->unit->window, back->count, back->dy,
			      engine_value(engine, program_gradient(engine->program, op)),
			      engine_room(engine, pool->which), keep, scale, back->unit->list,
			      bias ? bias : engine->scratch, engine->setup.type);
	engine->kernels->list_weights(&back->unit->window, back->unit->list, back->count,
				      engine_value(engine, op->input),
				      gradient_of(back, op->node->weight), engine->setup.type);
	status = both_ready(back, error);
	if (status == 0 && back->dx)
		engine->kernels->list_data(&back->unit->window, back->unit->list, back->count,
					   model_value(engine->setup.model,
						       (size_t)op->node->weight),
					   op->masks ? engine_value(engine, op->input) : NULL,
					   back->dx, engine->setup.type);
	return status;
}

static int math(const struct back *back, struct ddp_error *error)
{
	const struct program_value *input = &back->engine->program->values[back->op->input];

	if (back->count == 0) {
		clear_parameters(back);
		return both_ready(back, error);
	}
	if (input->again != PROGRAM_NONE)
		norm_again(back->engine, input->maker, back->count);
	return back->op->listed ? listed(back, error) : dense(back, error);
}

/* Let the gradient that lies in [dy] be the addend's, or part of it. */
static void pass_on(const struct back *back)
{
	const struct engine *engine = back->engine;
	int other = back->op->other;
	void *to;

	if (other == PROGRAM_NONE || !engine->program->values[other].wanted)
		return;
	to = engine_gradient(engine, other);
	if (back->op->accumulate_other)
		engine->kernels->add(back->dy, to, to, all_of(back, other), false,
				     engine->setup.type);
	else if (to != back->dy)
		memcpy(to, back->dy, all_of(back, other) * ddp_type_size(engine->setup.type));
}

static int norm(const struct back *back, struct ddp_error *error)
{
	int status = norm_backward(back->engine, back->index, back->count, back->dx, error);

	if (status == 0)
		status = both_ready(back, error);
	if (status == 0)
		pass_on(back);
	return status;
}

static void add(const struct back *back)
{
	const struct engine *engine = back->engine;
	const struct program_op *op = back->op;
	size_t all = all_of(back, op->output);
	enum ddp_type type = engine->setup.type;

	if (op->relu)
		engine->kernels->relu_back(back->dy, engine_value(engine, op->output), back->dy,
					   all, type);
	pass_on(back);
	if (!back->dx)
		return;
	if (op->accumulate)
		engine->kernels->add(back->dy, back->dx, back->dx, all, false, type);
	else if (back->dx != back->dy)
		memcpy(back->dx, back->dy, all * ddp_type_size(type));
}

static void max_pool(const struct back *back)
{
	const struct engine *engine = back->engine;
	struct graph_shape in = back->op->node->in;
	struct pool pool = {in.height, in.width, in.channels, back->op->node->layer->size};
	const uint8_t *which = engine_room(engine, back->op->which);

	if (back->op->masks)
		engine->kernels->relu_back(back->dy, engine_value(engine, back->op->output),
					   back->dy, all_of(back, back->op->output),
					   engine->setup.type);
	if (pool.size == 2)
		engine->kernels->max_pool_back(back->dy, which, back->dx, back->count, in.height,
					       in.width, in.channels, engine->setup.type);
	else
		pool_back(&pool, back->count, back->dy, which, back->dx, engine->setup.type);
}

static int run(const struct back *back, struct ddp_error *error)
{
	const struct engine *engine = back->engine;
	const struct program_op *op = back->op;
	struct graph_shape in = op->node->in;
	enum ddp_type type = engine->setup.type;

	switch (op->kind) {
	case PROGRAM_MATH:
		return math(back, error);
	case PROGRAM_NORM:
		return norm(back, error);
	case PROGRAM_ADD:
		add(back);
		break;
	case PROGRAM_RELU:
		engine->kernels->relu_back(back->dy, engine_value(engine, op->output), back->dx,
					   all_of(back, op->output), type);
		break;
	case PROGRAM_MAX_POOL:
		max_pool(back);
		break;
	case PROGRAM_AVERAGE_POOL:
		engine->kernels->average_pool_back(back->dy, back->dx, back->count,
						   (size_t)in.height * (size_t)in.width,
						   (size_t)in.channels, type);
		break;
	case PROGRAM_DROPOUT:
		engine->kernels->mask(back->dy, back->dx, engine_room(engine, op->keep),
				      back->unit->dropout.scale, all_of(back, op->output), type);
		break;
	}
	return 0;
}

static int run_op(struct engine *engine, int index, size_t count, struct ddp_error *error)
{
	const struct program *program = engine->program;
	const struct program_op *op = &program->ops[index];
	struct back back = {engine, op, &engine->units[index], index, count, NULL, NULL};
	int status;

	if (op->skipped || !program->values[op->output].wanted)
		return 0;
	back.dy = engine_gradient(engine, program_gradient(program, op));
	if (program->values[op->input].wanted)
		back.dx = op->temporary != PROGRAM_NONE ? engine_room(engine, op->temporary)
							: engine_gradient(engine, op->input);
	status = run(&back, error);
	if (status == 0 && op->temporary != PROGRAM_NONE) {
		void *to = engine_gradient(engine, op->input);

		engine->kernels->add(back.dx, to, to, all_of(&back, op->input), false,
				     engine->setup.type);
	}
	return status;
}

/* All that were kept back, from the last to the first. */
static int ready_all(struct engine *engine, struct ddp_error *error)
{
	const struct model *model = engine->setup.model;
	int status = 0;

	for (size_t i = model->graph->parameter_count; status == 0 && i > 0; i--)
		status = ddp_gradients_ready(model->gradients, i);
	return status < 0 ? engine_fail(engine, status, error) : 0;
}

int engine_backward(struct engine *engine, size_t count, struct ddp_error *error)
{
	int status = 0;

	engine->back = true;
	for (int i = engine->program->op_count - 1; status == 0 && i >= 0; i--)
		status = run_op(engine, i, count, error);
	if (status == 0 && engine->sync_norm) {
		double begin = ddp_seconds();

		status = ready_all(engine, error);
		engine->seconds[ENGINE_REDUCE] += ddp_seconds() - begin;
	}
	engine->back = false;
	return status;
}
