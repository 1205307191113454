/* SPDX-License-Identifier: Apache-2.0 */
/*
 * walk.c - a program's operations, from the first to the last and back
 *
 * As the CPU's: the gradient of an operation's output is masked in place by the ReLU that ends it,
 * and lies there until it is passed on; after that nobody looks at it.
 */
#include "config.h"

#include "engine-private.h"

/* --- Where things are --------------------------------------------------------------------------- */

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

	if (!narrow || parameter < 0)
		return cuda_parameter(engine, parameter);
	return narrow + engine->setup.model->offsets[parameter] * ddp_type_size(engine->setup.type);
}

size_t cuda_elements(const struct engine *engine, int index)
{
	return engine->batch * engine->program->values[index].elements;
}

struct kernel_scratch cuda_scratch(const struct engine *engine)
{
	return (struct kernel_scratch){engine->memory.scratch, engine->memory.tickets};
}

void *cuda_stream(const struct engine *engine)
{
	return device_stream(engine->device, DEVICE_COMPUTE);
}

/* --- BatchNorm ---------------------------------------------------------------------------------- */

/*
 * As the CPU engine's norm.c says it. What ranks tell each other goes on COMPUTE, behind the sums of
 * gradients that are under way: a communicator does one thing at a time, in one order on all ranks.
 */
static float *running(const struct engine *engine, int buffer)
{
	return engine->memory.buffers + engine->setup.model->buffer_offsets[buffer];
}

/* The means and variances of the batch, of this rank or of all, in the unit's statistics. */
static int measure(struct engine *engine, int index, struct ddp_error *error)
{
	const struct program_op *op = &engine->program->ops[index];
	const struct unit *unit = &engine->units[index];
	const struct cuda_memory *memory = &engine->memory;
	size_t bytes = (1 + 2 * unit->norm.channels) * sizeof(float);
	float *mean = running(engine, op->node->mean);
	float *variance = running(engine, op->node->variance);
	struct kernel_scratch scratch = cuda_scratch(engine);
	void *stream = cuda_stream(engine);
	int status;

	if (!engine->sync_norm) {
		kernel_norm_measure(stream, &unit->norm, engine->block.order, engine->batch,
				    cuda_value(engine, op->input), &scratch, unit->statistics, mean,
				    variance, engine->setup.type);
		return 0;
	}
	kernel_norm_moments(stream, &unit->norm, engine->block.order, engine->batch,
			    cuda_value(engine, op->input), &scratch, memory->moments,
			    engine->setup.type);
	status = cuda_told(engine,
			   ddp_device_all_gather(engine->setup.ddp, memory->moments,
						 memory->gathered, bytes, stream),
			   error);
	kernel_norm_combine(stream, &unit->norm, memory->gathered, engine->ranks, unit->statistics,
			    mean, variance);
	return status;
}

static int norm_forward(struct engine *engine, int index, struct ddp_error *error)
{
	const struct program_op *op = &engine->program->ops[index];
	const struct unit *unit = &engine->units[index];
	int status = 0;

	if (engine->mode == PROGRAM_TRAIN)
		status = measure(engine, index, error);
	else
		kernel_norm_fixed(cuda_stream(engine), &unit->norm, running(engine, op->node->mean),
				  running(engine, op->node->variance), unit->statistics);
	if (status < 0)
		return status;
	kernel_norm_apply(cuda_stream(engine), &unit->norm, engine->batch,
			  cuda_value(engine, op->input), unit->statistics,
			  cuda_parameter(engine, op->node->weight),
			  cuda_parameter(engine, op->node->bias),
			  op->other == PROGRAM_NONE ? NULL : cuda_value(engine, op->other),
			  op->relu, cuda_value(engine, op->output), engine->setup.type);
	return 0;
}

/* The gradients of shift and scale, from one array or already where they lie. */
static int keep_slopes(struct engine *engine, const struct program_op *op, const float *sums,
		       size_t channels, struct ddp_error *error)
{
	float *shift = cuda_slope(engine, op->node->bias);
	float *scale = cuda_slope(engine, op->node->weight);
	size_t bytes = channels * sizeof(float);
	int status;

	if (sums == shift)
		return 0;
	status = device_copy(engine->device, DEVICE_COMPUTE, shift, sums, bytes, error);
	if (status < 0)
		return status;
	return device_copy(engine->device, DEVICE_COMPUTE, scale, sums + channels, bytes, error);
}

/*
 * The sums of this rank become those of all; in [memory.sums], since gradients are this rank's. Behind
 * what REDUCE has begun in this step.
 */
static int share(struct engine *engine, const float **sums, size_t channels,
		 struct ddp_error *error)
{
	float *all = engine->memory.sums;
	int status = 0;

	if (*sums != all)
		status = device_copy(engine->device, DEVICE_COMPUTE, all, *sums,
				     2 * channels * sizeof(float), error);
	/* A graph that REDUCE is not yet part of knows nothing of it: it is tied to it first. */
	if (status == 0 && engine->manner != CUDA_BY_CALL)
		status = device_order(engine->device, DEVICE_REDUCE, DEVICE_COMPUTE, error);
	if (status == 0 && engine->manner != CUDA_BY_CALL)
		status = device_order(engine->device, DEVICE_COMPUTE, DEVICE_REDUCE, error);
	if (status == 0)
		status = cuda_told(engine,
				   ddp_device_all_reduce(engine->setup.ddp, all, all, 2 * channels,
							 DDP_F32, DDP_SUM, cuda_stream(engine)),
				   error);
	*sums = all;
	return status;
}

/*
 * What the ReLU behind let through: where nothing was added before it, BatchNorm's kernels know from x, and
 * neither y is read nor dy written. Else somebody else wants dy as the ReLU leaves it.
 */
static struct kernel_norm_relu relu_of(const struct engine *engine, const struct program_op *op)
{
	if (!op->relu)
		return (struct kernel_norm_relu){NULL, NULL, NULL};
	if (op->other != PROGRAM_NONE)
		return (struct kernel_norm_relu){cuda_value(engine, op->output), NULL, NULL};
	return (struct kernel_norm_relu){NULL, cuda_parameter(engine, op->node->weight),
					 cuda_parameter(engine, op->node->bias)};
}

static int norm_backward(struct engine *engine, int index, void *dx, struct ddp_error *error)
{
	const struct program_op *op = &engine->program->ops[index];
	const struct unit *unit = &engine->units[index];
	struct kernel_norm_relu relu = relu_of(engine, op);
	size_t channels = unit->norm.channels;
	float *shift = cuda_slope(engine, op->node->bias);
	bool joined = cuda_slope(engine, op->node->weight) == shift + channels;
	float *mine = joined ? shift : engine->memory.sums;
	const float *sums = mine;
	void *dy = cuda_gradient(engine, op->output), *more = NULL;
	int second = engine->program->values[op->output].second;
	struct kernel_scratch scratch = cuda_scratch(engine);
	const float *again;
	int status;

	if (second != PROGRAM_NONE)
		more = cuda_room(engine, second);
	again = more ? NULL : relu.shift;
	kernel_norm_sums(cuda_stream(engine), &unit->norm, engine->batch,
			 cuda_value(engine, op->input), unit->statistics, &relu, dy, more,
			 again ? NULL : dy, &scratch, mine, engine->setup.type);
	status = keep_slopes(engine, op, mine, channels, error);
	if (status == 0 && engine->sync_norm)
		status = share(engine, &sums, channels, error);
	if (status == 0 && dx)
		kernel_norm_back(cuda_stream(engine), &unit->norm, engine->block.order,
				 engine->batch, cuda_value(engine, op->input), unit->statistics,
				 cuda_parameter(engine, op->node->weight), again, sums, dy, dx,
				 engine->setup.type);
	return status;
}

/* --- Forwards ---------------------------------------------------------------------------------- */

static int forward_math(struct engine *engine, int index, struct ddp_error *error)
{
	const struct program_op *op = &engine->program->ops[index];
	const struct unit *unit = &engine->units[index];
	bool test = engine->mode == PROGRAM_TEST;
	const void *bias = cuda_weight(engine, op->node->bias);
	const void *weights = cuda_weight(engine, op->node->weight);
	const void *x = cuda_value(engine, op->input);
	void *y = cuda_value(engine, op->output);

	if (unit->layer)
		return layer_forward(unit->layer, test, x, weights, bias, y, engine->memory.scratch,
				     error);
	kernel_first(cuda_stream(engine), &unit->first, engine->batch, x,
		     cuda_parameter(engine, op->node->weight),
		     cuda_parameter(engine, op->node->bias), op->relu, y, engine->setup.type);
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
static void max_pool_forward(struct engine *engine, const struct program_op *op)
{
	struct graph_shape in = op->node->in;
	struct kernel_pool pool = {in.height, in.width, in.channels, op->node->layer->size};
	const struct kernel_dropout *dropout = NULL;

	if (op->dropout != PROGRAM_NONE && engine->mode == PROGRAM_TRAIN)
		dropout = &engine->units[op->dropout].dropout;
	kernel_max_pool(cuda_stream(engine), &pool, dropout, engine->block.order,
			engine->block.orders, engine->batch, cuda_value(engine, op->input),
			cuda_value(engine, op->output), cuda_room(engine, op->which),
			engine->setup.type);
}

/*
 * The last layer, where one kernel does it with the loss and its own way back, and with a dropout in front of
 * it that masks: NULL where it does not. [undone] is that dropout or NULL.
 */
static const struct program_op *last_of(const struct engine *engine,
					const struct program_op **undone)
{
	const struct program *program = engine->program;
	const struct program_op *op = &program->ops[program->op_count - 1];
	const struct program_value *input = &program->values[op->input];

	*undone = NULL;
	if (engine->mode != PROGRAM_TRAIN || op->kind != PROGRAM_MATH || op->relu ||
	    op->node->layer->kind != NET_DENSE || op->node->bias < 0 || !input->wanted ||
	    op->temporary != PROGRAM_NONE ||
	    !kernel_last_fits(input->elements, program_result(program)->elements))
		return NULL;
	for (int i = 0; i < program->op_count - 1; i++) {
		const struct program_op *before = &program->ops[i];

		if (before->output == op->input && before->kind == PROGRAM_DROPOUT &&
		    before->masks && !before->inner && input->readers == 1)
			*undone = before;
	}
	return op;
}

static int forward(struct engine *engine, int index, struct ddp_error *error)
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
		return norm_forward(engine, index, error);
	case PROGRAM_ADD:
		kernel_add(stream, x, cuda_value(engine, op->other), y, all, op->relu, type);
		break;
	case PROGRAM_RELU:
		kernel_relu(stream, x, y, all, type);
		break;
	case PROGRAM_MAX_POOL:
		max_pool_forward(engine, op);
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
	const struct program_op *undone;
	int count = engine->program->op_count - (last_of(engine, &undone) != NULL), status = 0;

	for (int i = 0; status == 0 && i < count; i++) {
		status = forward(engine, i, error);
		if (status == 0)
			status = device_check(engine->device, engine->program->ops[i].name, error);
	}
	return status;
}

/* --- Backwards --------------------------------------------------------------------------------- */

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
static int both_ready(struct engine *engine, const struct program_op *op, struct ddp_error *error)
{
	int status = cuda_sums_ready(engine, op->node->bias, error);

	return status < 0 ? status : cuda_sums_ready(engine, op->node->weight, error);
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
	struct kernel_scratch scratch = cuda_scratch(engine);

	if (back->op->node->bias >= 0 && !back->unit->has_sums)
		kernel_column_sums(back->stream, back->dy,
				   engine->batch * (size_t)out.height * (size_t)out.width,
				   (size_t)out.channels, &scratch,
				   cuda_slope(engine, back->op->node->bias), back->type);
}

static int first(const struct back *back, struct ddp_error *error)
{
	struct engine *engine = back->engine;
	const struct program_op *op = back->op;
	struct kernel_scratch scratch = cuda_scratch(engine);

	kernel_first_back(back->stream, &back->unit->first, engine->batch,
			  cuda_value(engine, op->input), back->dy,
			  op->relu && !op->masked ? cuda_value(engine, op->output) : NULL, &scratch,
			  cuda_slope(engine, op->node->weight), cuda_slope(engine, op->node->bias),
			  back->type);
	return both_ready(back->engine, back->op, error);
}

static int weights(const struct back *back, struct ddp_error *error)
{
	struct engine *engine = back->engine;
	const struct program_op *op = back->op;
	const struct model *model = engine->setup.model;
	const void *x = cuda_value(engine, op->input);
	float *slope = cuda_slope(engine, op->node->weight);
	float *sums = cuda_slope(engine, op->node->bias);
	char *narrow = engine->memory.narrow_gradients;
	int status;

	if (!back->unit->narrow)
		return layer_back_weights(back->unit->layer, x, back->dy, slope, sums,
					  engine->memory.scratch, error);
	narrow += model->offsets[op->node->weight] * ddp_type_size(back->type);
	status = layer_back_weights(back->unit->layer, x, back->dy, narrow, sums,
				    engine->memory.scratch, error);
	/* What is summed over ranks is f32: ddp.h's views. */
	if (status == 0 && engine->ranks > 1)
		kernel_widen(back->stream, narrow, slope,
			     model->graph->parameters[op->node->weight].count, back->type);
	return status;
}

static int data(const struct back *back, struct ddp_error *error)
{
	struct engine *engine = back->engine;
	const void *weight = cuda_weight(engine, back->op->node->weight);

	return layer_back_data(back->unit->layer, back->dy, weight, back->dx,
			       engine->memory.scratch, error);
}

static int math(const struct back *back, struct ddp_error *error)
{
	int status;

	if (!back->unit->layer)
		return first(back, error);
	if (back->op->relu && !back->op->masked)
		mask(back);
	bias(back);
	status = weights(back, error);
	if (status == 0)
		status = both_ready(back->engine, back->op, error);
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
	int status = norm_backward(back->engine, back->index, back->dx, error);

	if (status == 0)
		status = both_ready(back->engine, back->op, error);
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
	bool drops = op->dropout != PROGRAM_NONE;
	float scale = drops ? engine->units[op->dropout].dropout.scale : 1;
	struct kernel_scratch scratch = cuda_scratch(engine);

	kernel_max_pool_back(back->stream, &pool, engine->batch, back->dy, which, y, scale,
			     back->dx, &scratch, cuda_slope(engine, back->unit->sums), back->type);
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

static int backward(const struct back *back, struct ddp_error *error)
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

static int backward_op(struct engine *engine, int index, struct ddp_error *error)
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
	status = backward(&back, error);
	if (status == 0 && op->temporary != PROGRAM_NONE && !op->left) {
		void *to = cuda_gradient(engine, op->input);

		kernel_add(back.stream, back.dx, to, to, cuda_elements(engine, op->input), false,
			   back.type);
	}
	return status < 0 ? status : device_check(engine->device, op->name, error);
}

/* The loss, or with it the last layer and its way back. */
static void close_forward(struct engine *engine, const struct program_op *op,
			  const struct program_op *undone)
{
	const struct program_value *result = program_result(engine->program);
	float *word = engine->memory.gradients + engine->setup.model->count;
	struct kernel_scratch scratch = cuda_scratch(engine);
	struct kernel_last last;

	if (!op) {
		kernel_loss(cuda_stream(engine), cuda_room(engine, result->data),
			    engine->block.labels, engine->block.order, engine->memory.state,
			    engine->batch, result->elements, engine->setup.smoothing,
			    cuda_room(engine, result->gradient), word, &scratch,
			    engine->setup.type);
		return;
	}
	last = (struct kernel_last){
		.inputs = engine->program->values[op->input].elements,
		.classes = result->elements,
		.x = cuda_value(engine, op->input),
		.weights = cuda_weight(engine, op->node->weight),
		.bias = cuda_parameter(engine, op->node->bias),
		.dx = cuda_gradient(engine, undone ? undone->input : op->input),
		.weight_slopes = cuda_slope(engine, op->node->weight),
		.bias_slopes = cuda_slope(engine, op->node->bias),
	};
	if (undone)
		last.drop = engine->units[undone - engine->program->ops].dropout.scale;
	kernel_last(cuda_stream(engine), &last, engine->block.order, engine->memory.state,
		    engine->batch, engine->block.labels, engine->setup.smoothing, word, &scratch,
		    engine->setup.type);
}

int cuda_backward(struct engine *engine, struct ddp_error *error)
{
	const struct program_op *undone, *last = last_of(engine, &undone);
	int count = engine->program->op_count - (last != NULL), status;

	close_forward(engine, last, undone);
	status = device_check(engine->device, "the loss", error);
	if (status == 0)
		status = cuda_sums_ready(engine, CUDA_WORD, error);
	if (status == 0 && last)
		status = both_ready(engine, last, error);
	for (int i = count - 1; status == 0 && i >= 0; i--) {
		if (&engine->program->ops[i] != undone)
			status = backward_op(engine, i, error);
	}
	return status;
}
