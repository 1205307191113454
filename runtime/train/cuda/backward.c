/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As the CPU's: the gradient of an operation's output is masked in place by the ReLU that ends it,
 * and lies there until it is passed on; after that nobody looks at it.
 */
#include "config.h"

#include "engine-private.h"

/* An operation on its way back. */
struct back {
	struct engine *engine;
	const struct program_op *op;
	const struct unit *unit;
	int index;
	void *stream;
	enum ddp_type type;
	void *dy;
	void *dx; /* where the input's gradient goes: NULL, its place, or the temporary one */
};

static size_t bytes_of(const struct back *back, int value)
{
	return cuda_elements(back->engine, value) * ddp_type_size(back->type);
}

/* Parameters become ready from the last to the first. */
static int both_ready(const struct back *back, struct ddp_error *error)
{
	int status = cuda_buckets_ready(back->engine, back->op->node->bias, error);

	if (status < 0)
		return status;
	return cuda_buckets_ready(back->engine, back->op->node->weight, error);
}

/* --- Convolutions and dense layers ------------------------------------------------------------- */

static void mask(const struct back *back)
{
	const void *y = cuda_value(back->engine, back->op->output);

	kernel_relu_back(back->stream, back->dy, y, back->dy,
			 cuda_elements(back->engine, back->op->output), back->type);
}

static void bias(const struct back *back)
{
	struct engine *engine = back->engine;
	struct graph_shape out = back->op->node->out;

	if (back->op->node->bias >= 0)
		kernel_column_sums(back->stream, back->dy,
				   engine->batch * (size_t)out.height * (size_t)out.width,
				   (size_t)out.channels, engine->memory.scratch,
				   cuda_slope(engine, back->op->node->bias), back->type);
}

static int first(const struct back *back, struct ddp_error *error)
{
	struct engine *engine = back->engine;
	const struct program_op *op = back->op;

	kernel_first_back(back->stream, &back->unit->first, engine->batch,
			  cuda_value(engine, op->input), back->dy,
			  op->relu && !op->masked ? cuda_value(engine, op->output) : NULL,
			  engine->memory.scratch, cuda_slope(engine, op->node->weight),
			  cuda_slope(engine, op->node->bias), back->type);
	return both_ready(back, error);
}

static int weights(const struct back *back, struct ddp_error *error)
{
	struct engine *engine = back->engine;
	const struct program_op *op = back->op;
	const void *x = cuda_value(engine, op->input);
	float *slope = cuda_slope(engine, op->node->weight);

	if (back->unit->conv)
		return conv_back_weights(back->unit->conv, DEVICE_COMPUTE, x, back->dy, slope,
					 engine->memory.scratch, error);
	return dense_back_weights(back->unit->dense, DEVICE_COMPUTE, x, back->dy, slope,
				  engine->memory.scratch, error);
}

static int data(const struct back *back, struct ddp_error *error)
{
	struct engine *engine = back->engine;
	const void *weight = cuda_weight(engine, back->op->node->weight);

	if (back->unit->conv)
		return conv_back_data(back->unit->conv, DEVICE_COMPUTE, back->dy, weight, back->dx,
				      engine->memory.scratch, error);
	return dense_back_data(back->unit->dense, DEVICE_COMPUTE, back->dy, weight, back->dx,
			       engine->memory.scratch, error);
}

static int math(const struct back *back, struct ddp_error *error)
{
	int status;

	if (!back->unit->conv && !back->unit->dense)
		return first(back, error);
	if (back->op->relu && !back->op->masked)
		mask(back);
	bias(back);
	status = weights(back, error);
	if (status == 0)
		status = both_ready(back, error);
	if (status == 0 && back->dx)
		status = data(back, error);
	return status;
}

/* --- The others -------------------------------------------------------------------------------- */

/* Let the gradient that lies in [dy] be that of [value], or with [accumulate] part of it. */
static int pass_on(const struct back *back, int value, bool accumulate, struct ddp_error *error)
{
	struct engine *engine = back->engine;
	void *to;

	if (value == PROGRAM_NONE || !engine->program->values[value].wanted)
		return 0;
	to = cuda_gradient(engine, value);
	if (accumulate)
		kernel_add(back->stream, back->dy, to, to, cuda_elements(engine, value), false,
			   back->type);
	else if (to != back->dy)
		return device_copy(engine->device, DEVICE_COMPUTE, to, back->dy,
				   bytes_of(back, value), error);
	return 0;
}

static int norm(const struct back *back, struct ddp_error *error)
{
	int status = cuda_norm_backward(back->engine, back->index, back->dx, error);

	if (status == 0)
		status = both_ready(back, error);
	if (status == 0)
		status = pass_on(back, back->op->other, back->op->accumulate_other, error);
	return status;
}

static int add(const struct back *back, struct ddp_error *error)
{
	const struct program_op *op = back->op;
	int status;

	if (op->relu)
		mask(back);
	status = pass_on(back, op->other, op->accumulate_other, error);
	if (status == 0)
		status = pass_on(back, op->input, op->accumulate, error);
	return status;
}

static void max_pool(const struct back *back)
{
	struct engine *engine = back->engine;
	const struct program_op *op = back->op;
	struct graph_shape in = op->node->in;
	struct kernel_pool pool = {in.height, in.width, in.channels, op->node->layer->size};

	const uint8_t *which = cuda_room(engine, op->which);
	const void *y = op->masks ? cuda_value(engine, op->output) : NULL;

	if (op->dropout != PROGRAM_NONE)
		kernel_max_pool_dropout_back(back->stream, &pool, engine->batch, back->dy, which, y,
					     engine->units[op->dropout].dropout.scale, back->dx,
					     back->type);
	else
		kernel_max_pool_back(back->stream, &pool, engine->batch, back->dy, which, y,
				     back->dx, back->type);
}

/* Where a ReLU was before it, its results say what it left: nothing is drawn again. A pool undoes both. */
static void undrop(const struct back *back)
{
	struct engine *engine = back->engine;
	const struct kernel_dropout *dropout = &back->unit->dropout;
	int output = back->op->output;

	if (back->op->inner)
		return;
	if (back->op->masks)
		kernel_relu_dropout_back(back->stream, back->dy, cuda_value(engine, output),
					 dropout->scale, back->dx, cuda_elements(engine, output),
					 back->type);
	else
		kernel_dropout(back->stream, dropout, engine->block.order, engine->block.orders,
			       engine->batch, engine->program->values[output].elements, back->dy,
			       back->dx, back->type);
}

static int run(const struct back *back, struct ddp_error *error)
{
	struct engine *engine = back->engine;
	const struct program_op *op = back->op;
	struct graph_shape in = op->node->in;

	switch (op->kind) {
	case PROGRAM_MATH:
		return math(back, error);
	case PROGRAM_NORM:
		return norm(back, error);
	case PROGRAM_ADD:
		return add(back, error);
	case PROGRAM_RELU:
		kernel_relu_back(back->stream, back->dy, cuda_value(engine, op->output), back->dx,
				 cuda_elements(engine, op->output), back->type);
		break;
	case PROGRAM_MAX_POOL:
		max_pool(back);
		break;
	case PROGRAM_AVERAGE_POOL:
		kernel_average_pool_back(back->stream, engine->batch,
					 (size_t)in.height * (size_t)in.width, (size_t)in.channels,
					 back->dy, back->dx, back->type);
		break;
	case PROGRAM_DROPOUT:
		undrop(back);
		break;
	}
	return 0;
}

static int run_op(struct engine *engine, int index, struct ddp_error *error)
{
	const struct program *program = engine->program;
	const struct program_op *op = &program->ops[index];
	struct back back = {.engine = engine,
			    .op = op,
			    .unit = &engine->units[index],
			    .index = index,
			    .stream = cuda_stream(engine),
			    .type = engine->setup.type};
	int status;

	if (!program->values[op->output].wanted)
		return 0;
	back.dy = cuda_gradient(engine, op->output);
	if (program->values[op->input].wanted)
		back.dx = op->temporary != PROGRAM_NONE ? cuda_room(engine, op->temporary)
							: cuda_gradient(engine, op->input);
	status = run(&back, error);
	if (status == 0 && op->temporary != PROGRAM_NONE) {
		void *to = cuda_gradient(engine, op->input);

		kernel_add(back.stream, back.dx, to, to, cuda_elements(engine, op->input), false,
			   back.type);
	}
	return status < 0 ? status : device_check(engine->device, op->name, error);
}

int cuda_backward(struct engine *engine, struct ddp_error *error)
{
	int status = 0;

	for (int i = engine->program->op_count - 1; status == 0 && i >= 0; i--)
		status = run_op(engine, i, error);
	return status;
}
