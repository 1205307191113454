/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BatchNorm as PyTorch's: a batch is normalised by its biased variance, the running variance is of
 * the unbiased ones. With SyncBatchNorm's rules means, variances and the sums of the backward
 * pass are over all ranks; the gradients of scale and shift are this rank's part.
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/watch.h"
#include "engine-private.h"

#define EPSILON 1e-5
#define MOMENTUM 0.1f

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

/* Over this rank's rows or all ranks': means, and sums of squares in [m2]. */
static int measure(struct engine *engine, int index, const struct kernel_norm *norm, float *m2,
		   struct ddp_error *error)
{
	struct unit *unit = &engine->units[index];
	double begin;
	int status;

	memset(norm->mean, 0, norm->channels * sizeof(float));
	memset(m2, 0, norm->channels * sizeof(float));
	if (norm->rows > 0)
		engine->kernels->moments(engine_value(engine, engine->program->ops[index].input),
					 norm->rows, norm->channels, norm->mean, m2,
					 engine->setup.type);
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

int norm_forward(struct engine *engine, int index, size_t count, bool train,
		 struct ddp_error *error)
{
	const struct program_op *op = &engine->program->ops[index];
	const struct model *model = engine->setup.model;
	struct kernel_norm norm = norm_of(engine, index, count);
	float *m2 = engine->scratch;

	if (train) {
		int status = measure(engine, index, &norm, m2, error);

		if (status < 0 || engine->units[index].rows < 1)
			return status;
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

void norm_again(const struct engine *engine, int index, size_t count)
{
	const struct program_op *op = &engine->program->ops[index];
	struct kernel_norm norm = norm_of(engine, index, count);

	engine->kernels->norm(&norm, engine_value(engine, op->input), NULL,
			      engine_value(engine, op->output), op->relu, engine->setup.type);
}

/* The two sums of each channel, and with them the gradients of shift and scale. */
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
	if (norm->rows > 0)
		engine->kernels->norm_sums(norm, engine_value(engine, op->input), y,
					   engine_gradient(engine, op->output), sums,
					   engine->setup.type);
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

int norm_backward(struct engine *engine, int index, size_t count, void *dx, struct ddp_error *error)
{
	const struct program_op *op = &engine->program->ops[index];
	struct kernel_norm norm = norm_of(engine, index, count);
	const void *y = op->relu ? engine_value(engine, op->output) : NULL;
	void *dy = engine_gradient(engine, op->output);
	size_t all = norm.rows * norm.channels;
	bool other = op->other != PROGRAM_NONE && engine->program->values[op->other].wanted;
	int status = sum(engine, index, &norm, y, error);

	if (status < 0)
		return status;
	if (dx && norm.rows > 0)
		engine->kernels->norm_back(&norm, engine_value(engine, op->input), y, dy,
					   engine->scratch, engine->units[index].rows, dx,
					   other ? dy : NULL, engine->setup.type);
	else if (other && y)
		engine->kernels->relu_back(dy, y, dy, all, engine->setup.type);
	return 0;
}
