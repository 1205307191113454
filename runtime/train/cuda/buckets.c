/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients are summed in libddp's buckets (ddp_gradients_bucket()), on REDUCE, while COMPUTE goes on with
 * earlier layers; where they may not be in its graph, behind all layers. After each one a number in host memory
 * says so, which tells where a world stands still.
 */
#include "config.h"

#include <stdlib.h>

#include "base/error.h"
#include "engine-private.h"

/* Parameters of ddp_gradients: the word is 0. */
static size_t listed(int parameter)
{
	return parameter == CUDA_WORD ? 0 : (size_t)parameter + 1;
}

/* Buckets follow each other: each reaches to the next one. */
static void lay_out(struct engine *engine)
{
	const struct model *model = engine->setup.model;
	size_t all = model->count + MODEL_WORD, end = all;

	for (size_t i = 0; i < engine->bucket_count; i++)
		engine->buckets[i] = (struct bucket){.offset = all};
	for (int i = -1; i < (int)model->graph->parameter_count; i++) {
		size_t offset = i < 0 ? model->count : model->offsets[i];
		struct bucket *bucket;

		bucket = &engine->buckets[ddp_gradients_bucket(model->gradients, (size_t)(i + 1))];
		bucket->members++;
		bucket->offset = offset < bucket->offset ? offset : bucket->offset;
	}
	for (size_t i = engine->bucket_count; i > 0; i--) {
		engine->buckets[i - 1].count = end - engine->buckets[i - 1].offset;
		end = engine->buckets[i - 1].offset;
	}
}

int cuda_buckets_open(struct engine *engine, struct ddp_error *error)
{
	engine->bucket_count = ddp_gradients_buckets(engine->setup.model->gradients);
	engine->buckets = calloc(engine->bucket_count, sizeof(*engine->buckets));
	if (!engine->buckets)
		return ddp_error_set(error, DDP_ERR_MEMORY,
				     "CUDA engine: out of memory for %zu buckets of gradients",
				     engine->bucket_count);
	lay_out(engine);
	return 0;
}

size_t cuda_buckets_largest(const struct engine *engine)
{
	size_t most = 0;

	for (size_t i = 0; i < engine->bucket_count; i++)
		most = engine->buckets[i].count > most ? engine->buckets[i].count : most;
	return most;
}

void cuda_buckets_begin(struct engine *engine)
{
	engine->next = 0;
	for (size_t i = 0; i < engine->bucket_count; i++)
		engine->buckets[i].waiting = engine->buckets[i].members;
}

/* Where BatchNorm's sums are on COMPUTE, between whose turns there is no other stream's. */
static enum device_stream lane(const struct engine *engine)
{
	return engine->manner == CUDA_BY_CALL ? DEVICE_COMPUTE : DEVICE_REDUCE;
}

static int reduce(struct engine *engine, void *data, size_t count, enum ddp_type type,
		  struct ddp_error *error)
{
	return sums_reduce(engine->setup.ddp, engine->device, lane(engine), data, count, type,
			   error);
}

/* [data] goes in the type of the wire, and comes back rounded to it. */
static int reduce_narrow(struct engine *engine, float *data, size_t count, struct ddp_error *error)
{
	void *stream = device_stream(engine->device, lane(engine));
	void *wire = engine->memory.wire;
	int status;

	kernel_narrow(stream, data, wire, count, engine->wire);
	status = reduce(engine, wire, count, engine->wire, error);
	if (status == 0)
		kernel_widen(stream, wire, data, count, engine->wire);
	return status;
}

/* The word is f32 in any case: it has counts. */
static int reduce_bucket(struct engine *engine, const struct bucket *bucket,
			 struct ddp_error *error)
{
	size_t trained = engine->setup.model->count, count = bucket->count;
	float *data = engine->memory.gradients + bucket->offset;
	bool word = bucket->offset + count > trained;
	int status;

	if (engine->wire == DDP_F32)
		return reduce(engine, data, count, DDP_F32, error);
	if (word)
		count = trained - bucket->offset;
	status = count > 0 ? reduce_narrow(engine, data, count, error) : 0;
	if (status == 0 && word)
		status = reduce(engine, data + count, MODEL_WORD, DDP_F32, error);
	return status;
}

/* Behind what is on COMPUTE now. */
static int launch(struct engine *engine, const struct bucket *bucket, struct ddp_error *error)
{
	int status = device_order(engine->device, lane(engine), DEVICE_COMPUTE, error);

	if (status == 0)
		status = reduce_bucket(engine, bucket, error);
	if (status < 0)
		return status;
	kernel_progress(device_stream(engine->device, lane(engine)), engine->memory.sums_ended,
			engine->memory.progress);
	return device_check(engine->device, "a sum of gradients", error);
}

int cuda_buckets_ready(struct engine *engine, int parameter, struct ddp_error *error)
{
	const struct ddp_gradients *gradients = engine->setup.model->gradients;
	int status = 0;

	if (parameter == -1 || engine->ranks == 1)
		return 0;
	engine->buckets[ddp_gradients_bucket(gradients, listed(parameter))].waiting--;
	while (status == 0 && engine->next < engine->bucket_count &&
	       engine->buckets[engine->next].waiting == 0) {
		const struct bucket *bucket = &engine->buckets[engine->next++];

		if (!engine->sums_later)
			status = launch(engine, bucket, error);
	}
	return status;
}

int cuda_buckets_end(struct engine *engine, struct ddp_error *error)
{
	if (engine->ranks == 1)
		return 0;
	if (engine->next < engine->bucket_count)
		return ddp_error_set(error, DDP_ERR_STATE,
				     "CUDA engine: bucket %zu of %zu waits for %zu gradients that "
				     "nobody computes",
				     engine->next, engine->bucket_count,
				     engine->buckets[engine->next].waiting);
	if (engine->sums_later)
		return 0;
	return device_order(engine->device, DEVICE_COMPUTE, lane(engine), error);
}

int cuda_buckets_sum(struct engine *engine, struct ddp_error *error)
{
	int status = 0;

	for (size_t i = 0; status == 0 && i < engine->bucket_count; i++)
		status = launch(engine, &engine->buckets[i], error);
	if (status < 0)
		return status;
	return device_order(engine->device, DEVICE_COMPUTE, lane(engine), error);
}
