/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "base/error.h"
#include "base/watch.h"
#include "engine-private.h"

/* --- What a step is ----------------------------------------------------------------------------- */

/* The norm is asked for where it, or whether it is a number, matters. */
static int optimize(struct engine *engine, struct ddp_error *error)
{
	const struct engine_setup *setup = &engine->setup;
	const struct cuda_memory *memory = &engine->memory;
	bool asked = setup->clip > 0 || engine->scaling;
	struct kernel_norm2 *norm2 = asked ? memory->norm2 : NULL;
	struct kernel_scratch scratch = cuda_scratch(engine);
	size_t count = setup->model->count;
	void *stream = cuda_stream(engine);

	if (asked)
		kernel_norm2(stream, memory->gradients, count, memory->state, &scratch, norm2);
	kernel_advance(stream, engine->block.order, memory->state, norm2, memory->divisor);
	kernel_optimize(stream, setup->optim, engine->block.order, memory->state, norm2,
			memory->divisor, setup->clip, memory->values, memory->gradients,
			memory->slots, memory->narrow, count, setup->type);
	kernel_tell(stream, engine->block.order, memory->state, memory->gradients + count,
		    ring_results(engine->ring));
	return device_check(engine->device, "the optimizer", error);
}

/* From the images to the gradients. */
static int slopes(struct engine *engine, struct ddp_error *error)
{
	int status;

	engine->mode = PROGRAM_TRAIN;
	engine->batch = engine->setup.batch;
	engine->block = ring_device(engine->ring);
	cuda_buckets_begin(engine);
	cuda_gather(engine, engine->train);
	status = cuda_forward(engine, error);
	if (status < 0)
		return status;
	status = cuda_backward(engine, error);
	return status == 0 ? cuda_buckets_end(engine, error) : status;
}

/* All of a step on COMPUTE and REDUCE. */
static int enqueue(struct engine *engine, struct ddp_error *error)
{
	int status = slopes(engine, error);

	return status == 0 ? optimize(engine, error) : status;
}

static int capture(struct engine *engine, int (*part)(struct engine *, struct ddp_error *),
		   struct device_graph **result, struct ddp_error *error)
{
	struct device_graph *graph = NULL;
	struct ddp_error ignored;
	int status = device_capture_begin(engine->device, error), end;

	if (status < 0)
		return status;
	status = part(engine, error);
	end = device_capture_end(engine->device, &graph, status < 0 ? &ignored : error);
	if (status == 0)
		status = end;
	if (status == 0)
		*result = graph;
	else
		device_graph_destroy(graph);
	return status;
}

/*
 * Both, before one is launched: making a graph may wait for the device, which may then wait for no sum that some
 * rank has yet to enqueue.
 */
static int capture_two(struct engine *engine, struct ddp_error *error)
{
	int status;

	engine->sums_later = true;
	status = capture(engine, slopes, &engine->graphs[0], error);
	engine->sums_later = false;
	return status == 0 ? capture(engine, optimize, &engine->graphs[1], error) : status;
}

static int launch_one(struct engine *engine, struct ddp_error *error)
{
	int status = engine->graphs[0] ? 0 : capture(engine, enqueue, &engine->graphs[0], error);

	return status == 0 ? device_launch(engine->device, engine->graphs[0], error) : status;
}

static int launch_two(struct engine *engine, struct ddp_error *error)
{
	int status = engine->graphs[1] ? 0 : capture_two(engine, error);

	if (status == 0)
		status = device_launch(engine->device, engine->graphs[0], error);
	if (status == 0)
		status = cuda_buckets_sum(engine, error);
	return status == 0 ? device_launch(engine->device, engine->graphs[1], error) : status;
}

/*
 * The first step of all is done as it comes: libraries load what they need, and NCCL connects, neither
 * of which may be while a graph is made. It counts as any other.
 */
static int launch(struct engine *engine, struct ddp_error *error)
{
	if (engine->launched == 0 || engine->manner == CUDA_BY_CALL)
		return enqueue(engine, error);
	return engine->manner == CUDA_ONE_GRAPH ? launch_one(engine, error)
						: launch_two(engine, error);
}

/* --- What it is told ---------------------------------------------------------------------------- */

static int take(struct engine *engine, struct ring *ring, struct ring_block *block,
		struct ddp_error *error)
{
	double begin = ddp_seconds();
	int status, waited = 0;

	while ((status = ring_take(ring, block, error)) == 0 && waited == 0) {
		waited = cuda_pause(engine, begin, error);
		if (waited < 0)
			return waited;
	}
	if (status == 0)
		status = ring_take(ring, block, error);
	if (status == 0)
		return ddp_error_set(error, DDP_ERR_ENGINE,
				     "CUDA engine: the device has ended its work and reads on");
	return status < 0 ? status : 0;
}

int cuda_send(struct engine *engine, struct ring *ring, struct data *data, const struct set *set,
	      const struct batch *batch, const struct kernel_order *order, struct ddp_error *error)
{
	const struct ddp_world *world = ddp_world(engine->setup.ddp);
	uint64_t first =
		set_info(set)->samples * (uint64_t)world->local_rank / (uint64_t)world->local_size;
	struct ring_block block;
	int status = data_bring(data, first, batch, error);

	if (status == 0)
		status = take(engine, ring, &block, error);
	if (status < 0)
		return status;
	*block.order = *order;
	block.order->seed = batch->seed;
	block.order->epoch = batch->epoch;
	block.order->count = (uint32_t)batch->count;
	block.order->augment = batch->augment;
	for (size_t i = 0; i < batch->count; i++) {
		block.indices[i] = (uint32_t)batch->indices[i];
		block.orders[i] = batch->orders ? batch->orders[i] : 0;
	}
	batch_labels(set, batch, block.labels);
	return ring_send(ring, error);
}

/* --- The calls ------------------------------------------------------------------------------------ */

static int begin_step(struct engine *engine, const struct batch *batch, size_t global,
		      uint64_t step, double rate, bool stop, struct ddp_error *error)
{
	const struct kernel_order order = {.step = step,
					   .rate = rate,
					   .share = 1.0f / (float)(global > 0 ? global : 1),
					   .anew = engine->anew,
					   .stop = stop};
	int mark = CUDA_MARK_END + (int)(engine->launched % RING_DEPTH);
	int status = cuda_send(engine, engine->ring, engine->train, engine->setup.train, batch,
			       &order, error);

	if (status == 0)
		status = launch(engine, error);
	if (status == 0)
		status = device_mark(engine->device, DEVICE_COMPUTE, mark, error);
	if (status < 0)
		return status;
	engine->launched++;
	engine->anew = false;
	return 0;
}

static void tell(struct engine *engine, struct engine_step *done)
{
	*done = engine->held;
	memset(&engine->held, 0, sizeof(engine->held));
}

int cuda_step(struct engine *engine, const struct batch *batch, size_t global, uint64_t step,
	      double rate, bool stop, struct engine_step *done, struct ddp_error *error)
{
	size_t lag = engine->manner == CUDA_BY_CALL ? CUDA_LAG_BY_CALL : CUDA_LAG;
	double begin = ddp_seconds(), begun;
	int status;

	memset(done, 0, sizeof(*done));
	if (batch->count > engine->setup.batch)
		return ddp_error_set(
			error, DDP_ERR_ARGUMENT,
			"a batch of %zu samples: the engine was opened for %zu at most",
			batch->count, engine->setup.batch);
	status = begin_step(engine, batch, global, step, rate, stop, error);
	if (status < 0)
		return cuda_break(engine, status);
	begun = ddp_seconds();
	status = cuda_catch_up(engine, lag, error);
	if (status < 0)
		return status;
	tell(engine, done);
	done->seconds[ENGINE_DATA] = begun - begin;
	done->seconds[ENGINE_COMPUTE] = ddp_seconds() - begun;
	return 0;
}

int cuda_settle(struct engine *engine, struct engine_step *done, struct ddp_error *error)
{
	double begin = ddp_seconds();
	int status = cuda_catch_up(engine, 0, error);

	memset(done, 0, sizeof(*done));
	if (status < 0)
		return status;
	tell(engine, done);
	done->seconds[ENGINE_COMPUTE] = ddp_seconds() - begin;
	if (engine->scaling && engine->last.sequence > 0) {
		engine->setup.scaler->scale = engine->last.scale;
		engine->setup.scaler->good_steps = engine->last.good_steps;
	}
	return 0;
}
