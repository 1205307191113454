/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model between host and device, where the layout is the same: model.h's; and what it is worth on the test set.
 */
#include "config.h"

#include <string.h>

#include "base/error.h"
#include "cuda-engine.h"

/* --- Push and pull ------------------------------------------------------------------------------ */

/* All arrays of the model, one way or the other. */
static int copy_all(struct engine *engine, bool up, struct ddp_error *error)
{
	const struct model *model = engine->setup.model;
	const struct cuda_memory *memory = &engine->memory;
	const struct {
		float *host, *device;
		size_t count;
	} arrays[] = {
		{model->values, memory->values, model->count},
		{model->slots[0], memory->slots[0], model->count},
		{model->slots[1], memory->slots[1], model->count},
		{model->buffers, memory->buffers, model->buffer_count},
	};
	int status = 0;

	for (size_t i = 0; status == 0 && i < sizeof(arrays) / sizeof(arrays[0]); i++) {
		if (arrays[i].host && arrays[i].count > 0)
			status = device_copy(engine->device, DEVICE_COMPUTE,
					     up ? arrays[i].device : arrays[i].host,
					     up ? arrays[i].host : arrays[i].device,
					     arrays[i].count * sizeof(float), error);
	}
	return status;
}

static int push(struct engine *engine, struct ddp_error *error)
{
	const struct model *model = engine->setup.model;
	const struct cuda_memory *memory = &engine->memory;
	int status = cuda_catch_up(engine, 0, error);

	if (status == 0)
		status = copy_all(engine, true, error);
	if (status < 0)
		return status;
	if (memory->narrow)
		kernel_narrow(cuda_stream(engine), memory->values, memory->narrow, model->count,
			      engine->setup.type);
	engine->anew = true;
	return device_check(engine->device, "the model's values", error);
}

int cuda_push(struct engine *engine, struct ddp_error *error)
{
	return cuda_break(engine, push(engine, error));
}

/* Rank 0's running statistics are everybody's from here on, as where a model trains in host memory. */
static int share_buffers(struct engine *engine, struct ddp_error *error)
{
	const struct model *model = engine->setup.model;
	size_t bytes = model->buffer_count * sizeof(float);
	int status;

	if (engine->sync_norm || ddp_world(engine->setup.ddp)->size == 1 || bytes == 0)
		return 0;
	status = ddp_broadcast(engine->setup.ddp, model->buffers, bytes, 0);
	if (status < 0)
		return ddp_error_set(error, status, "%s", ddp_error(engine->setup.ddp));
	return device_copy(engine->device, DEVICE_COMPUTE, engine->memory.buffers, model->buffers,
			   bytes, error);
}

static int pull(struct engine *engine, struct ddp_error *error)
{
	int status = cuda_catch_up(engine, 0, error);

	if (status == 0)
		status = cuda_wait(engine, error);
	if (status == 0)
		status = copy_all(engine, false, error);
	return status == 0 ? share_buffers(engine, error) : status;
}

int cuda_pull(struct engine *engine, struct ddp_error *error)
{
	return cuda_break(engine, pull(engine, error));
}

/* --- Evaluation --------------------------------------------------------------------------------- */

static int forward(struct engine *engine, const struct batch *batch, struct ddp_error *error)
{
	const double rate = 0;
	int status = data_foretell(engine->test, batch, batch->count, &rate, 1, error);

	if (status == 0)
		status = data_send(engine->test, 1, 0, NULL, error);
	if (status < 0)
		return status;
	engine->mode = PROGRAM_TEST;
	engine->batch = engine->piece;
	engine->block = engine->test->block;
	data_gather(engine->test, NULL, engine->batch, cuda_value(engine, PROGRAM_IMAGE),
		    engine->setup.type);
	return cuda_forward(engine, error);
}

/* The logits of the first [count] images, in host memory, when all is done. */
static int fetch(struct engine *engine, size_t count, struct ddp_error *error)
{
	const struct program_value *result = program_result(engine->program);
	const struct cuda_memory *memory = &engine->memory;
	const void *logits = cuda_area(engine, result->data);
	size_t all = count * result->elements;
	int status;

	if (engine->setup.type != DDP_F32) {
		kernel_widen(cuda_stream(engine), logits, memory->logits, all, engine->setup.type);
		logits = memory->logits;
	}
	status = device_copy(engine->device, DEVICE_COMPUTE, memory->logits_host, logits,
			     all * sizeof(float), error);
	return status == 0 ? cuda_wait(engine, error) : status;
}

static int evaluate_piece(struct engine *engine, const struct batch *batch,
			  struct ddp_evaluation *evaluation, struct ddp_error *error)
{
	int status = forward(engine, batch, error);

	if (status == 0)
		status = fetch(engine, batch->count, error);
	if (status < 0)
		return status;
	batch_labels(engine->setup.test, batch, engine->labels);
	ddp_evaluation_add(evaluation, engine->memory.logits_host, engine->labels, batch->count,
			   program_result(engine->program)->elements);
	return 0;
}

int cuda_evaluate(struct engine *engine, const struct batch *batch,
		  struct ddp_evaluation *evaluation, struct ddp_error *error)
{
	int status = 0;

	for (size_t done = 0; status == 0 && done < batch->count;) {
		struct batch part = *batch;
		size_t left = batch->count - done;

		part.count = left < engine->piece ? left : engine->piece;
		part.indices += done;
		if (part.orders)
			part.orders += done;
		status = evaluate_piece(engine, &part, evaluation, error);
		done += part.count;
	}
	engine->mode = PROGRAM_TRAIN;
	return cuda_break(engine, status);
}
