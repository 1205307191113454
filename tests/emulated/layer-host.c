/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer-host.c - layer.h without a GPU, with the CPU engine's loops in plain C
 *
 * Input is converted to f32, and results are rounded once. The work runs when its stream reaches
 * it, and overwrites its scratch memory. Each layer has only one plan. With DDP_EMULATED_CHOOSES=0,
 * this rank must not choose a plan: a choice is an error. DDP_EMULATED_SLOW is a layer with a slow plan.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/math.h"
#include "layer.h"
#include "number-host.h"
#include "queue-host.h"

enum { SCRATCH = 1024, PLAN = 3 };

struct layers {
	struct device *device;
};

struct layer {
	struct device *device;
	char name[64];
	enum ddp_type type;
	bool bias, first, dense;
	size_t batch, test_batch;
	size_t channels;
	/* number of elements: of an input image, of its results, of all weights */
	size_t reads, gives, weights;
	struct math_layer *math;
	float *x, *y, *w, *b; /* converted to f32 */
	/* number of references: the owner, and enqueued work that uses the layer */
	int users;
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

int layers_open(struct layers **layers, struct device *device, struct ddp_error *error)
{
	*layers = calloc(1, sizeof(**layers));
	if (!*layers)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for layers");
	(*layers)->device = device;
	return 0;
}

void layers_close(struct layers *layers)
{
	free(layers);
}

const char *layers_describe(void)
{
	return "plain C";
}

const char *layers_slow(const struct layers *layers)
{
	(void)layers;
	return getenv("DDP_EMULATED_SLOW");
}

void layer_destroy(struct layer *layer)
{
	if (!layer || --layer->users > 0)
		return;
	if (layer->math)
		math_plain.destroy(layer->math);
	free(layer->x);
	free(layer->y);
	free(layer->w);
	free(layer->b);
	free(layer);
}

static void measure(struct layer *layer, const struct layer_options *options)
{
	int height = (options->height + 2 * options->pad - options->size) / options->stride + 1;
	int width = (options->width + 2 * options->pad - options->size) / options->stride + 1;

	layer->reads = (size_t)options->height * (size_t)options->width * (size_t)options->in;
	layer->gives = (size_t)height * (size_t)width * (size_t)options->out;
	layer->weights = (size_t)options->out * (size_t)options->size * (size_t)options->size *
			 (size_t)options->in;
}

static int choose(const struct layer_options *options, int32_t chosen[LAYER_PASSES],
		  struct ddp_error *error)
{
	const char *chooses = getenv("DDP_EMULATED_CHOOSES");

	if (chosen[LAYER_FORWARD] != LAYER_CHOOSE || (chooses && strcmp(chooses, "0") == 0))
		return ddp_error_set(error, DDP_ERR_ENGINE, "%s: plan %d is not the plan of rank 0",
				     options->name, chosen[LAYER_FORWARD]);
	chosen[LAYER_FORWARD] = PLAN;
	return 0;
}

int layer_create(struct layer **layer, struct layers *layers, const struct layer_options *options,
		 size_t memory, int32_t chosen[LAYER_PASSES], struct ddp_error *error)
{
	size_t most = options->batch > options->test_batch ? options->batch : options->test_batch;
	struct math_options math = {.height = options->height,
				    .width = options->width,
				    .in = options->in,
				    .out = options->out,
				    .size = options->size,
				    .stride = options->stride,
				    .pad = options->pad,
				    .dense = options->dense,
				    .bias = options->bias,
				    .relu = options->relu,
				    .first = options->first,
				    .type = DDP_F32,
				    .batch = most,
				    .threads = 1};
	struct layer *made = calloc(1, sizeof(*made));
	int status;

	(void)memory;
	*layer = NULL;
	if (!made)
		return ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory", options->name);
	*made = (struct layer){.device = layers->device,
			       .type = options->type,
			       .channels = (size_t)options->out,
			       .bias = options->bias,
			       .first = options->first,
			       .dense = options->dense,
			       .batch = options->batch,
			       .test_batch = options->test_batch,
			       .users = 1};
	snprintf(made->name, sizeof(made->name), "%s", options->name);
	measure(made, options);
	made->x = calloc(most * made->reads, sizeof(float));
	made->y = calloc(most * made->gives, sizeof(float));
	made->w = calloc(made->weights, sizeof(float));
	made->b = calloc((size_t)options->out, sizeof(float));
	status = math_plain.create(&made->math, &math, error);
	if (!status && (!made->x || !made->y || !made->w || !made->b))
		status = ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory", options->name);
	if (!status && !options->dense && chosen[LAYER_FORWARD] != PLAN)
		status = choose(options, chosen, error);
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
	const void *x, *dy, *weights, *bias;
	void *result, *scratch;
	float *sums;
};

static int do_forward(const struct job *job, struct ddp_error *error)
{
	struct layer *layer = job->layer;
	int status;

	widen(job->weights, layer->w, layer->weights, layer->type);
	widen(job->x, layer->x, job->count * layer->reads, layer->type);
	if (job->bias)
		widen(job->bias, layer->b, layer->channels, layer->type);
	math_plain.load(layer->math, layer->w, job->bias ? layer->b : NULL);
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
	math_plain.load(layer->math, layer->w, NULL);
	status = math_plain.back_data(layer->math, job->count, layer->y, layer->x, error);
	narrow(layer->x, job->result, job->count * layer->reads, layer->type);
	return status;
}

static int do_back_weights(const struct job *job, struct ddp_error *error)
{
	struct layer *layer = job->layer;

	int status;

	widen(job->x, layer->x, job->count * layer->reads, layer->type);
	widen(job->dy, layer->y, job->count * layer->gives, layer->type);
	status = math_plain.back_weights(layer->math, job->count, layer->x, layer->y, layer->w,
					 job->sums, error);
	narrow(layer->w, job->result, layer->weights, layer->dense ? DDP_F32 : layer->type);
	return status;
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

static int submit(struct layer *layer, const struct job *what, struct ddp_error *error)
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
	queues_submit(device_stream(layer->device, DEVICE_COMPUTE), &work);
	return 0;
}

int layer_forward(struct layer *layer, bool test, const void *x, const void *weights,
		  const void *bias, void *y, void *scratch, struct ddp_error *error)
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
	return submit(layer, &job, error);
}

int layer_back_data(struct layer *layer, const void *dy, const void *weights, void *dx,
		    void *scratch, struct ddp_error *error)
{
	struct job job = {.pass = MATH_BACK_DATA,
			  .count = layer->batch,
			  .dy = dy,
			  .weights = weights,
			  .result = dx,
			  .scratch = scratch};

	if (layer->first)
		return ddp_error_set(error, DDP_ERR_STATE, "%s: the first layer's back_data",
				     layer->name);
	return submit(layer, &job, error);
}

bool layer_has_sums(const struct layer *layer)
{
	return layer->dense && layer->bias;
}

int layer_back_weights(struct layer *layer, const void *x, const void *dy, void *weights,
		       float *bias, void *scratch, struct ddp_error *error)
{
	struct job job = {.pass = MATH_BACK_WEIGHTS,
			  .count = layer->batch,
			  .x = x,
			  .dy = dy,
			  .result = weights,
			  .scratch = scratch,
			  .sums = layer_has_sums(layer) ? bias : NULL};

	return submit(layer, &job, error);
}
