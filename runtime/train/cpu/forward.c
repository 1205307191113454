/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "engine-private.h"
#include "pool.h"

void *engine_room(const struct engine *engine, int room)
{
	return engine->memory + engine->program->rooms[room].offset[engine->mode];
}

void *engine_value(const struct engine *engine, int index)
{
	const struct program_value *value = &engine->program->values[index];

	return engine_room(engine, engine->back && value->again != PROGRAM_NONE ? value->again
										: value->data);
}

/* The layers' own copies of parameters, once after each change. */
static int load(struct engine *engine, struct ddp_error *error)
{
	for (int i = 0; engine->stale && i < engine->program->op_count; i++) {
		const struct program_op *op = &engine->program->ops[i];
		const struct model *model = engine->setup.model;
		const float *bias;
		int status;

		if (op->kind != PROGRAM_MATH)
			continue;
		bias = op->node->bias >= 0 ? model_value(model, (size_t)op->node->bias) : NULL;
		status = engine->math->load(engine->units[i].math,
					    model_value(model, (size_t)op->node->weight), bias,
					    error);
		if (status < 0)
			return status;
	}
	engine->stale = false;
	return 0;
}

/* Element 0 of image [image] of value [index]. */
static char *image_of(const struct engine *engine, int index, size_t image)
{
	return (char *)engine_value(engine, index) +
	       image * engine->program->values[index].elements * ddp_type_size(engine->setup.type);
}

/* Of [x], which holds [count] images, into those from [image] on. */
static void max_pool(const struct engine *engine, const struct program_op *op, const void *x,
		     size_t image, size_t count)
{
	struct graph_shape in = op->node->in;
	size_t elements = engine->program->values[op->output].elements;
	void *y = image_of(engine, op->output, image);
	uint8_t *which = (uint8_t *)engine_room(engine, op->which) + image * elements;
	struct pool pool = {in.height, in.width, in.channels, op->node->layer->size};

	if (pool.size == 2)
		engine->kernels->max_pool(x, y, which, count, in.height, in.width, in.channels,
					  engine->setup.type);
	else
		pool_forward(&pool, count, x, y, which, engine->setup.type);
}

/* A convolution and the max-pool behind it, in pieces of one size, but for one image. */
static int pooled(const struct engine *engine, int index, size_t count, struct ddp_error *error)
{
	const struct program_op *op = &engine->program->ops[index];
	size_t pieces = (count + op->piece - 1) / op->piece, done = 0;
	void *y = engine_value(engine, op->output);
	int status = 0;

	for (size_t i = 0; status == 0 && i < pieces; i++) {
		size_t images = (count - done + pieces - i - 1) / (pieces - i);

		status = engine->math->forward(engine->units[index].math, images,
					       image_of(engine, op->input, done), y, error);
		if (status == 0)
			max_pool(engine, &engine->program->ops[op->pool], y, done, images);
		done += images;
	}
	return status;
}

static int forward_math(const struct engine *engine, int index, size_t count,
			struct ddp_error *error)
{
	const struct program_op *op = &engine->program->ops[index];

	if (op->pool != PROGRAM_NONE)
		return pooled(engine, index, count, error);
	return count ? engine->math->forward(engine->units[index].math, count,
					     engine_value(engine, op->input),
					     engine_value(engine, op->output), error)
		     : 0;
}

static void drop(struct engine *engine, int index, const struct batch *batch, size_t count)
{
	const struct program_op *op = &engine->program->ops[index];
	struct dropout *dropout = &engine->units[index].dropout;
	size_t elements = engine->program->values[op->output].elements;
	uint8_t *keep = engine_room(engine, op->keep);

	dropout->seed = batch->seed;
	dropout->epoch = batch->epoch;
	dropout_draw(dropout, batch->orders, count, elements, keep);
	engine->kernels->mask(engine_value(engine, op->input), engine_value(engine, op->output),
			      keep, dropout->scale, count * elements, engine->setup.type);
}

/* What evaluation has for dropout. */
static void pass_on(const struct engine *engine, const struct program_op *op, size_t count)
{
	const char *x = engine_value(engine, op->input);
	char *y = engine_value(engine, op->output);
	size_t bytes = count * engine->program->values[op->output].elements *
		       ddp_type_size(engine->setup.type);

	if (x != y)
		__builtin_memcpy(y, x, bytes);
}

static int run(struct engine *engine, int index, const struct batch *batch, size_t count,
	       struct ddp_error *error)
{
	const struct program_op *op = &engine->program->ops[index];
	const struct kernels *kernels = engine->kernels;
	enum ddp_type type = engine->setup.type;
	struct graph_shape in = op->node->in;
	size_t all = count * engine->program->values[op->output].elements;
	const void *x = engine_value(engine, op->input);
	void *y = engine_value(engine, op->output);

	switch (op->kind) {
	case PROGRAM_MATH:
		return forward_math(engine, index, count, error);
	case PROGRAM_NORM:
		return norm_forward(engine, index, count, batch != NULL, error);
	case PROGRAM_ADD:
		kernels->add(x, engine_value(engine, op->other), y, all, op->relu, type);
		break;
	case PROGRAM_RELU:
		kernels->relu(x, y, all, type);
		break;
	case PROGRAM_MAX_POOL:
		if (!op->inner)
			max_pool(engine, op, x, 0, count);
		break;
	case PROGRAM_AVERAGE_POOL:
		kernels->average_pool(x, y, count, (size_t)in.height * (size_t)in.width,
				      (size_t)in.channels, type);
		break;
	case PROGRAM_DROPOUT:
		if (batch)
			drop(engine, index, batch, count);
		else
			pass_on(engine, op, count);
		break;
	}
	return 0;
}

int engine_forward(struct engine *engine, const struct batch *batch, size_t count,
		   struct ddp_error *error)
{
	int status = load(engine, error);

	engine->back = false;
	for (int i = 0; status == 0 && i < engine->program->op_count; i++)
		status = run(engine, i, batch, count, error);
	return status;
}
