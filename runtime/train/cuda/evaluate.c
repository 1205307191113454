/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/error.h"
#include "engine-private.h"

static int forward(struct engine *engine, const struct batch *batch, struct ddp_error *error)
{
	const struct kernel_order order = {.share = 1};
	int status = cuda_send(engine, engine->test_ring, engine->test, engine->setup.test, batch,
			       &order, error);

	if (status < 0)
		return status;
	engine->mode = PROGRAM_TEST;
	engine->batch = engine->piece;
	engine->block = ring_device(engine->test_ring);
	cuda_gather(engine, engine->test);
	return cuda_forward(engine, error);
}

/* The logits of the first [count] images, in host memory, when all is done. */
static int fetch(struct engine *engine, size_t count, struct ddp_error *error)
{
	const struct program_value *result = program_result(engine->program);
	const struct cuda_memory *memory = &engine->memory;
	const void *logits = cuda_room(engine, result->data);
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

static int check(const struct engine *engine, const struct batch *batch, struct ddp_error *error)
{
	if (!engine->test)
		return ddp_error_set(error, DDP_ERR_STATE,
				     "the engine was opened without a test set");
	if (batch->count > engine->setup.test_batch)
		return ddp_error_set(
			error, DDP_ERR_ARGUMENT,
			"a batch of %zu samples: the engine was opened for %zu at most",
			batch->count, engine->setup.test_batch);
	return 0;
}

int cuda_evaluate(struct engine *engine, const struct batch *batch,
		  struct ddp_evaluation *evaluation, struct ddp_error *error)
{
	int status = check(engine, batch, error);

	if (status < 0)
		return status;
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
