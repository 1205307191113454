/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model between host and device. The layout is the same on both sides: model.h's.
 */
#include "config.h"

#include <string.h>

#include "base/error.h"
#include "engine-private.h"

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

static int push_state(struct engine *engine, struct ddp_error *error)
{
	const struct ddp_scaler *scaler = engine->setup.scaler;
	struct kernel_state state = {.scale = 1};

	if (engine->scaling) {
		state.scale = scaler->scale;
		state.growth = scaler->growth;
		state.backoff = scaler->backoff;
		state.interval = scaler->interval;
		state.good_steps = scaler->good_steps;
	}
	if (engine->ranks > 1)
		state.buckets = engine->launched * engine->bucket_count;
	return device_copy(engine->device, DEVICE_COMPUTE, engine->memory.state, &state,
			   sizeof(state), error);
}

static int push(struct engine *engine, struct ddp_error *error)
{
	const struct model *model = engine->setup.model;
	const struct cuda_memory *memory = &engine->memory;
	int status = cuda_catch_up(engine, 0, error);

	if (status == 0)
		status = copy_all(engine, true, error);
	if (status == 0)
		status = push_state(engine, error);
	if (status == 0)
		status = device_zero(engine->device, DEVICE_COMPUTE, memory->gradients,
				     (model->count + MODEL_WORD) * sizeof(float), error);
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

	if (engine->sync_norm || engine->ranks == 1 || bytes == 0)
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
