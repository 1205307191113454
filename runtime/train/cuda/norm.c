/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BatchNorm, as the CPU engine's norm.c says it. What ranks tell each other goes on COMPUTE, behind the
 * sums of gradients that are under way: a communicator does one thing at a time, in one order on all ranks.
 */
#include "config.h"

#include "engine-private.h"

static const float *running(const struct engine *engine, int buffer)
{
	return engine->memory.buffers + engine->setup.model->buffer_offsets[buffer];
}

/* The means and variances of the batch, of this rank or of all, in the unit's statistics. */
static int measure(struct engine *engine, int index, struct ddp_error *error)
{
	const struct program_op *op = &engine->program->ops[index];
	const struct unit *unit = &engine->units[index];
	const struct cuda_memory *memory = &engine->memory;
	const float *moments = memory->moments;
	size_t bytes = (1 + 2 * unit->norm.channels) * sizeof(float);
	int status = 0;

	kernel_norm_moments(cuda_stream(engine), &unit->norm, engine->block.order, engine->batch,
			    cuda_value(engine, op->input), memory->scratch, memory->moments,
			    engine->setup.type);
	if (engine->sync_norm) {
		moments = memory->gathered;
		status = sums_gather(engine->setup.ddp, engine->device, DEVICE_COMPUTE,
				     memory->moments, memory->gathered, bytes, error);
	}
	kernel_norm_combine(cuda_stream(engine), &unit->norm, moments,
			    engine->sync_norm ? engine->ranks : 1, unit->statistics,
			    (float *)running(engine, op->node->mean),
			    (float *)running(engine, op->node->variance));
	return status;
}

int cuda_norm_forward(struct engine *engine, int index, struct ddp_error *error)
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
 * The sums of this rank become those of all; in [memory.sums], since gradients are this rank's. What REDUCE
 * has not begun in this step has nothing to be waited for.
 */
static int share(struct engine *engine, const float **sums, size_t channels,
		 struct ddp_error *error)
{
	float *all = engine->memory.sums;
	int status = 0;

	if (*sums != all)
		status = device_copy(engine->device, DEVICE_COMPUTE, all, *sums,
				     2 * channels * sizeof(float), error);
	if (status == 0 && engine->next > 0 && engine->manner != CUDA_BY_CALL)
		status = device_order(engine->device, DEVICE_COMPUTE, DEVICE_REDUCE, error);
	if (status == 0)
		status = sums_reduce(engine->setup.ddp, engine->device, DEVICE_COMPUTE, all,
				     2 * channels, DDP_F32, error);
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

int cuda_norm_backward(struct engine *engine, int index, void *dx, struct ddp_error *error)
{
	const struct program_op *op = &engine->program->ops[index];
	const struct unit *unit = &engine->units[index];
	struct kernel_norm_relu relu = relu_of(engine, op);
	size_t channels = unit->norm.channels;
	float *shift = cuda_slope(engine, op->node->bias);
	bool joined = cuda_slope(engine, op->node->weight) == shift + channels;
	float *mine = joined ? shift : engine->memory.sums;
	const float *sums = mine;
	void *dy = cuda_gradient(engine, op->output);
	int status;

	kernel_norm_sums(cuda_stream(engine), &unit->norm, engine->batch,
			 cuda_value(engine, op->input), unit->statistics, &relu, dy,
			 relu.shift ? NULL : dy, engine->memory.scratch, mine, engine->setup.type);
	status = keep_slopes(engine, op, mine, channels, error);
	if (status == 0 && engine->sync_norm)
		status = share(engine, &sums, channels, error);
	if (status == 0 && dx)
		kernel_norm_back(cuda_stream(engine), &unit->norm, engine->block.order,
				 engine->batch, cuda_value(engine, op->input), unit->statistics,
				 cuda_parameter(engine, op->node->weight), relu.shift, sums, dy, dx,
				 engine->setup.type);
	return status;
}
