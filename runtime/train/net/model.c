/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "graph.h"
#include "model.h"

/* Of arrays, as of libddp's views. */
enum { ALIGNMENT = 64 };

/* An error of [ddp]'s in words of its own. */
static int pass_on(const struct ddp *ddp, int status, struct ddp_error *error)
{
	return ddp_error_set(error, status, "%s", ddp_error(ddp));
}

static int out_of_memory(const struct model *model, struct ddp_error *error)
{
	return ddp_error_set(error, DDP_ERR_MEMORY, "network %s: out of memory for %zu parameters",
			     model->graph->net->name, model->graph->weights);
}

static float *zeros(size_t count)
{
	size_t bytes = (count * sizeof(float) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	float *memory = aligned_alloc(ALIGNMENT, bytes ? bytes : ALIGNMENT);

	return memory ? memset(memory, 0, bytes) : NULL;
}

/* --- Create ------------------------------------------------------------------------------ */

/*
 * The word is listed first, so that it is ready last: it lies behind all others, in the bucket
 * that is summed last.
 */
static int create_gradients(struct model *model, struct ddp *ddp, bool device,
			    struct ddp_error *error)
{
	const struct graph *graph = model->graph;
	struct ddp_gradients_options options = DDP_GRADIENTS_OPTIONS_INIT;
	struct ddp_parameter *list = calloc(graph->parameter_count + 1, sizeof(*list));
	int status;

	if (!list)
		return out_of_memory(model, error);
	list[0] = (struct ddp_parameter){"step", MODEL_WORD};
	for (size_t i = 0; i < graph->parameter_count; i++)
		list[i + 1] = (struct ddp_parameter){graph->parameters[i].name,
						     graph->parameters[i].count};
	options.wire = model->wire;
	options.sum = true;
	options.exact = 1;
	options.device = device;
	status = ddp_gradients_create(&model->gradients, ddp, &options, list,
				      graph->parameter_count + 1);
	if (status < 0)
		status = pass_on(ddp, status, error);
	free(list);
	return status;
}

/* Where libddp put the parameters. */
static int find_offsets(struct model *model, struct ddp_error *error)
{
	const struct graph *graph = model->graph;
	size_t all;

	model->grads = ddp_gradients_all(model->gradients, &all);
	model->word = ddp_gradients_view(model->gradients, 0);
	model->count = ddp_gradients_offset(model->gradients, 0);
	for (size_t i = 0; i < graph->parameter_count; i++) {
		model->offsets[i] = ddp_gradients_offset(model->gradients, i + 1);
		if (model->offsets[i] + graph->parameters[i].count > model->count)
			return ddp_error_set(error, DDP_ERR_STATE,
					     "network %s: the gradient of %s lies behind the word",
					     graph->net->name, graph->parameters[i].name);
	}
	return 0;
}

static int create_arrays(struct model *model, int slots, struct ddp_error *error)
{
	const struct graph *graph = model->graph;
	size_t largest = 0;
	bool failed;

	for (size_t i = 0; i < graph->parameter_count; i++)
		if (graph->parameters[i].count > largest)
			largest = graph->parameters[i].count;
	for (size_t i = 0; i < graph->buffer_count; i++) {
		model->buffer_offsets[i] = model->buffer_count;
		model->buffer_count += graph->buffers[i].count;
	}
	model->values = zeros(model->count);
	model->buffers = zeros(model->buffer_count);
	model->scratch = zeros(largest);
	failed = !model->values || !model->buffers || !model->scratch;
	for (int i = 0; i < slots && i < MODEL_SLOTS; i++) {
		model->slots[i] = zeros(model->count);
		failed = failed || !model->slots[i];
	}
	return failed ? out_of_memory(model, error) : 0;
}

int model_create(struct model **result, struct ddp *ddp, const struct graph *graph, int slots,
		 enum ddp_type wire, bool device, struct ddp_error *error)
{
	struct model *model = calloc(1, sizeof(*model));
	int status;

	*result = NULL;
	if (!model)
		return ddp_error_set(error, DDP_ERR_MEMORY, "network %s: out of memory",
				     graph->net->name);
	model->graph = graph;
	model->wire = wire;
	model->offsets = calloc(graph->parameter_count, sizeof(*model->offsets));
	/* One more, since a network may have none. */
	model->buffer_offsets = calloc(graph->buffer_count + 1, sizeof(*model->buffer_offsets));
	status = model->offsets && model->buffer_offsets ? 0 : out_of_memory(model, error);
	if (status == 0)
		status = create_gradients(model, ddp, device, error);
	if (status == 0)
		status = find_offsets(model, error);
	if (status == 0)
		status = create_arrays(model, slots, error);
	if (status < 0) {
		model_destroy(model);
		return status;
	}
	*result = model;
	return 0;
}

/* What is shared goes with ddp_destroy(). */
static void free_array(const struct model *model, float *array)
{
	if (!model->shared)
		free(array);
}

void model_destroy(struct model *model)
{
	if (!model)
		return;
	for (int i = 0; i < MODEL_SLOTS; i++)
		free_array(model, model->slots[i]);
	free_array(model, model->values);
	free(model->buffers);
	free(model->scratch);
	ddp_gradients_destroy(model->gradients);
	free(model->buffer_offsets);
	free(model->offsets);
	free(model);
}

/* --- Share ------------------------------------------------------------------------------- */

int model_share(struct model *model, struct ddp *ddp, struct ddp_error *error)
{
	float **arrays[] = {&model->values, &model->slots[0], &model->slots[1]};
	void *shared[1 + MODEL_SLOTS] = {NULL};
	int status = 0;

	if (ddp_world(ddp)->size == 1 || strcmp(ddp_world(ddp)->wide, "none") != 0)
		return 0;
	for (int i = 0; status == 0 && i < 1 + MODEL_SLOTS; i++)
		if (*arrays[i])
			status = ddp_shared_create(ddp, model->count * sizeof(float), &shared[i]);
	if (status < 0)
		return pass_on(ddp, status, error);
	for (int i = 0; i < 1 + MODEL_SLOTS; i++) {
		free(*arrays[i]);
		*arrays[i] = shared[i];
	}
	model->shared = true;
	return 0;
}

void model_part(size_t count, int rank, int ranks, size_t *begin, size_t *end)
{
	const size_t line = ALIGNMENT / sizeof(float);
	size_t lines = (count + line - 1) / line, parts = (size_t)ranks;

	*begin = lines * (size_t)rank / parts * line;
	*end = lines * ((size_t)rank + 1) / parts * line;
	*begin = *begin < count ? *begin : count;
	*end = *end < count ? *end : count;
}

/* --- Look -------------------------------------------------------------------------------- */

float *model_value(const struct model *model, size_t index)
{
	return model->values + model->offsets[index];
}

float *model_gradient(const struct model *model, size_t index)
{
	return model->grads + model->offsets[index];
}

float *model_buffer(const struct model *model, size_t index)
{
	return model->buffers + model->buffer_offsets[index];
}

/* --- Begin ------------------------------------------------------------------------------- */

void model_init(struct model *model, uint64_t seed)
{
	const struct graph *graph = model->graph;
	struct ddp_mt19937 random;

	ddp_mt19937_seed(&random, seed);
	for (size_t i = 0; i < graph->parameter_count; i++) {
		graph_init(graph, i, &random, model->scratch);
		graph_import(graph, i, model_value(model, i), model->scratch);
	}
	free(model->scratch);
	model->scratch = NULL;
	for (size_t i = 0; i < graph->buffer_count; i++) {
		float *buffer = model_buffer(model, i);

		for (size_t k = 0; k < graph->buffers[i].count; k++)
			buffer[k] = graph->buffers[i].initial;
	}
}

/* --- Initial values ---------------------------------------------------------------------- */

/*
 * Uniform in [-bound, bound), as Tensor.uniform_ draws. The last multiplication and addition are
 * rounded once, as PyTorch's code for CPUs with AVX2 does it; that for others rounds twice, which
 * is one rounding of a number as large as the bound apart.
 */
static void draw(struct ddp_mt19937 *random, double bound, float *to, size_t count)
{
	float from = (float)-bound, range = (float)bound - from;

	for (size_t i = 0; i < count; i++) {
		uint32_t bits = ddp_mt19937_next(random) & 0xffffffu;

		to[i] = fmaf((float)bits * 0x1p-24f, range, from);
	}
}

static void fill(float *to, size_t count, float value)
{
	for (size_t i = 0; i < count; i++)
		to[i] = value;
}

/* kaiming_uniform_(a=sqrt(5)), in the steps in which PyTorch computes it. */
static double weight_bound(size_t fan)
{
	double slope = sqrt(5), gain = sqrt(2 / (1 + slope * slope));

	return sqrt(3) * (gain / sqrt((double)fan));
}

void graph_init(const struct graph *graph, size_t index, struct ddp_mt19937 *random, float *to)
{
	const struct graph_parameter *parameter = &graph->parameters[index];
	size_t fan = graph_size(parameter->fan);

	switch (parameter->role) {
	case GRAPH_CONV_WEIGHT:
	case GRAPH_DENSE_WEIGHT:
		draw(random, weight_bound(fan), to, parameter->count);
		break;
	case GRAPH_BIAS:
		draw(random, 1 / sqrt((double)fan), to, parameter->count);
		break;
	case GRAPH_SCALE:
		fill(to, parameter->count, 1);
		break;
	case GRAPH_SHIFT:
		fill(to, parameter->count, 0);
		break;
	}
}
