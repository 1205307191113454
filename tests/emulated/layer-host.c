/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "layer-host.h"
#include "number-host.h"
#include "queue-host.h"

enum { SCRATCH = 1024 };

struct layer {
	struct device *device;
	const char *name;
	enum ddp_type type;
	bool bias;
	size_t batch, test_batch;
	size_t reads, gives, weights; /* elements of an image, of its results, of all weights */
	struct math_layer *math;
	float *x, *y, *w; /* widened */
	int users;	  /* the owner, and work that is not forgotten */
};

/* --- Numbers ------------------------------------------------------------------------------ */

static void widen(const void *from, float *to, size_t count, enum ddp_type type)
{
	const uint16_t *halves = from;

	if (type == DDP_F32)
		memcpy(to, from, count * sizeof(float));
	for (size_t i = 0; i < count && type != DDP_F32; i++)
		to[i] = type == DDP_BF16 ? number_from_bf16(halves[i]) : number_from_f16(halves[i]);
}

static void narrow(const float *from, void *to, size_t count, enum ddp_type type)
{
	uint16_t *halves = to;

	if (type == DDP_F32)
		memcpy(to, from, count * sizeof(float));
	for (size_t i = 0; i < count && type != DDP_F32; i++)
		halves[i] = type == DDP_BF16 ? number_to_bf16(from[i]) : number_to_f16(from[i]);
}

/* --- A layer ------------------------------------------------------------------------------ */

void layer_destroy(struct layer *layer)
{
	if (!layer || --layer->users > 0)
		return;
	if (layer->math)
		math_plain.destroy(layer->math);
	free(layer->x);
	free(layer->y);
	free(layer->w);
	free(layer);
}

static void measure(struct layer *layer, const struct math_options *options)
{
	int height = (options->height + 2 * options->pad - options->size) / options->stride + 1;
	int width = (options->width + 2 * options->pad - options->size) / options->stride + 1;

	layer->reads = (size_t)options->height * (size_t)options->width * (size_t)options->in;
	layer->gives = (size_t)height * (size_t)width * (size_t)options->out;
	layer->weights = (size_t)options->out * (size_t)options->size * (size_t)options->size *
			 (size_t)options->in;
}

int layer_create(struct layer **layer, struct device *device, const char *name,
		 const struct math_options *options, size_t batch, size_t test_batch,
		 struct ddp_error *error)
{
	struct math_options wide = *options;
	struct layer *made = calloc(1, sizeof(*made));
	int status;

	*layer = NULL;
	if (!made)
		return ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory", name);
	*made = (struct layer){.device = device,
			       .name = name,
			       .type = options->type,
			       .bias = options->bias,
			       .batch = batch,
			       .test_batch = test_batch,
			       .users = 1};
	wide.type = DDP_F32;
	wide.batch = batch > test_batch ? batch : test_batch;
	wide.threads = 1;
	measure(made, options);
	made->x = calloc(wide.batch * made->reads, sizeof(float));
	made->y = calloc(wide.batch * made->gives, sizeof(float));
	made->w = calloc(made->weights, sizeof(float));
	status = math_plain.create(&made->math, &wide, error);
	if (!status && (!made->x || !made->y || !made->w))
		status = ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory", name);
	if (status)
		layer_destroy(made);
	else
		*layer = made;
	return status;
}

size_t layer_scratch(const struct layer *layer)
{
	(void)layer;
	return SCRATCH;
}

/* --- Work --------------------------------------------------------------------------------- */

struct job {
	struct layer *layer;
	enum math_pass pass;
	size_t count;
	const void *x, *dy, *weights;
	const float *bias;
	void *result, *scratch;
};

static int do_forward(const struct job *job, struct ddp_error *error)
{
	struct layer *layer = job->layer;
	int status;

	widen(job->weights, layer->w, layer->weights, layer->type);
	widen(job->x, layer->x, job->count * layer->reads, layer->type);
	status = math_plain.load(layer->math, layer->w, job->bias, error);
	if (!status)
		status = math_plain.forward(layer->math, job->count, layer->x, layer->y, error);
	narrow(layer->y, job->result, job->count * layer->gives, layer->type);
	return status;
}

static int do_back_data(const struct job *job, struct ddp_error *error)
{
	struct layer *layer = job->layer;
	int status;

	widen(job->weights, layer->w, layer->weights, layer->type);
	widen(job->dy, layer->y, job->count * layer->gives, layer->type);
	status = math_plain.load(layer->math, layer->w, NULL, error);
	if (!status)
		status = math_plain.back_data(layer->math, job->count, layer->y, layer->x, error);
	narrow(layer->x, job->result, job->count * layer->reads, layer->type);
	return status;
}

static int do_back_weights(const struct job *job, struct ddp_error *error)
{
	struct layer *layer = job->layer;

	widen(job->x, layer->x, job->count * layer->reads, layer->type);
	widen(job->dy, layer->y, job->count * layer->gives, layer->type);
	return math_plain.back_weights(layer->math, job->count, layer->x, layer->y, job->result,
				       NULL, error);
}

static int do_job(void *data, struct ddp_error *error)
{
	static int (*const passes[MATH_PASSES])(const struct job *, struct ddp_error *) = {
		[MATH_FORWARD] = do_forward,
		[MATH_BACK_DATA] = do_back_data,
		[MATH_BACK_WEIGHTS] = do_back_weights,
	};
	struct job *job = data;

	memset(job->scratch, 0xff, SCRATCH);
	return passes[job->pass](job, error);
}

static void forget_job(void *data)
{
	struct job *job = data;

	layer_destroy(job->layer);
	free(job);
}

static int submit(struct layer *layer, enum device_stream stream, const struct job *what,
		  struct ddp_error *error)
{
	struct queue_work work = {.call = do_job, .forget = forget_job};
	struct job *job;

	if (!what->scratch || what->count == 0)
		return ddp_error_set(error, DDP_ERR_ARGUMENT, "%s: no scratch memory, or no batch",
				     layer->name);
	job = malloc(sizeof(*job));
	if (!job)
		return ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory", layer->name);
	*job = *what;
	job->layer = layer;
	layer->users++;
	work.data = job;
	queues_submit(device_stream(layer->device, stream), &work);
	return 0;
}

int layer_forward(struct layer *layer, enum device_stream stream, bool test, const void *x,
		  const void *weights, const float *bias, void *y, void *scratch,
		  struct ddp_error *error)
{
	struct job job = {.pass = MATH_FORWARD,
			  .count = test ? layer->test_batch : layer->batch,
			  .x = x,
			  .weights = weights,
			  .bias = bias,
			  .result = y,
			  .scratch = scratch};

	if (layer->bias != (bias != NULL))
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "%s: a bias, or none, against its options", layer->name);
	return submit(layer, stream, &job, error);
}

int layer_back_data(struct layer *layer, enum device_stream stream, const void *dy,
		    const void *weights, void *dx, void *scratch, struct ddp_error *error)
{
	struct job job = {.pass = MATH_BACK_DATA,
			  .count = layer->batch,
			  .dy = dy,
			  .weights = weights,
			  .result = dx,
			  .scratch = scratch};

	return submit(layer, stream, &job, error);
}

int layer_back_weights(struct layer *layer, enum device_stream stream, const void *x,
		       const void *dy, float *weights, void *scratch, struct ddp_error *error)
{
	struct job job = {.pass = MATH_BACK_WEIGHTS,
			  .count = layer->batch,
			  .x = x,
			  .dy = dy,
			  .result = weights,
			  .scratch = scratch};

	return submit(layer, stream, &job, error);
}
