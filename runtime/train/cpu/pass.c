/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pass.c - forward and backward pass of the operations of a program
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/watch.h"
#include "engine-private.h"

/* --- Functions for choose.c and engine.c -------------------------------------------------- */

struct math_options engine_math_options(const struct engine *engine, const struct program_op *op)
{
	const struct net_layer *layer = op->node->layer;
	struct graph_shape in = op->node->in;
	size_t batch = engine->setup.batch;
	struct math_options options = {
		.height = in.height,
		.width = in.width,
		.in = in.channels,
		.out = op->node->out.channels,
		.size = layer->size,
		.stride = layer->stride > 0 ? layer->stride : 1,
		.pad = layer->pad,
		.dense = layer->kind == NET_DENSE,
		.bias = op->node->bias >= 0,
		.relu = op->relu,
		.first = !engine->program->values[op->input].wanted,
		.type = engine->setup.type,
		.batch = engine->piece > batch ? engine->piece : batch,
		.threads = engine->threads,
	};

	if (options.dense) {
		options.in = (int)graph_size(in);
		options.height = options.width = options.size = 1;
	}
	return options;
}

struct kernel_window engine_window(const struct graph_node *node)
{
	return (struct kernel_window){node->in.height, node->in.width, node->in.channels,
				      node->out.channels, node->layer->size};
}

int engine_fail(const struct engine *engine, int status, struct ddp_error *error)
{
	return ddp_error_set(error, status, "%s", ddp_error(engine->setup.ddp));
}

/* --- BatchNorm --------------------------------------------------------------------------- */

/*
 * BatchNorm works as PyTorch defines it. A batch is normalised with its biased variance, and the
 * running variance is an average of unbiased variances. With SyncBatchNorm the means, the variances
 * and the sums of the backward pass are over all ranks. The gradients of scale and shift are sums
 * over this rank's samples only, because libddp sums these gradients over all ranks later.
 */

#define EPSILON 1e-5
#define MOMENTUM 0.1f

static void *gradient_at(const struct engine *engine, int index)
{
	return engine_area(engine, engine->program->values[index].gradient);
}

static struct kernel_norm norm_of(const struct engine *engine, int index, size_t count)
{
	const struct program_op *op = &engine->program->ops[index];
	const struct model *model = engine->setup.model;
	struct graph_shape shape = op->node->in;

	return (struct kernel_norm){
		.rows = count * (size_t)shape.height * (size_t)shape.width,
		.channels = (size_t)shape.channels,
		.scale = model_value(model, (size_t)op->node->weight),
		.shift = model_value(model, (size_t)op->node->bias),
		.mean = engine->units[index].mean,
		.inverse = engine->units[index].inverse,
	};
}

/*
 * Computes means and sums of squared deviations ([m2]) over the rows of this rank or, with
 * SyncBatchNorm, of all ranks.
 */
static int measure(struct engine *engine, int index, const struct kernel_norm *norm, float *m2,
		   struct ddp_error *error)
{
	struct unit *unit = &engine->units[index];
	double begin;
	int status;

	memset(norm->mean, 0, norm->channels * sizeof(float));
	memset(m2, 0, norm->channels * sizeof(float));
	engine->kernels->moments(engine_value(engine, engine->program->ops[index].input),
				 norm->rows, norm->channels, norm->mean, m2, engine->setup.type);
	unit->rows = (double)norm->rows;
	if (!engine->sync_norm)
		return 0;
	begin = ddp_seconds();
	status = ddp_all_reduce_moments(engine->setup.ddp, &unit->rows, norm->mean, m2,
					norm->channels);
	engine->seconds[ENGINE_REDUCE] += ddp_seconds() - begin;
	return status < 0 ? engine_fail(engine, status, error) : 0;
}

static void move_running(const struct engine *engine, int index, const struct kernel_norm *norm,
			 const float *m2)
{
	const struct graph_node *node = engine->program->ops[index].node;
	const struct model *model = engine->setup.model;
	float *mean = model_buffer(model, (size_t)node->mean);
	float *variance = model_buffer(model, (size_t)node->variance);
	double rows = engine->units[index].rows, free = rows > 1 ? rows - 1 : 1;

	for (size_t c = 0; c < norm->channels; c++) {
		float unbiased = (float)((double)m2[c] / free);

		mean[c] = (1 - MOMENTUM) * mean[c] + MOMENTUM * norm->mean[c];
		variance[c] = (1 - MOMENTUM) * variance[c] + MOMENTUM * unbiased;
	}
}

static void invert(const struct kernel_norm *norm, const float *variance, double divisor)
{
	for (size_t c = 0; c < norm->channels; c++)
		norm->inverse[c] = (float)(1 / sqrt((double)variance[c] / divisor + EPSILON));
}

/*
 * Runs BatchNorm of operation [index]. If [train] is true, normalises with the statistics of the
 * batch, and updates the running statistics. Otherwise normalises with the running statistics.
 */
static int norm_forward(struct engine *engine, int index, size_t count, bool train,
			struct ddp_error *error)
{
	const struct program_op *op = &engine->program->ops[index];
	const struct model *model = engine->setup.model;
	struct kernel_norm norm = norm_of(engine, index, count);
	float *m2 = engine->scratch;

	if (train) {
		int status = measure(engine, index, &norm, m2, error);

		if (status < 0)
			return status;
		if (engine->part == 0)
			move_running(engine, index, &norm, m2);
		invert(&norm, m2, engine->units[index].rows);
	} else {
		norm.mean = model_buffer(model, (size_t)op->node->mean);
		invert(&norm, model_buffer(model, (size_t)op->node->variance), 1);
	}
	engine->kernels->norm(&norm, engine_value(engine, op->input),
			      op->other == PROGRAM_NONE ? NULL : engine_value(engine, op->other),
			      engine_value(engine, op->output), op->relu, engine->setup.type);
	return 0;
}

/* Computes the two sums of each channel, which are also the gradients of shift and scale. */
static int sum(struct engine *engine, int index, const struct kernel_norm *norm, const void *y,
	       struct ddp_error *error)
{
	const struct program_op *op = &engine->program->ops[index];
	const struct model *model = engine->setup.model;
	size_t channels = norm->channels;
	float *sums = engine->scratch;
	double begin;
	int status;

	memset(sums, 0, 2 * channels * sizeof(float));
	engine->kernels->norm_sums(norm, engine_value(engine, op->input), y,
				   gradient_at(engine, op->output), sums, engine->setup.type);
	memcpy(model_gradient(model, (size_t)op->node->bias), sums, channels * sizeof(float));
	memcpy(model_gradient(model, (size_t)op->node->weight), sums + channels,
	       channels * sizeof(float));
	if (!engine->sync_norm)
		return 0;
	begin = ddp_seconds();
	status = ddp_all_reduce(engine->setup.ddp, sums, sums, 2 * channels, DDP_F32, DDP_SUM);
	engine->seconds[ENGINE_REDUCE] += ddp_seconds() - begin;
	return status < 0 ? engine_fail(engine, status, error) : 0;
}

static int norm_backward(struct engine *engine, int index, size_t count, void *dx,
			 struct ddp_error *error)
{
	const struct program_op *op = &engine->program->ops[index];
	struct kernel_norm norm = norm_of(engine, index, count);
	const void *y = op->relu ? engine_value(engine, op->output) : NULL;
	void *dy = gradient_at(engine, op->output);
	size_t all = norm.rows * norm.channels;
	bool other = op->other != PROGRAM_NONE && engine->program->values[op->other].wanted;
	int status = sum(engine, index, &norm, y, error);

	if (status < 0)
		return status;
	if (dx)
		engine->kernels->norm_back(&norm, engine_value(engine, op->input), y, dy,
					   engine->scratch, engine->units[index].rows, dx,
					   other ? dy : NULL, engine->setup.type);
	else if (other && y)
		engine->kernels->relu_back(dy, y, dy, all, engine->setup.type);
	return 0;
}

/* --- Forward pass ------------------------------------------------------------------------ */

void *engine_area(const struct engine *engine, int area)
{
	return engine->memory + engine->program->areas[area].offset[engine->mode];
}

void *engine_value(const struct engine *engine, int index)
{
	return engine_area(engine, engine->program->values[index].data);
}

/* If the model's parameters have changed, loads the new values into the library's layers. */
static void load(struct engine *engine)
{
	for (int i = 0; engine->stale && i < engine->program->op_count; i++) {
		const struct program_op *op = &engine->program->ops[i];
		const struct model *model = engine->setup.model;
		const float *bias;

		if (op->kind != PROGRAM_MATH)
			continue;
		bias = op->node->bias >= 0 ? model_value(model, (size_t)op->node->bias) : NULL;
		engine->math->load(engine->units[i].math,
				   model_value(model, (size_t)op->node->weight), bias);
	}
	engine->stale = false;
}

/* Returns the address of image number [image] in value [index]. */
static char *image_of(const struct engine *engine, int index, size_t image)
{
	return (char *)engine_value(engine, index) +
	       image * engine->program->values[index].elements * ddp_type_size(engine->setup.type);
}

/* Max-pools the [count] images at [x] into the output's images from [image] on. */
static void max_pool(const struct engine *engine, const struct program_op *op, const void *x,
		     size_t image, size_t count)
{
	struct graph_shape in = op->node->in;
	size_t elements = engine->program->values[op->output].elements;
	void *y = image_of(engine, op->output, image);
	uint8_t *which = (uint8_t *)engine_area(engine, op->which) + image * elements;

	engine->kernels->max_pool(x, y, which, count, in.height, in.width, in.channels,
				  engine->setup.type);
}

/*
 * Runs a convolution and the max-pool after it on a few images at a time. The numbers of images
 * differ by at most one.
 */
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
	return engine->math->forward(engine->units[index].math, count,
				     engine_value(engine, op->input),
				     engine_value(engine, op->output), error);
}

static void drop(struct engine *engine, int index, const struct batch *batch, size_t count)
{
	const struct program_op *op = &engine->program->ops[index];
	const struct dropout *dropout = &engine->units[index].dropout;
	size_t elements = engine->program->values[op->output].elements;
	uint8_t *keep = engine_area(engine, op->keep);

	dropout_draw(dropout, batch->seed, batch->epoch, batch->orders, count, elements, keep);
	engine->kernels->mask(engine_value(engine, op->input), engine_value(engine, op->output),
			      keep, dropout->scale, count * elements, engine->setup.type);
}

/* Runs a dropout in an evaluation, where a dropout only copies its input. */
static void copy_input(const struct engine *engine, const struct program_op *op, size_t count)
{
	const char *x = engine_value(engine, op->input);
	char *y = engine_value(engine, op->output);
	size_t bytes = count * engine->program->values[op->output].elements *
		       ddp_type_size(engine->setup.type);

	if (x != y)
		__builtin_memcpy(y, x, bytes);
}

static int run_forward(struct engine *engine, int index, const struct batch *batch, size_t count,
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
			copy_input(engine, op, count);
		break;
	}
	return 0;
}

int engine_forward(struct engine *engine, const struct batch *batch, size_t count,
		   struct ddp_error *error)
{
	int status = 0;

	load(engine);
	for (int i = 0; status == 0 && i < engine->program->op_count; i++)
		status = run_forward(engine, i, batch, count, error);
	return status;
}

/* --- Backward pass ----------------------------------------------------------------------- */

/*
 * The ReLU that ends an operation masks the gradient of the operation's output in place. This is
 * safe because nothing reads that gradient after it was passed on to the operation's inputs.
 */

struct back {
	struct engine *engine;
	const struct program_op *op;
	struct unit *unit;
	int index;
	size_t count;
	/*
	 * gradient of the output of the operation or, with a list, of the last operation that the
	 * list covers
	 */
	void *dy;
	void *dx; /* gradient of the input: NULL if not needed, its area, or the temporary area */
};

static size_t count_elements(const struct back *back, int value)
{
	return back->count * back->engine->program->values[value].elements;
}

static int ready(const struct back *back, int parameter)
{
	struct engine *engine = back->engine;
	double begin = ddp_seconds();
	int status;

	/*
	 * SyncBatchNorm's all-reduce must not run while libddp sums gradients. Therefore, with
	 * SyncBatchNorm, ready_all() reports all gradients after the backward pass.
	 */
	if (parameter < 0 || engine->sync_norm)
		return 0;
	status = ddp_gradients_ready(engine->setup.model->gradients, (size_t)parameter + 1);
	engine->seconds[ENGINE_REDUCE] += ddp_seconds() - begin;
	return status;
}

/* Reports the operation's parameters to libddp as ready, from the last to the first. */
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

static int dense(const struct back *back, struct ddp_error *error)
{
	const struct engine *engine = back->engine;
	const struct program_op *op = back->op;
	const void *x = engine_value(engine, op->input);
	int status;

	if (op->relu && !op->masked)
		engine->kernels->relu_back(back->dy, engine_value(engine, op->output), back->dy,
					   count_elements(back, op->output), engine->setup.type);
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
		keep = engine_area(engine, engine->program->ops[op->dropout].keep);
		scale = engine->units[op->dropout].dropout.scale;
	}
	engine->kernels->list(&back->unit->window, back->count, back->dy,
			      engine_value(engine, program_gradient(engine->program, op)),
			      engine_area(engine, pool->which), keep, scale, back->unit->list,
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

/* Adds or copies the gradient in [dy] to the gradient of the second input. */
static void pass_to_other(const struct back *back)
{
	const struct engine *engine = back->engine;
	int other = back->op->other;
	void *to;

	if (other == PROGRAM_NONE || !engine->program->values[other].wanted)
		return;
	to = gradient_at(engine, other);
	if (back->op->accumulate_other)
		engine->kernels->add(back->dy, to, to, count_elements(back, other), false,
				     engine->setup.type);
	else if (to != back->dy)
		memcpy(to, back->dy,
		       count_elements(back, other) * ddp_type_size(engine->setup.type));
}

static int norm(const struct back *back, struct ddp_error *error)
{
	int status = norm_backward(back->engine, back->index, back->count, back->dx, error);

	if (status == 0)
		status = both_ready(back, error);
	if (status == 0)
		pass_to_other(back);
	return status;
}

static void add(const struct back *back)
{
	const struct engine *engine = back->engine;
	const struct program_op *op = back->op;
	size_t all = count_elements(back, op->output);
	enum ddp_type type = engine->setup.type;

	if (op->relu)
		engine->kernels->relu_back(back->dy, engine_value(engine, op->output), back->dy,
					   all, type);
	pass_to_other(back);
	if (!back->dx)
		return;
	if (op->accumulate)
		engine->kernels->add(back->dy, back->dx, back->dx, all, false, type);
	else if (back->dx != back->dy)
		memcpy(back->dx, back->dy, all * ddp_type_size(type));
}

static void max_pool_back(const struct back *back)
{
	const struct engine *engine = back->engine;
	struct graph_shape in = back->op->node->in;

	if (back->op->masks)
		engine->kernels->relu_back(back->dy, engine_value(engine, back->op->output),
					   back->dy, count_elements(back, back->op->output),
					   engine->setup.type);
	engine->kernels->max_pool_back(back->dy, engine_area(engine, back->op->which), back->dx,
				       back->count, in.height, in.width, in.channels,
				       engine->setup.type);
}

static int run_back(const struct back *back, struct ddp_error *error)
{
	const struct engine *engine = back->engine;
	const struct program_op *op = back->op;
	struct graph_shape in = op->node->in;
	enum ddp_type type = engine->setup.type;

	switch (op->kind) {
	case PROGRAM_MATH:
		return op->listed ? listed(back, error) : dense(back, error);
	case PROGRAM_NORM:
		return norm(back, error);
	case PROGRAM_ADD:
		add(back);
		break;
	case PROGRAM_RELU:
		engine->kernels->relu_back(back->dy, engine_value(engine, op->output), back->dx,
					   count_elements(back, op->output), type);
		break;
	case PROGRAM_MAX_POOL:
		max_pool_back(back);
		break;
	case PROGRAM_AVERAGE_POOL:
		engine->kernels->average_pool_back(back->dy, back->dx, back->count,
						   (size_t)in.height * (size_t)in.width,
						   (size_t)in.channels, type);
		break;
	case PROGRAM_DROPOUT:
		engine->kernels->mask(back->dy, back->dx, engine_area(engine, op->keep),
				      back->unit->dropout.scale, count_elements(back, op->output),
				      type);
		break;
	}
	return 0;
}

static int run_op_back(struct engine *engine, int index, size_t count, struct ddp_error *error)
{
	const struct program *program = engine->program;
	const struct program_op *op = &program->ops[index];
	struct back back = {engine, op, &engine->units[index], index, count, NULL, NULL};
	int status;

	if (op->skipped || !program->values[op->output].wanted)
		return 0;
	back.dy = gradient_at(engine, program_gradient(program, op));
	if (program->values[op->input].wanted)
		back.dx = op->temporary != PROGRAM_NONE ? engine_area(engine, op->temporary)
							: gradient_at(engine, op->input);
	status = run_back(&back, error);
	if (status == 0 && op->temporary != PROGRAM_NONE) {
		void *to = gradient_at(engine, op->input);

		engine->kernels->add(back.dx, to, to, count_elements(&back, op->input), false,
				     engine->setup.type);
	}
	return status;
}

/* With SyncBatchNorm, reports all parameters to libddp as ready, from the last to the first. */
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

	for (int i = engine->program->op_count - 1; status == 0 && i >= 0; i--)
		status = run_op_back(engine, i, count, error);
	if (status == 0 && engine->sync_norm) {
		double begin = ddp_seconds();

		status = ready_all(engine, error);
		engine->seconds[ENGINE_REDUCE] += ddp_seconds() - begin;
	}
	return status;
}
