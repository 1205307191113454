/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "engine-private.h"

void *cuda_room(const struct engine *engine, int room)
{
	return engine->memory.rooms + engine->program->rooms[room].offset[engine->mode];
}

void *cuda_value(const struct engine *engine, int index)
{
	return cuda_room(engine, engine->program->values[index].data);
}

void *cuda_gradient(const struct engine *engine, int index)
{
	return cuda_room(engine, engine->program->values[index].gradient);
}

float *cuda_parameter(const struct engine *engine, int parameter)
{
	const size_t *offsets = engine->setup.model->offsets;

	return parameter < 0 ? NULL : engine->memory.values + offsets[parameter];
}

float *cuda_slope(const struct engine *engine, int parameter)
{
	const size_t *offsets = engine->setup.model->offsets;

	return parameter < 0 ? NULL : engine->memory.gradients + offsets[parameter];
}

const void *cuda_weight(const struct engine *engine, int parameter)
{
	const char *narrow = engine->memory.narrow;

	if (!narrow)
		return cuda_parameter(engine, parameter);
	return narrow + engine->setup.model->offsets[parameter] * ddp_type_size(engine->setup.type);
}

size_t cuda_elements(const struct engine *engine, int index)
{
	return engine->batch * engine->program->values[index].elements;
}

void *cuda_stream(const struct engine *engine)
{
	return device_stream(engine->device, DEVICE_COMPUTE);
}

void cuda_gather(struct engine *engine, const struct data *data)
{
	const struct net *net = engine->setup.model->graph->net;
	struct kernel_images images = {.channels = net->channels,
				       .height = net->height,
				       .width = net->width,
				       .pad = net->pad,
				       .flip = net->flip};

	for (int i = 0; i < net->channels; i++) {
		images.mean[i] = net->mean[i];
		images.deviation[i] = net->deviation[i];
	}
	kernel_gather(cuda_stream(engine), &images, data_pixels(data), engine->block.order,
		      engine->block.indices, engine->block.orders, engine->batch,
		      cuda_value(engine, PROGRAM_IMAGE), engine->setup.type);
}

static int forward_math(struct engine *engine, int index, struct ddp_error *error)
{
	const struct program_op *op = &engine->program->ops[index];
	const struct unit *unit = &engine->units[index];
	bool test = engine->mode == PROGRAM_TEST;
	const float *bias = cuda_parameter(engine, op->node->bias);
	const void *weights = cuda_weight(engine, op->node->weight);
	const void *x = cuda_value(engine, op->input);
	void *y = cuda_value(engine, op->output);

	if (unit->conv)
		return conv_forward(unit->conv, DEVICE_COMPUTE, test, x, weights, bias, y,
				    engine->memory.scratch, error);
	if (unit->dense)
		return dense_forward(unit->dense, DEVICE_COMPUTE, test, x, weights, bias, y,
				     engine->memory.scratch, error);
	kernel_first(cuda_stream(engine), &unit->first, engine->batch, x,
		     cuda_parameter(engine, op->node->weight), bias, op->relu, y,
		     engine->setup.type);
	return 0;
}

/* An evaluation drops nothing. */
static int drop(struct engine *engine, int index, struct ddp_error *error)
{
	const struct program_op *op = &engine->program->ops[index];
	size_t elements = engine->program->values[op->output].elements;
	const void *x = cuda_value(engine, op->input);
	void *y = cuda_value(engine, op->output);

	if (engine->mode == PROGRAM_TRAIN && op->inner)
		return 0;
	if (engine->mode == PROGRAM_TRAIN)
		kernel_dropout(cuda_stream(engine), &engine->units[index].dropout,
			       engine->block.order, engine->block.orders, engine->batch, elements,
			       x, y, engine->setup.type);
	else if (x != y)
		return device_copy(engine->device, DEVICE_COMPUTE, y, x,
				   engine->batch * elements * ddp_type_size(engine->setup.type),
				   error);
	return 0;
}

/* In training, with the dropout behind it. */
static void max_pool(struct engine *engine, const struct program_op *op)
{
	struct graph_shape in = op->node->in;
	struct kernel_pool pool = {in.height, in.width, in.channels, op->node->layer->size};
	const void *x = cuda_value(engine, op->input);
	void *y = cuda_value(engine, op->output);
	uint8_t *which = cuda_room(engine, op->which);

	if (op->dropout != PROGRAM_NONE && engine->mode == PROGRAM_TRAIN)
		kernel_max_pool_dropout(cuda_stream(engine), &pool,
					&engine->units[op->dropout].dropout, engine->block.order,
					engine->block.orders, engine->batch, x, y, which,
					engine->setup.type);
	else
		kernel_max_pool(cuda_stream(engine), &pool, engine->batch, x, y, which,
				engine->setup.type);
}

static int run(struct engine *engine, int index, struct ddp_error *error)
{
	const struct program_op *op = &engine->program->ops[index];
	struct graph_shape in = op->node->in;
	const void *x = cuda_value(engine, op->input);
	void *y = cuda_value(engine, op->output), *stream = cuda_stream(engine);
	size_t all = cuda_elements(engine, op->output);
	enum ddp_type type = engine->setup.type;

	switch (op->kind) {
	case PROGRAM_MATH:
		return forward_math(engine, index, error);
	case PROGRAM_NORM:
		return cuda_norm_forward(engine, index, error);
	case PROGRAM_ADD:
		kernel_add(stream, x, cuda_value(engine, op->other), y, all, op->relu, type);
		break;
	case PROGRAM_RELU:
		kernel_relu(stream, x, y, all, type);
		break;
	case PROGRAM_MAX_POOL:
		max_pool(engine, op);
		break;
	case PROGRAM_AVERAGE_POOL:
		kernel_average_pool(stream, engine->batch, (size_t)in.height * (size_t)in.width,
				    (size_t)in.channels, x, y, type);
		break;
	case PROGRAM_DROPOUT:
		return drop(engine, index, error);
	}
	return 0;
}

int cuda_forward(struct engine *engine, struct ddp_error *error)
{
	int status = 0;

	for (int i = 0; status == 0 && i < engine->program->op_count; i++) {
		status = run(engine, i, error);
		if (status == 0)
			status = device_check(engine->device, engine->program->ops[i].name, error);
	}
	return status;
}
