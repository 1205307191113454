/* SPDX-License-Identifier: Apache-2.0 */
/* model.c - allocate, initialize and share a model's arrays, and convert them to tensors */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "base/type.h"
#include "base/xalloc.h"
#include "graph.h"
#include "model.h"

/* alignment of arrays in bytes, equal to the alignment of the gradients in libddp */
enum { ALIGNMENT = 64 };

/* Copies the error text of [ddp] to [error]. Returns [status]. */
static int pass_on(const struct ddp *ddp, int status, struct ddp_error *error)
{
	return ddp_error_set(error, status, "%s", ddp_error(ddp));
}

static float *zeros(size_t count)
{
	return ddp_xaligned(count * sizeof(float), "the network");
}

/* --- Create ------------------------------------------------------------------------------ */

/*
 * Creates the gradients. libddp fills buckets from the end of the list of parameters. The step
 * vector is first in this list, so that it is in the bucket that is summed last.
 */
static int create_gradients(struct model *model, struct ddp *ddp, enum ddp_type wire, bool device,
			    size_t virtual_ranks, struct ddp_error *error)
{
	const struct graph *graph = model->graph;
	struct ddp_gradients_options options = DDP_GRADIENTS_OPTIONS_INIT;
	struct ddp_parameter *list =
		ddp_xcalloc(graph->parameter_count + 1, sizeof(*list), "the network");
	int status;

	list[0] = (struct ddp_parameter){"step", MODEL_STEP_SIZE};
	for (size_t i = 0; i < graph->parameter_count; i++)
		list[i + 1] = (struct ddp_parameter){graph->parameters[i].name,
						     graph->parameters[i].count};
	options.wire = wire;
	options.sum = true;
	options.exact = 1;
	options.device = device;
	options.virtual_ranks = virtual_ranks;
	status = ddp_gradients_create(&model->gradients, ddp, &options, list,
				      graph->parameter_count + 1);
	if (status < 0)
		status = pass_on(ddp, status, error);
	free(list);
	return status;
}

/* Reads the offsets that libddp chose for the parameters. The step vector comes after them. */
static void find_offsets(struct model *model)
{
	const struct graph *graph = model->graph;
	size_t all;

	model->grads = ddp_gradients_all(model->gradients, &all);
	model->step_vector = ddp_gradients_view(model->gradients, 0);
	model->count = ddp_gradients_offset(model->gradients, 0);
	for (size_t i = 0; i < graph->parameter_count; i++)
		model->offsets[i] = ddp_gradients_offset(model->gradients, i + 1);
}

static void create_arrays(struct model *model, int slots)
{
	const struct graph *graph = model->graph;

	for (size_t i = 0; i < graph->buffer_count; i++) {
		model->buffer_offsets[i] = model->buffer_count;
		model->buffer_count += graph->buffers[i].count;
	}
	model->values = zeros(model->count);
	model->buffers = zeros(model->buffer_count);
	for (int i = 0; i < slots && i < MODEL_SLOTS; i++)
		model->slots[i] = zeros(model->count);
}

int model_create(struct model **result, struct ddp *ddp, const struct graph *graph, int slots,
		 enum ddp_type wire, bool device, size_t virtual_ranks, struct ddp_error *error)
{
	struct model *model = ddp_xcalloc(1, sizeof(*model), "the network");
	int status;

	*result = NULL;
	model->graph = graph;
	model->offsets =
		ddp_xcalloc(graph->parameter_count, sizeof(*model->offsets), "the network");
	model->buffer_offsets =
		ddp_xcalloc(graph->buffer_count, sizeof(*model->buffer_offsets), "the network");
	status = create_gradients(model, ddp, wire, device, virtual_ranks, error);
	if (status < 0) {
		model_destroy(model);
		return status;
	}
	find_offsets(model);
	create_arrays(model, slots);
	*result = model;
	return 0;
}

/* Frees an array, unless it is shared. ddp_destroy() frees shared arrays. */
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
	ddp_gradients_destroy(model->gradients);
	free(model->buffer_offsets);
	free(model->offsets);
	free(model);
}

/* --- Shared memory ----------------------------------------------------------------------- */

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

/* --- Accessors --------------------------------------------------------------------------- */

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

/* --- Initial values ---------------------------------------------------------------------- */

/*
 * Draws numbers from [-bound, bound) as Tensor.uniform_ does. The last multiplication and addition
 * are a fused multiply-add, as in PyTorch's code for CPUs with AVX2. PyTorch's code for other CPUs
 * rounds twice, so its results differ by up to one unit in the last place of [bound].
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

/* kaiming_uniform_(a=sqrt(5)), computed with PyTorch's sequence of operations. */
static double weight_bound(size_t fan)
{
	double slope = sqrt(5), gain = sqrt(2 / (1 + slope * slope));

	return sqrt(3) * (gain / sqrt((double)fan));
}

/*
 * Draws PyTorch's initial values of [parameter], in PyTorch's layout. Weights are drawn by
 * kaiming_uniform_(a=sqrt(5)), and biases uniformly. Scales of NORM are ones, and shifts are zeros.
 */
static void draw_parameter(const struct graph_parameter *parameter, struct ddp_mt19937 *random,
			   float *to)
{
	size_t fan = graph_size(parameter->fan);

	switch (parameter->role) {
	case GRAPH_WEIGHT:
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

/* --- Layout ------------------------------------------------------------------------------ */

static void transpose(float *to, const float *from, size_t outputs, size_t rows, size_t columns)
{
	for (size_t o = 0; o < outputs; o++) {
		const float *in = from + o * rows * columns;
		float *out = to + o * rows * columns;

		for (size_t column = 0; column < columns; column++)
			for (size_t row = 0; row < rows; row++)
				*out++ = in[row * columns + column];
	}
}

/*
 * Converts the layout of a parameter. With [out], the layout of each output is converted from
 * positions x channels (engines) to channels x positions (PyTorch). Otherwise it is converted back.
 */
static void convert_layout(const struct graph *graph, size_t index, float *to, const float *from,
			   bool out)
{
	const struct graph_parameter *parameter = &graph->parameters[index];
	size_t channels = (size_t)parameter->fan.channels;
	size_t places = (size_t)parameter->fan.height * (size_t)parameter->fan.width;
	size_t outputs = (size_t)parameter->shape[0];

	if (parameter->dimensions == 1 || places == 1 || channels == 1)
		memcpy(to, from, parameter->count * sizeof(*to));
	else if (out)
		transpose(to, from, outputs, places, channels);
	else
		transpose(to, from, outputs, channels, places);
}

void model_init(struct model *model, uint64_t seed)
{
	const struct graph *graph = model->graph;
	struct ddp_mt19937 random;

	ddp_mt19937_seed(&random, seed);
	for (size_t i = 0; i < graph->parameter_count; i++) {
		float *values = zeros(graph->parameters[i].count);

		draw_parameter(&graph->parameters[i], &random, values);
		convert_layout(graph, i, model_value(model, i), values, false);
		free(values);
	}
	for (size_t i = 0; i < graph->buffer_count; i++) {
		float *buffer = model_buffer(model, i);

		for (size_t k = 0; k < graph->buffers[i].count; k++)
			buffer[k] = graph->buffers[i].initial;
	}
}

bool model_is_finite(const struct model *model)
{
	for (size_t i = 0; i < model->count; i++)
		if (!isfinite(model->values[i]))
			return false;
	return true;
}

/* --- Tensors with PyTorch's names -------------------------------------------------------- */

/* size of the longest tensor name: "optimizer.1." and a parameter's name */
enum { NAME = GRAPH_NAME + 16 };

/*
 * Numbers of tensors and elements in a struct model_tensors. The list has parameters, slots,
 * buffers and counters (num_batches_tracked), in this order. The memory has all names, then all
 * values except those of the counters. The data of all counters is tensors->steps.
 */
struct plan {
	size_t parameters, slots, buffers, counters;
	size_t tensors, elements;
};

static struct plan plan_of(const struct model *model, bool optimizer)
{
	const struct graph *graph = model->graph;
	struct plan plan = {.parameters = graph->parameter_count, .buffers = graph->buffer_count};

	while (optimizer && plan.slots < MODEL_SLOTS && model->slots[plan.slots])
		plan.slots++;
	for (size_t i = 0; i < graph->node_count; i++)
		plan.counters += graph->nodes[i].layer->kind == NET_NORM;
	plan.tensors = plan.parameters * (1 + plan.slots) + plan.buffers + plan.counters;
	plan.elements = graph->weights * (1 + plan.slots) + model->buffer_count;
	return plan;
}

/* --- List of tensors --------------------------------------------------------------------- */

/* Addresses at which the next tensor, its name and its data are added. */
struct cursor {
	struct ddp_tensor *tensor;
	char *name;
	float *data;
};

static void add(struct cursor *cursor, const char *prefix, const char *name, int dimensions,
		const int64_t *shape)
{
	struct ddp_tensor *tensor = cursor->tensor++;

	snprintf(cursor->name, NAME, "%s%s", prefix, name);
	*tensor = (struct ddp_tensor){cursor->name, DDP_F32, dimensions, {0}, cursor->data};
	for (int i = 0; i < dimensions; i++)
		tensor->shape[i] = shape[i];
	cursor->name += NAME;
	cursor->data += ddp_tensor_count(tensor);
}

static void add_parameters(struct cursor *cursor, const struct graph *graph, const char *prefix)
{
	for (size_t i = 0; i < graph->parameter_count; i++) {
		const struct graph_parameter *parameter = &graph->parameters[i];

		add(cursor, prefix, parameter->name, parameter->dimensions, parameter->shape);
	}
}

static void add_counters(struct cursor *cursor, const struct graph *graph, int64_t *steps)
{
	for (size_t i = 0; i < graph->node_count; i++) {
		const struct net_layer *layer = graph->nodes[i].layer;

		if (layer->kind != NET_NORM)
			continue;
		snprintf(cursor->name, NAME, "%s.num_batches_tracked", layer->name);
		*cursor->tensor++ = (struct ddp_tensor){cursor->name, DDP_I64, 0, {0}, steps};
		cursor->name += NAME;
	}
}

void model_tensors_create(struct model_tensors *tensors, const struct model *model, bool optimizer)
{
	const struct graph *graph = model->graph;
	struct plan plan = plan_of(model, optimizer);
	struct cursor cursor;

	*tensors = (struct model_tensors){.count = plan.tensors};
	tensors->list = ddp_xcalloc(plan.tensors, sizeof(*tensors->list), "tensors for files");
	tensors->memory = ddp_xcalloc(plan.tensors * NAME + plan.elements * sizeof(float), 1,
				      "tensors for files");
	cursor.tensor = tensors->list;
	cursor.name = tensors->memory;
	cursor.data = (float *)(void *)(cursor.name + plan.tensors * NAME);
	add_parameters(&cursor, graph, "");
	for (size_t slot = 0; slot < plan.slots; slot++) {
		char prefix[16];

		snprintf(prefix, sizeof(prefix), "optimizer.%u.", (unsigned)slot);
		add_parameters(&cursor, graph, prefix);
	}
	for (size_t i = 0; i < graph->buffer_count; i++) {
		const int64_t shape[1] = {(int64_t)graph->buffers[i].count};

		add(&cursor, "", graph->buffers[i].name, 1, shape);
	}
	add_counters(&cursor, graph, &tensors->steps);
}

void model_tensors_destroy(struct model_tensors *tensors)
{
	if (!tensors)
		return;
	free(tensors->memory);
	free(tensors->list);
	*tensors = (struct model_tensors){0};
}

/* --- Values of tensors ------------------------------------------------------------------- */

/* Returns the model's array for [group] of the list: 0 for values, then one group per slot. */
static float *array_of(const struct model *model, size_t group)
{
	return group == 0 ? model->values : model->slots[group - 1];
}

/* Number of groups of parameters in [tensors]. */
static size_t groups_of(const struct model_tensors *tensors, const struct model *model)
{
	struct plan plan = plan_of(model, false);

	return (tensors->count - plan.buffers - plan.counters) / plan.parameters;
}

static void copy_buffers(const struct model_tensors *tensors, const struct model *model,
			 size_t first, bool out)
{
	const struct graph *graph = model->graph;

	for (size_t i = 0; i < graph->buffer_count; i++) {
		float *here = model_buffer(model, i), *there = tensors->list[first + i].data;

		memcpy(out ? there : here, out ? here : there,
		       graph->buffers[i].count * sizeof(*here));
	}
}

void model_tensors_export(struct model_tensors *tensors, const struct model *model, int64_t steps)
{
	const struct graph *graph = model->graph;
	size_t groups = groups_of(tensors, model), at = 0;

	for (size_t group = 0; group < groups; group++)
		for (size_t i = 0; i < graph->parameter_count; i++)
			convert_layout(graph, i, tensors->list[at++].data,
				       array_of(model, group) + model->offsets[i], true);
	copy_buffers(tensors, model, at, true);
	tensors->steps = model->batches + steps;
}

void model_tensors_import(const struct model_tensors *tensors, struct model *model, int64_t steps)
{
	const struct graph *graph = model->graph;
	size_t groups = groups_of(tensors, model), at = 0;

	for (size_t group = 0; group < groups; group++)
		for (size_t i = 0; i < graph->parameter_count; i++)
			convert_layout(graph, i, array_of(model, group) + model->offsets[i],
				       tensors->list[at++].data, false);
	copy_buffers(tensors, model, at, false);
	model->batches = tensors->steps - steps;
}

/* --- Reading from a file ----------------------------------------------------------------- */

enum { SHAPE_TEXT = 128 };

/* Writes the shape of [tensor] to [text], such as "[32, 1, 3, 3]". Returns [text]. */
static const char *shape_text(char *text, const struct ddp_tensor *tensor)
{
	size_t at = 0;

	text[at++] = '[';
	for (int i = 0; i < tensor->dimensions && at < SHAPE_TEXT - 24; i++)
		at += (size_t)snprintf(text + at, SHAPE_TEXT - at, "%s%" PRId64, i ? ", " : "",
				       tensor->shape[i]);
	memcpy(text + at, "]", 2);
	return text;
}

/*
 * Whether [file] has tensor [name] with the prefix "module.". This happens if the
 * DistributedDataParallel wrapper was saved and not the module in it.
 */
static bool is_wrapped(const struct ddp_tensors *file, const char *name)
{
	char wrapped[GRAPH_NAME + 8];

	snprintf(wrapped, sizeof(wrapped), "module.%s", name);
	return ddp_tensors_find(file, wrapped);
}

/* Finds the tensor of [file] with the name, type and shape of [want]. */
static int find(const struct ddp_tensors *file, const char *path, const struct ddp_tensor *want,
		const struct ddp_tensor **found, struct ddp_error *error)
{
	const struct ddp_tensor *got = *found = ddp_tensors_find(file, want->name);
	char here[SHAPE_TEXT], there[SHAPE_TEXT];

	if (!got)
		return ddp_error_set(
			error, DDP_ERR_FORMAT, "%s has no tensor %s%s", path, want->name,
			is_wrapped(file, want->name)
				? ", but one with the prefix \"module.\". Save model.module.state_dict()."
				: "");
	if (got->type != want->type)
		return ddp_error_set(error, DDP_ERR_FORMAT, "tensor %s in %s is %s, not %s",
				     want->name, path,
				     got->type == DDP_TYPE_COUNT ? "of an unknown type"
								 : ddp_type_name(got->type),
				     ddp_type_name(want->type));
	if (got->dimensions != want->dimensions ||
	    memcmp(got->shape, want->shape, (size_t)want->dimensions * sizeof(want->shape[0])))
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "tensor %s in %s has shape %s, but the network needs %s",
				     want->name, path, shape_text(there, got),
				     shape_text(here, want));
	return 0;
}

int model_read(struct model *model, const char *path, struct ddp_error *error)
{
	struct model_tensors tensors = {0};
	struct ddp_tensors *file = NULL;
	int status = ddp_tensors_open(&file, path, error);

	model_tensors_create(&tensors, model, false);
	for (size_t i = 0; status == 0 && i < tensors.count; i++) {
		const struct ddp_tensor *want = &tensors.list[i], *found;

		/* num_batches_tracked is optional, because some programs do not write it. */
		if (want->data == &tensors.steps) {
			found = ddp_tensors_find(file, want->name);
			if (found && found->type == DDP_I64 && ddp_tensor_count(found) == 1)
				memcpy(&tensors.steps, found->data, sizeof(tensors.steps));
			continue;
		}
		status = find(file, path, want, &found, error);
		if (status == 0)
			memcpy(want->data, found->data, ddp_tensor_count(want) * sizeof(float));
	}
	if (status == 0)
		model_tensors_import(&tensors, model, 0);
	if (file)
		ddp_tensors_close(file);
	model_tensors_destroy(&tensors);
	return status;
}
