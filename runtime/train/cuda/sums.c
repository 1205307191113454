/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums over ranks are libddp's: of gradients (ddp_gradients), on REDUCE while COMPUTE goes on with earlier
 * layers; where they may not be in its graph, behind all layers. One rank needs no device of libddp's, and no
 * communicator.
 */
#include "config.h"

#include "base/error.h"
#include "engine-private.h"

int cuda_told(const struct engine *engine, int status, struct ddp_error *error)
{
	return status < 0 ? ddp_error_set(error, status, "%s", ddp_error(engine->setup.ddp)) : 0;
}

int cuda_join(struct ddp *ddp, struct ddp_error *error)
{
	int status = ddp_world(ddp)->size == 1 ? 0 : ddp_device_join(ddp);

	return status < 0 ? ddp_error_set(error, status, "%s", ddp_error(ddp)) : 0;
}

int cuda_sums_alloc(struct engine *engine, void **memory, size_t bytes, struct ddp_error *error)
{
	static const char what[] = "sums over ranks";
	int status;

	*memory = NULL;
	if (engine->ranks == 1)
		return device_alloc(engine->device, memory, bytes, what, NULL, error);
	status = cuda_join(engine->setup.ddp, error);
	if (status == 0)
		status = device_may(engine->device, bytes, what, NULL, error);
	if (status == 0)
		status = cuda_told(engine, ddp_device_alloc(engine->setup.ddp, bytes, memory),
				   error);
	return status < 0 ? status : device_count(engine->device, *memory, bytes, error);
}

void cuda_sums_free(struct engine *engine, void *memory)
{
	if (!memory)
		return;
	if (engine->ranks == 1) {
		device_free(engine->device, memory);
		return;
	}
	device_uncount(engine->device, memory);
	(void)ddp_device_free(engine->setup.ddp, memory);
}

/* --- Gradients ---------------------------------------------------------------------------------- */

/* Where BatchNorm's sums are on COMPUTE and no graph has any, these are there, too, in one order with them. */
int cuda_sums_open(struct engine *engine, struct ddp_error *error)
{
	struct ddp_gradients *gradients = engine->setup.model->gradients;
	enum device_stream stream = engine->manner == CUDA_BY_CALL ? DEVICE_COMPUTE : DEVICE_REDUCE;
	struct cuda_memory *memory = &engine->memory;
	void *place;
	int status = cuda_sums_alloc(engine, &place, ddp_gradients_bytes(gradients), error);

	memory->gradients = place;
	if (status < 0)
		return status;
	return cuda_told(engine,
			 ddp_gradients_place(gradients, place,
					     device_stream(engine->device, stream),
					     memory->progress),
			 error);
}

int cuda_sums_ready(struct engine *engine, int parameter, struct ddp_error *error)
{
	size_t index = parameter == CUDA_WORD ? 0 : (size_t)parameter + 1;

	if (parameter == -1 || engine->sums_later)
		return 0;
	return cuda_told(engine,
			 ddp_gradients_ready_on(engine->setup.model->gradients, index,
						cuda_stream(engine)),
			 error);
}

int cuda_sums_finish(struct engine *engine, struct ddp_error *error)
{
	return cuda_told(engine,
			 ddp_gradients_finish_on(engine->setup.model->gradients,
						 cuda_stream(engine)),
			 error);
}
